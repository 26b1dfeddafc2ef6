#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Each header includes what it needs, and warns of nothing. usage: check_headers.py COMPILER SETTINGS T0|T1|T2

T0 and T1 headers are compiled one by one. A T2 header costs seconds, so they are compiled together twice, in this order and in the
other: a header that leans on one before it fails in one of them, unless torch's own headers cover it."""
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from compiler import ROOT, WARNINGS, Compiler

program, settings, tier = sys.argv[1:]
compiler = Compiler(program, settings)
include = ROOT / "include"
headers = [h.relative_to(include).as_posix() for h in sorted((include / "toller").rglob("*.hpp"))]
headers = [h for h in headers if not h.endswith(".inc.hpp")]   # parts of one header, included several times
headers = [h for h in headers if (include / h).read_text(encoding="utf8").split("\n")[1].startswith(f"// {tier}.")]

groups = [headers, headers[::-1]] if tier == "T2" else [[h] for h in headers]
faults = 0
for number, group in enumerate(groups):
    text = "// SPDX-License-Identifier: Apache-2.0\n" + "".join(f'#include "{h}"\n' for h in group)
    compiles, messages = compiler.check_text(f"headers_{Path(program).name}_{tier}_{number}.cpp", text, *WARNINGS)
    if not compiles:
        faults += 1
        print(f"{group[0] if len(group) == 1 else 'all headers of ' + tier}: does not compile alone\n{messages}")
print(f"{len(headers)} headers of {tier}, {faults} faults")
sys.exit(1 if faults or not headers else 0)
