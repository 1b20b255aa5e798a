#!/usr/bin/env python3
"""Checks what the compiler does not: the size of the tree and a few habits of its files.

  - all files together stay under 56 MiB, no source file is longer than 800 lines
  - no disabled tests, and no skipped ones that do not say why
  - the library neither prints, reads the environment nor ends the process: that is for src/cli/
  - every header has #pragma once and begins with a comment that says what it is
  - no path of somebody's machine, no relative link in a document that leads nowhere

Looks at what git tracks or would track; without git, at everything but build output. Prints one line a
violation, "path:line: what", and exits 1 if there is any.
"""

import os
import pathlib
import re
import subprocess
import sys

import checking

TREE_LIMIT_BYTES = 56 * 1024 * 1024
LINE_LIMIT = 800
SOURCES = {".cpp", ".h", ".py", ".cu", ".cuh"}
CPP = {".cpp", ".h", ".cu", ".cuh"}
TEXT = SOURCES | {".md", ".txt", ".cmake", ".sh", ".json", ".yml", ".yaml", ".toml", ".dict"}
TEXT_NAMES = {"Makefile", "run", ".clang-format", ".clang-tidy", ".gitignore"}
DATA = ("models/", "tests/goldens/", "tests/fuzz/corpus/")  # what others wrote, byte for byte

# Contracts end the process with the broken promise as their last word; nothing else in the library may.
MAY_END_THE_PROCESS = {"src/base/check.cpp"}
FORBIDDEN_IN_LIBRARY = [
    (re.compile(r"#\s*include\s*<iostream>"), "<iostream>"),
    (re.compile(r"(?<![\w.>])v?f?printf\s*\(|(?<![\w.>])f?puts\s*\(|\bfmt::print\s*\("), "printing"),
    (re.compile(r"(?<![\w.>])(?:secure_)?getenv\s*\("), "getenv"),
    (re.compile(r"(?<![\w.>])(?:_exit|_Exit|quick_exit|exit|abort|terminate)\s*\("), "ending the process"),
]
# Spelled in two pieces, so that this file passes its own check.
MACHINE_PATH = re.compile(r"(?<![\w.:/~$}-])/(?:" + "|".join(["home", "root", "Users", "work", "tmp", "mnt"]) + r")/\w")
COMMENT_OR_STRING = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])*\'', re.S)
LINK = re.compile(r"\]\(([^)\s#]+)(?:#[^)]*)?\)")


def files_of(root):
    """Paths relative to `root` of every file that is, or would be, part of the repository."""
    listing = subprocess.run(
        ["git", "-C", str(root), "rev-parse", "--show-toplevel"], capture_output=True, text=True, check=False
    ) if (root / ".git").exists() else None
    if listing and listing.returncode == 0 and pathlib.Path(listing.stdout.strip()).resolve() == root.resolve():
        names = subprocess.run(
            ["git", "-C", str(root), "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, check=True,
        ).stdout.decode("utf-8", "surrogateescape").split("\0")
        return sorted(name for name in set(names) if name and os.path.lexists(root / name))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in {".git", "__pycache__"}]
        if pathlib.Path(folder) == root and "build" in folders:
            folders.remove("build")
        found += [pathlib.Path(folder, name).relative_to(root).as_posix() for name in names]
    return sorted(found)


def code_only(text):
    """`text` with comments and literals blanked out; every newline stays where it was."""
    return COMMENT_OR_STRING.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)


def line_of(text, position):
    return text.count("\n", 0, position) + 1


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


def check_text(root, name, text):
    for match in MACHINE_PATH.finditer(text):
        yield f"{name}:{line_of(text, match.start())}: a path of somebody's machine ({match[0]}…)"
    if name.endswith(".md"):
        for match in LINK.finditer(text):
            if "://" not in match[1] and not match[1].startswith("mailto:"):
                if not (root / name).parent.joinpath(match[1]).exists():
                    yield f"{name}:{line_of(text, match.start())}: a link that leads nowhere ({match[1]})"


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
        problems += check_text(root, name, text)
    if total >= TREE_LIMIT_BYTES:
        problems.append(f"the tree holds {total / 2**20:.1f} MiB, the limit is {TREE_LIMIT_BYTES / 2**20:.0f} MiB")
    return problems


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks the size of the tree and the habits of its files."))
