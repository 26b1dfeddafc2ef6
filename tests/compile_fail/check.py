#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What must not compile says so once. usage: check.py COMPILER SETTINGS cases|twins

A case C101_*.cpp begins with `// expect: C101`: it must fail with exactly one error, which holds that code. Beside it lies its twin,
the same program put right, which must compile. Headers cost seconds, so all cases are one translation unit, each in a namespace of
its own, and so are all twins."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from compiler import WARNINGS, Compiler

here = Path(__file__).resolve().parent
program, settings, wanted = sys.argv[1:]
twins = sorted(here.glob("C*_twin.cpp"))
cases = [path for path in sorted(here.glob("C*.cpp")) if path not in twins]


def together(paths):
    head, body = [], []
    for path in paths:
        lines = path.read_text(encoding="utf8").split("\n")
        head += [line for line in lines if line.startswith("#include") and line not in head]
        body += [f"namespace {path.stem} {{", f'#line 1 "{path.name}"']
        body += ["" if line.startswith("#include") else line for line in lines] + [f"}}  // namespace {path.stem}"]
    name = f"{wanted}_{Path(program).name}.cpp"
    return Compiler(program, settings).check_text(name, "\n".join(head + body) + "\n", *WARNINGS, "-Wno-unused")


def errors_by_case(messages):
    """g++ says before an error which line of the user's led to it, clang++ after it."""
    found = {path.name: [] for path in cases}
    clang = "required from here" not in messages
    blocks = re.split(r"(?m)^(?=.*\berror:)" if clang else r"(?<=\n)(?=\S*:? ?In (?:instantiation|function|member)|\S+: In )", messages)
    for block in blocks:
        errors = re.findall(r"(?m)^.*\berror: .*$", block)
        places = re.findall(r"\b(C\d{3}_\w+\.cpp):\d+", block)
        for error in errors:
            found.setdefault(places[-1] if places else "no case", []).append(error)
    return found


if wanted == "twins":
    compiles, messages = together(twins)
    print(messages)
    sys.exit(0 if compiles and twins else "a twin does not compile")

faults = 0
_, messages = together(cases)
found = errors_by_case(messages)
for path in cases:
    code = re.match(r"// expect: (C\d{3})\n", path.read_text(encoding="utf8"))
    if not code or not path.with_name(path.stem + "_twin.cpp").is_file():
        print(f"{path.name}: begins without `// expect: C1xx`, or has no twin")
        faults += 1
    elif len(found[path.name]) != 1 or f"[toller {code[1]}]" not in found[path.name][0]:
        print(f"{path.name}: expected one error with [toller {code[1]}], got {found[path.name]}")
        faults += 1
faults += len(found.get("no case", []))
for error in found.get("no case", []):
    print(f"an error that no case leads to: {error}")
print(f"{len(cases)} cases, {faults} faults")
sys.exit(1 if faults or not cases else 0)
