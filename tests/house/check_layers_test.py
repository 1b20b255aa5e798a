#!/usr/bin/env python3
"""tools/check_layers.py finds each kind of violation and reports its place."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_layers  # noqa: E402

TABLE = """# a
<!-- layers:begin -->
| folder | one sentence | may include |
|---|---|---|
| base | words | – |
| io | bytes | base |
| experts | not written yet | base io |
| kernels | sums | base |
<!-- layers:end -->
"""

GOOD = {
    "ARCHITECTURE.md": TABLE,
    "src/base/ids.h": "#pragma once\n#include <vector>\n",
    "src/io/file.h": '#pragma once\n#include "base/ids.h"\n',
    "src/io/file.cpp": '#include "io/file.h"\n',
    "src/io/CMakeLists.txt": "# DEPENDS kernels\nmoeflux_layer(io\n  SOURCES file.cpp\n  DEPENDS base)\n",
}


def problems_of(changes):
    """The violations in a good tree after `changes`."""
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**GOOD, **changes}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_layers.check(root)


class CheckLayers(unittest.TestCase):
    def expect(self, changes, *messages):
        self.assertEqual(problems_of(changes), list(messages))

    def test_accepts_a_tree_that_follows_the_rules(self):
        self.expect({})

    def test_reports_file_and_line_of_a_forbidden_include(self):
        self.expect(
            {
                "src/experts/cache.h": "#pragma once\n",
                "src/kernels/matvec.cpp": '#include "base/ids.h"\n\n#include "experts/cache.h"\n',
            },
            "src/kernels/matvec.cpp:3: kernels/ may not include experts/ (see ARCHITECTURE.md)",
        )

    def test_refuses_includes_that_are_not_written_from_src(self):
        message = '"{}" is not a file of src/ (includes are written from src/)'
        self.expect(
            {"src/io/file.cpp": '#include "file.h"\n#include "../base/ids.h"\n#include "base/gone.h"\n'},
            "src/io/file.cpp:1: " + message.format("file.h"),
            "src/io/file.cpp:2: " + message.format("../base/ids.h"),
            "src/io/file.cpp:3: " + message.format("base/gone.h"),
        )

    def test_refuses_our_headers_in_angle_brackets(self):
        self.expect(
            {"src/io/file.cpp": "#include <base/ids.h>\n"},
            "src/io/file.cpp:1: <base/ids.h> is ours: write it in quotes",
        )

    def test_requires_a_row_for_every_folder(self):
        self.expect(
            {"src/extra/a.cpp": "int a;\n"}, "src/extra/: has no row in the layer table of ARCHITECTURE.md"
        )

    def test_requires_every_source_in_a_folder(self):
        self.expect({"src/a.cpp": "int a;\n"}, "src/a.cpp: belongs to no folder of src/, so to no layer")

    def test_compares_cmake_with_the_row(self):
        self.expect(
            {"src/io/CMakeLists.txt": "moeflux_layer(io\n  SOURCES a.cpp\n  DEPENDS base\n    kernels\n  LIBRARIES x)\n"},
            "src/io/CMakeLists.txt:4: io/ may not depend on kernels/ (see ARCHITECTURE.md)",
        )

    def test_requires_a_layer_to_be_declared_in_its_own_folder(self):
        self.expect(
            {"src/io/CMakeLists.txt": "moeflux_layer(kernels SOURCES a.cpp)\n"},
            "src/io/CMakeLists.txt:1: declares layer kernels in folder io/",
        )

    def test_refuses_a_cycle_in_the_table(self):
        self.expect(
            {"ARCHITECTURE.md": TABLE.replace("| words | – |", "| words | io |")},
            "ARCHITECTURE.md:5: base/ may include io/, which is not a row above it",
        )

    def test_refuses_a_second_row_and_a_broken_row(self):
        self.expect(
            {"ARCHITECTURE.md": TABLE.replace("| kernels |", "| io | again | base |\n| a | b |\n| kernels |")},
            "ARCHITECTURE.md:8: io/ has a second row",
            "ARCHITECTURE.md:9: a row has 3 columns, this one has 2",
        )

    def test_reports_a_missing_table(self):
        problems = problems_of({"ARCHITECTURE.md": "# nothing\n"})
        self.assertEqual(
            problems[0],
            "ARCHITECTURE.md: has no layer table between <!-- layers:begin --> and <!-- layers:end -->",
        )


if __name__ == "__main__":
    unittest.main()
