#!/usr/bin/env python3
"""Checks the size of the tree and a few rules for its files that the compiler does not know.

  - all files together stay under 56 MiB, no source file is longer than 800 lines
  - no disabled tests, and no skipped tests without a reason
  - the library does not print, read the environment or end the process: only src/cli/ may
  - every header has #pragma once and begins with a comment that says what it is
  - no path of a particular machine

Checks the files that git tracks or would track; without git, everything but build output. Prints one line per
violation, "path:line: what", and exits 1 if there is any.
"""

import re
import sys

import checking
from checking import CPP, DATA, code_only, files_of, line_of

TREE_LIMIT_BYTES = 56 * 1024 * 1024
LINE_LIMIT = 800
SOURCES = CPP | {".py"}
TEXT = SOURCES | {".md", ".txt", ".cmake", ".sh", ".json", ".yml", ".yaml", ".toml", ".dict"}
TEXT_NAMES = {"Makefile", "run", ".clang-format", ".clang-tidy", ".gitignore"}

# A broken contract prints the promise and ends the process; nothing else in the library may.
MAY_END_THE_PROCESS = {"src/base/check.cpp"}
FORBIDDEN_IN_LIBRARY = [
    (re.compile(r"#\s*include\s*<iostream>"), "<iostream>"),
    (re.compile(r"(?<![\w.>])v?f?printf\s*\(|(?<![\w.>])f?puts\s*\(|\bfmt::print\s*\("), "printing"),
    (re.compile(r"(?<![\w.>])(?:secure_)?getenv\s*\("), "getenv"),
    (re.compile(r"(?<![\w.>])(?:_exit|_Exit|quick_exit|exit|abort|terminate)\s*\("), "ending the process"),
]
# Joined from parts, so that this file passes its own check.
MACHINE_PATH = re.compile(r"(?<![\w.:/~$}-])/(?:" + "|".join(["home", "root", "Users", "work", "tmp", "mnt"]) + r")/\w")


def check_cpp(name, text):
    code = code_only(text)
    for match in re.finditer(r"\bDISABLED_\w*", code):
        yield f"{name}:{line_of(code, match.start())}: {match[0]} is disabled: repair it or remove it"
    for match in re.finditer(r"\bGTEST_SKIP\(\)(?!\s*<<)", code):
        yield f"{name}:{line_of(code, match.start())}: GTEST_SKIP() does not say why"
    if name.startswith("src/") and not name.startswith("src/cli/") and name not in MAY_END_THE_PROCESS:
        for pattern, what in FORBIDDEN_IN_LIBRARY:
            for match in pattern.finditer(code):
                yield f"{name}:{line_of(code, match.start())}: {what} is for src/cli/ only"
    if name.endswith((".h", ".cuh")):
        lines = [line for line in text.splitlines() if line.strip()]
        if "#pragma once" not in lines:
            yield f"{name}: has no #pragma once"
        rest = [line for line in lines if line != "#pragma once"]
        if not rest or not rest[0].startswith(("//", "/*")):
            yield f"{name}: does not begin with a comment that says what it is"


def check_text(name, text):
    for match in MACHINE_PATH.finditer(text):
        yield f"{name}:{line_of(text, match.start())}: a path of a particular machine ({match[0]}…)"


def check(root):
    """Every violation in the tree under `root`, one line each."""
    problems, total = [], 0
    for name in files_of(root):
        path = root / name
        total += path.lstat().st_size
        is_text = path.suffix in TEXT or path.name in TEXT_NAMES
        if path.is_symlink() or not is_text or name.startswith(DATA):
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            problems.append(f"{name}: is not UTF-8")
            continue
        lines = text.count("\n")
        if path.suffix in SOURCES and lines > LINE_LIMIT:
            problems.append(f"{name}: {lines} lines, the limit is {LINE_LIMIT}: split it")
        if path.suffix in CPP:
            problems += check_cpp(name, text)
        problems += check_text(name, text)
    if total >= TREE_LIMIT_BYTES:
        problems.append(f"the tree holds {total / 2**20:.1f} MiB, the limit is {TREE_LIMIT_BYTES / 2**20:.0f} MiB")
    return problems


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks the size of the tree and rules for its files."))
