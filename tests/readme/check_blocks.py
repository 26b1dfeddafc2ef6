#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The C++ blocks of README.md and of the rooms' READMEs compile. usage: check_blocks.py COMPILER SETTINGS

A block is a program, or declarations, or statements: declarations and `main` go into a namespace of the block, statements into a
function there. All blocks are one translation unit; messages name the README and its line."""
import re
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))
from compiler import ROOT, Compiler

DECLARATION = re.compile(r"(struct|class|template|namespace|using|inline|constexpr|static_assert|concept|enum|\[\[|int main\(|"
                         r"(void|bool|int|double|float|auto|[\w:]+(<.*>)?[&*]?) \w+\(([\w:]+(<.*>)?[ &*].*)?\)( const)? \{)")


def blocks(page):
    lines = page.read_text(encoding="utf8").split("\n")
    inside = None
    for number, line in enumerate(lines, 1):
        if inside is None and line.strip() == "```cpp":
            inside = (number + 1, [])
        elif inside is not None and line.strip() == "```":
            yield inside
            inside = None
        elif inside is not None:
            inside[1].append(line)


def split(first, lines):
    """Includes, declarations and statements of a block, as (line number, text)."""
    includes, declarations, statements = [], [], []
    target = None
    for number, line in enumerate(lines, first):
        if re.match(r"\s*#\s*include", line):
            includes.append((number, line))
            continue
        if line[:1] not in ("", " ", "}", ")", "#", "/") and not (target is declarations and line[:1] in ("{", ":")):
            if target is not declarations or done:
                target = declarations if DECLARATION.match(line) else statements
        if target is None:
            target = declarations
        target.append((number, line))
        done = line.rstrip().endswith((";", "}")) or not line.startswith("template")
    return includes, declarations, statements


head, body, count = [], [], 0
for page in [ROOT / "README.md", *sorted((ROOT / "include" / "toller").glob("*/README.md"))]:
    if not page.is_file():
        continue
    for first, lines in blocks(page):
        count += 1
        place = page.relative_to(ROOT).as_posix()
        includes, declarations, statements = split(first, lines)
        head += [text for _, text in includes if text not in head]
        body.append(f"namespace block_{count} {{")
        body += [row for number, text in declarations for row in (f'#line {number} "{place}"', text)]
        if any(text.strip() for _, text in statements):
            body.append("[[maybe_unused]] static void statements() {")
            body += [row for number, text in statements for row in (f'#line {number} "{place}"', text)]
            body.append("}")
        body.append(f"}}  // namespace block_{count}")
if not count:
    sys.exit("no ```cpp block found")

program, settings = sys.argv[1:]
text = "\n".join(["// SPDX-License-Identifier: Apache-2.0", *head, *body, ""])
compiles, messages = Compiler(program, settings).check_text(f"readme_{Path(program).name}.cpp", text, "-Wno-unused")
print(messages, f"{count} blocks", sep="\n")
sys.exit(0 if compiles else 1)
