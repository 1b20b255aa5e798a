#!/usr/bin/env python3
"""tests/must_not_compile/run.py distinguishes a refused mistake from a case that proves nothing."""

import argparse
import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "must_not_compile"))
import run  # noqa: E402

COMPILER = "c++"
MISTAKE = "#ifndef FIXED\nint x = unknown_name;\n#endif\n"


class MustNotCompile(unittest.TestCase):
    def verdict(self, text):
        with tempfile.TemporaryDirectory() as folder:
            case = pathlib.Path(folder, "case.cpp")
            case.write_text(text, encoding="utf-8")
            return run.check(COMPILER, [], case)

    def test_accepts_a_mistake_refused_for_the_expected_reason(self):
        self.assertIsNone(self.verdict("// expect: unknown_name\n" + MISTAKE))

    def test_requires_an_expected_reason(self):
        self.assertIn("the first line is not", self.verdict(MISTAKE))

    def test_refuses_another_reason(self):
        self.assertIn("is refused, but not for 'narrowing'", self.verdict("// expect: narrowing\n" + MISTAKE))

    def test_reports_a_mistake_that_compiles(self):
        self.assertIn("compiles, and must not", self.verdict("// expect: unknown_name\nint x = 1;\n"))

    def test_reports_a_case_that_never_compiles(self):
        self.assertIn("does not compile with -DFIXED either", self.verdict("// expect: x\nint x = unknown_name;\n"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--compiler", default=COMPILER)
    arguments, rest = parser.parse_known_args()
    COMPILER = arguments.compiler
    unittest.main(argv=[sys.argv[0], *rest])
