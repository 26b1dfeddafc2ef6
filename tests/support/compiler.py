# SPDX-License-Identifier: Apache-2.0
"""Compiles sources for their messages alone, the way a user of toller would."""
import json
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
WARNINGS = ["-Wall", "-Wextra", "-Wpedantic", "-Wconversion", "-Wshadow", "-Werror"]


class Compiler:
    """`settings` is the file that tests/CMakeLists.txt writes: include folders of toller and of what it stands on."""

    def __init__(self, program, settings):
        self.program = program
        given = json.loads(Path(settings).read_text())
        self.work = Path(given["work"])
        self.work.mkdir(parents=True, exist_ok=True)
        self.flags = ["-std=c++20", "-fsyntax-only", "-I", str(ROOT / "include"),
                      "-isystem", str(ROOT / "include" / "toller" / "distributed" / "gloo")]
        for folder in given["system_includes"]:
            if folder and folder != "/usr/include":
                self.flags += ["-isystem", folder]

    def check(self, source, *more):
        """(compiles, messages) of a file."""
        done = subprocess.run([self.program, *self.flags, *more, str(source)], capture_output=True, text=True)
        return done.returncode == 0, done.stdout + done.stderr

    def check_text(self, name, text, *more):
        path = self.work / name
        path.write_text(text, encoding="utf8")
        return self.check(path, *more)
