#!/usr/bin/env python3
"""Checks the sources against the layer table of ARCHITECTURE.md.

The table is between <!-- layers:begin --> and <!-- layers:end -->; its columns are folder, one sentence,
and the folders that it may include. The rules:

  - a row only names rows above it, so there are no cycles
  - every folder of src/ has a row (a row may exist before its folder)
  - #include "folder/file.h" is written from src/, exists, and is allowed by the row of the including folder
  - DEPENDS of moeflux_layer() in src/FOLDER/CMakeLists.txt stays within the row

Prints one line per violation, "path:line: what", and exits 1 if there is any.
"""

import pathlib
import re
import sys

import checking
from checking import line_of

TABLE = "ARCHITECTURE.md"
BEGIN, END = "<!-- layers:begin -->", "<!-- layers:end -->"
SOURCES = {".h", ".cpp", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s*(?:"([^"]+)"|<([^>]+)>)')
LAYER_CALL = re.compile(r"moeflux_layer\(\s*(\w+)([^)]*)\)")
CMAKE_KEYWORDS = {"SOURCES", "DEPENDS", "LIBRARIES"}


def read_table(root):
    """The table as {folder: set of folders it may include}, and its violations."""
    lines = (root / TABLE).read_text(encoding="utf-8").splitlines()
    if BEGIN not in lines or END not in lines:
        return {}, [f"{TABLE}: has no layer table between {BEGIN} and {END}"]
    table, problems = {}, []
    first = lines.index(BEGIN) + 1
    for number, line in enumerate(lines[first : lines.index(END)], first + 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or set(cells[0]) <= set("-: ") or cells[0] == "folder":
            continue
        if len(cells) != 3:
            problems.append(f"{TABLE}:{number}: a row has 3 columns, this one has {len(cells)}")
            continue
        folder, allowed = cells[0].strip("`"), set(cells[2].replace("`", "").split()) - {"–"}
        if folder in table:
            problems.append(f"{TABLE}:{number}: {folder}/ has a second row")
        for other in sorted(allowed - table.keys()):
            problems.append(f"{TABLE}:{number}: {folder}/ may include {other}/, which is not a row above it")
        table[folder] = allowed
    return table, problems


def check_includes(root, table):
    """Violations in the sources of src/."""
    source_root = root / "src"
    for path in sorted(p for p in source_root.rglob("*") if p.suffix in SOURCES):
        place = path.relative_to(root).as_posix()
        within = path.relative_to(source_root).parts
        if len(within) == 1:
            yield f"{place}: belongs to no folder of src/, so to no layer"
            continue
        folder = within[0]
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            quoted, name = match[1] is not None, match[1] or match[2]
            target = name.split("/")[0] if "/" in name else None
            exists = (source_root / name).is_file()
            if not quoted:
                if exists and target in table:
                    yield f"{place}:{number}: <{name}> is ours: write it in quotes"
            elif target is None or ".." in name.split("/") or not exists:
                yield f'{place}:{number}: "{name}" is not a file of src/ (includes are written from src/)'
            elif target != folder and target not in table.get(folder, set()):
                yield f"{place}:{number}: {folder}/ may not include {target}/ (see {TABLE})"


def check_cmake(root, table):
    """Violations in the DEPENDS lists of src/*/CMakeLists.txt."""
    for path in sorted((root / "src").glob("*/CMakeLists.txt")):
        place, folder = path.relative_to(root).as_posix(), path.parent.name
        # Removes comments but not their newlines, so positions still give line numbers.
        text = re.sub(r"#[^\n]*", "", path.read_text(encoding="utf-8"))
        for call in LAYER_CALL.finditer(text):
            if call[1] != folder:
                yield f"{place}:{line_of(text, call.start())}: declares layer {call[1]} in folder {folder}/"
            keyword = None
            for word in re.finditer(r"\S+", call[2]):
                if word[0] in CMAKE_KEYWORDS:
                    keyword = word[0]
                elif keyword == "DEPENDS" and word[0] not in table.get(folder, set()):
                    number = line_of(text, call.start(2) + word.start())
                    yield f"{place}:{number}: {folder}/ may not depend on {word[0]}/ (see {TABLE})"


def check(root):
    """Every violation in the tree under `root`, one line each."""
    table, problems = read_table(root)
    for folder in sorted(p.name for p in (root / "src").iterdir() if p.is_dir()):
        if folder not in table:
            problems.append(f"src/{folder}/: has no row in the layer table of {TABLE}")
    return [*problems, *check_includes(root, table), *check_cmake(root, table)]


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks the sources against the layer table."))
