#!/usr/bin/env python3
"""Checks that no two files of src/ define a type of the same name in the same namespace.

The linker does not report two such types in one program: templates over them (std::vector<Segment>) become
one function, compiled for one of the two. Anonymous namespaces are exempt.

Relies on the format of the sources: namespaces and types begin in the first column, and a namespace ends with
"}  // namespace". Prints one line per violation and exits 1 if there is any.
"""

import collections
import pathlib
import re
import sys

import checking

SOURCES = {".h", ".cpp", ".inl"}
OPEN = re.compile(r"^(?:inline )?namespace( [\w:]+)? \{$")
CLOSE = re.compile(r"^\}  // namespace")
TYPE = re.compile(r"^(?:struct|class|union|enum class|enum) (?:(?:alignas|MF_\w+)\([^)]*\) |\[\[\w+\]\] )*(\w+)(?: final)?(?: :[^;]*)?(?: \{|$)")


def types_of(text):
    """The (qualified name, line) of every type that a file defines in a namespace with a name."""
    namespaces = []
    for number, line in enumerate(text.splitlines(), 1):
        if opened := OPEN.match(line):
            namespaces.append((opened[1] or " ?").strip())
        elif CLOSE.match(line) and namespaces:
            namespaces.pop()
        elif (found := TYPE.match(line)) and "?" not in namespaces:
            yield "::".join([*namespaces, found[1]]), number


def check(root):
    places = collections.defaultdict(list)
    for path in sorted(p for p in (root / "src").rglob("*") if p.suffix in SOURCES):
        for name, number in types_of(path.read_text(encoding="utf-8")):
            places[name].append(f"{path.relative_to(root).as_posix()}:{number}")
    return [f"{found[1]}: {name} is also defined at {found[0]}" for name, found in sorted(places.items())
            if len(found) > 1]


if __name__ == "__main__":
    sys.exit(checking.main(check, "Checks that no two types have the same name."))
