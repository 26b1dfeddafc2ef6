#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rules of the house that no compiler checks. usage: check_layout.py CHECK   (or `all`); exit status 1 and one line a fault."""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
HEADERS = ROOT / "include" / "toller"

# A room includes rooms of a lower tier only; the files beside the rooms (the doors) include all of them.
TIERS = [
    ["core"],
    ["store", "text", "distributed"],
    ["tokenizer"],
    ["batch", "encoder", "similarity", "gather"],
    ["pooling", "loss", "precision", "parallelism", "optimizer"],
    ["step", "export", "checkpoint", "evaluate"],
    ["train"],
    ["callbacks", "testing"],
]
# Rooms of policies: others see the concept header <room>/<room>.hpp, never a model.
POLICY_ROOMS = {"encoder", "similarity", "pooling", "loss", "precision", "parallelism", "step"}
# Exceptions, each with its reason.
ALLOWED = {
    ("train/trainer.hpp", "parallelism/single_device.hpp"): "the default of Trainer's parallelism",
    ("train/trainer.hpp", "precision/fp32.hpp"): "the default of Trainer's precision",
    ("train/trainer.hpp", "step/plain_step.hpp"): "the default of Trainer's step",
}
TORCH = re.compile(r"(ATen|c10|torch|caffe2)/")
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]([^">]+)[">]', re.M)
# Split, so that this file does not hold them.
FORBIDDEN = ["TO" + "DO", "FIX" + "ME", "/wo" + "rk/", "../sha" + "red", "iss" + "ue #"]


def headers():
    return [h for h in sorted(HEADERS.rglob("*.hpp")) if not h.name.endswith(".inc.hpp")]   # those are parts of one header


def name(path):
    return path.relative_to(HEADERS).as_posix()


def includes(path):
    return INCLUDE.findall(path.read_text(encoding="utf8"))


def own(include):
    return include[len("toller/"):] if include.startswith("toller/") else None


def project_files():
    """Files of the project, whether the checkout is a git one or an unpacked archive."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z", "-co", "--exclude-standard"], capture_output=True)
    if listed.returncode == 0:
        files = [ROOT / f for f in listed.stdout.decode().split("\0") if f]
    else:
        tops = ["include", "tests", "examples", "benchmarks", "cmake", "scripts", ".ci"]
        files = [f for top in tops for f in (ROOT / top).rglob("*")] + list(ROOT.glob("*"))
    return [f for f in files if f.is_file() and "golden" not in f.relative_to(ROOT).parts]


def sources():
    return [f for f in project_files() if f.suffix in {".hpp", ".cpp"}]


def direction():
    tier = {room: level for level, rooms in enumerate(TIERS) for room in rooms}
    for path in headers():
        me = name(path)
        if "/" not in me:
            continue
        room = me.split("/")[0]
        if room not in tier:
            yield f"{me}: the room `{room}` has no tier"
            continue
        for include in filter(None, map(own, includes(path))):
            if not (HEADERS / include).is_file():
                yield f"{me}: includes toller/{include}, which does not exist"
                continue
            other = include.split("/")[0]
            if other == room or (me, include) in ALLOWED:
                continue
            if "/" not in include:
                yield f"{me}: a room includes the door {include}"
            elif tier.get(other, 99) >= tier[room]:
                yield f"{me}: includes {include}, which is not of a lower tier"
            elif other in POLICY_ROOMS and include != f"{other}/{other}.hpp":
                yield f"{me}: includes {include}, a model; the concept header is {other}/{other}.hpp"
            elif "/detail/" in include:
                yield f"{me}: includes {include}, which is private to its room"
    for who, what in ALLOWED:
        if (HEADERS / who).is_file() and f"toller/{what}" not in includes(HEADERS / who):
            yield f"ALLOWED holds {who} -> {what}, which is no longer so"


def tags():
    tag = {}
    for path in headers():
        lines = path.read_text(encoding="utf8").split("\n")
        found = re.match(r"// T([012])\. \S", lines[1])
        if lines[0] != "// SPDX-License-Identifier: Apache-2.0" or not found:
            yield f"{name(path)}: begins otherwise than with the licence line and `// T0|T1|T2. purpose`"
        tag[name(path)] = int(found[1]) if found else 2
        if "#pragma once" not in lines:
            yield f"{name(path)}: no #pragma once"
    for path in headers():
        mine = tag[name(path)]
        for include in includes(path):
            if TORCH.match(include):
                small = include == "ATen/core/Tensor.h" or include.startswith("c10/")
                if include == "torch/torch.h":
                    yield f"{name(path)}: includes torch/torch.h"
                elif mine == 0 or (mine == 1 and not small):
                    yield f"{name(path)}: is T{mine}, includes {include}"
            elif own(include) and tag.get(own(include), 0) > mine:
                yield f"{name(path)}: is T{mine}, includes {include}, which is T{tag[own(include)]}"


def size():
    for path in sources():
        lines = path.read_text(encoding="utf8").split("\n")
        where = path.relative_to(ROOT)
        if len(lines) > 401:
            yield f"{where}: {len(lines) - 1} lines, at most 400"
        for number, line in enumerate(lines, 1):
            if len(line) > 128:
                yield f"{where}:{number}: {len(line)} columns, at most 128"
    loop = HEADERS / "train" / "loop.hpp"
    if loop.is_file() and len(loop.read_text().split("\n")) > 121:
        yield "train/loop.hpp: more than 120 lines"


def readmes():
    for room in sorted(p for p in HEADERS.iterdir() if p.is_dir()):
        if any(room.rglob("*.hpp")) and not (room / "README.md").is_file():
            yield f"{room.name}/ has no README.md"


def licence():
    for path in project_files():
        if path.suffix in {".hpp", ".cpp", ".cmake", ".py"} or path.name == "CMakeLists.txt":
            if "SPDX-License-Identifier: Apache-2.0" not in "".join(path.read_text(encoding="utf8").split("\n")[:2]):
                yield f"{path.relative_to(ROOT)}: no licence line"


def words():
    for path in project_files():
        if path.name == "LICENSE":
            continue
        try:
            text = path.read_text(encoding="utf8")
        except UnicodeDecodeError:
            continue
        for number, line in enumerate(text.split("\n"), 1):
            for word in FORBIDDEN:
                if word in line:
                    yield f"{path.relative_to(ROOT)}:{number}: holds `{word}`"


def codes():
    """Each run-time code has one class, and a line in the README of the room that throws it, or in core's."""
    thrown = re.compile(r'\b([A-Z][a-z]+Error)\s*[({]\s*"(R\d{3})"')
    mentioned = re.compile(r'"(R\d{3})"')
    listed = re.compile(r"(?<![-\w])R\d{3}(?![-\w])")
    kinds = {}
    for path in [f for f in sources() if f.relative_to(ROOT).parts[0] in {"include", "examples"}]:
        text = path.read_text(encoding="utf8")
        where = path.relative_to(ROOT).as_posix()
        for kind, code in thrown.findall(text):
            first = kinds.setdefault(code, (kind, where))
            if first[0] != kind:
                yield f"{code}: a {kind} in {where}, a {first[0]} in {first[1]}"
        room = HEADERS / path.relative_to(HEADERS).parts[0] if HEADERS in path.parents else ROOT / "examples"
        known = set()
        pages = HEADERS.glob("*/README.md") if room.name == "examples" else [room / "README.md", HEADERS / "core" / "README.md"]
        for page in pages:
            if page.is_file():
                known |= set(listed.findall(page.read_text(encoding="utf8")))
        for code in sorted(set(mentioned.findall(text)) - known):
            yield f"{where}: {code} has no line in {room.name}/README.md"


def diagnostics():
    """Each compile-time code has a test that it stops a program, a twin that compiles, and an entry in train/README.md."""
    used = set()
    for path in headers():
        used |= set(re.findall(r"\[toller (C\d{3})\]", path.read_text(encoding="utf8")))
    page = (HEADERS / "train" / "README.md").read_text(encoding="utf8")
    explained = {code.upper() for code in re.findall(r"^### (c\d{3})$", page, re.M)}
    tests = {f.name[:4]: f for f in (ROOT / "tests" / "compile_fail").glob("C*.cpp") if not f.stem.endswith("_twin")}
    for code in sorted(used - explained):
        yield f"{code}: no entry `### {code.lower()}` in train/README.md"
    for code in sorted(explained - used):
        yield f"{code}: explained in train/README.md, but no header says it"
    for code in sorted(used - set(tests)):
        yield f"{code}: no tests/compile_fail/{code}_*.cpp"


def docs():
    """Each public name at namespace level has a doc comment, where it is first said. A group without blank lines needs one,
    before its first."""
    start = re.compile(r"^(template|struct|class|enum|concept|inline|constexpr|\[\[nodiscard\]\]|[a-z_:]+(<.*>)?[&*]? [a-z_]+\()")
    no_need = re.compile(r"\w+(<[^()]*>)?::~?\w+\(|\boperator\b|\) -> \w+<.*>;$|^(template <[^{]*> *)?(struct|class|enum class) \w+;")
    for path in headers():
        private = False
        documented = set()
        lines = path.read_text(encoding="utf8").split("\n")
        for number, line in enumerate(lines):
            opened = re.match(r"namespace ([\w:]+) \{", line)
            if opened:
                private = "detail" in opened[1] or not opened[1].startswith("toller")
            elif re.match(r"\}  // namespace .*detail", line):
                private = False
            if private or not start.match(line):
                continue
            said = ""   # the declaration's head, on one line
            for more in lines[number:number + 8]:
                said += more.strip() + " "
                if more.endswith(("{", ";")):
                    break
            function = re.search(r"(\w+)\(", said)
            if lines[number - 1].startswith("///"):
                documented.add(function[1] if function else "")
            elif not lines[number - 1].strip() and not no_need.search(said.strip()) and not (function and function[1] in documented):
                yield f"{name(path)}:{number + 1}: no doc comment: {said[:100]}"


CHECKS = [direction, tags, size, readmes, licence, words, codes, diagnostics, docs]

if __name__ == "__main__":
    wanted = sys.argv[1]
    faults = 0
    for check in CHECKS:
        if wanted in (check.__name__, "all"):
            for fault in check():
                print(f"{check.__name__}: {fault}")
                faults += 1
    sys.exit(1 if faults else 0)
