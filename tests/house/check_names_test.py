#!/usr/bin/env python3
"""tools/check_names.py finds types that share a name, and only those."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_names  # noqa: E402


def problems_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in files.items():
            path = root / "src" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_names.check(root)


def within(namespace, text):
    return f"namespace {namespace} {{\n{text}\n}}  // namespace {namespace}\n"


class CheckNames(unittest.TestCase):
    def test_finds_the_same_name_in_two_files(self):
        for text in ("struct Part {\n};", "class Part final : public Whole {\n};", "enum class Part { a };",
                     "struct Part : Whole {\n};"):
            files = {"engine/a.h": within("moeflux", "struct Part {\n};"), "text/b.h": within("moeflux", text)}
            self.assertEqual(problems_of(files), ["src/text/b.h:2: moeflux::Part is also defined at src/engine/a.h:2"])

    def test_source_files_count_too(self):
        files = {"a/a.h": within("moeflux", "struct Part {\n};"), "b/b.cpp": within("moeflux", "struct Part {\n};")}
        self.assertEqual(len(problems_of(files)), 1)

    def test_other_namespaces_may_repeat_a_name(self):
        files = {"a/a.h": within("moeflux", "struct Part {\n};"), "b/b.h": within("moeflux::cli", "struct Part {\n};"),
                 "c/c.cpp": "namespace moeflux {\nnamespace {\nstruct Part {\n};\n}  // namespace\n}  // namespace moeflux\n"}
        self.assertEqual(problems_of(files), [])

    def test_declarations_and_nested_types_do_not_count(self):
        files = {"a/a.h": within("moeflux", "struct Part {\n};"),
                 "b/b.h": within("moeflux", "struct Part;\nclass Whole {\n  struct Part {\n  };\n};")}
        self.assertEqual(problems_of(files), [])

    def test_names_after_an_anonymous_namespace_count(self):
        text = "namespace moeflux {\nnamespace {\nstruct A {\n};\n}  // namespace\nstruct B {\n};\n}  // namespace moeflux\n"
        self.assertEqual(len(problems_of({"a/a.cpp": text, "b/b.h": within("moeflux", "struct B {\n};")})), 1)

    def test_this_repository_has_no_violation(self):
        self.assertEqual(check_names.check(ROOT), [])


if __name__ == "__main__":
    unittest.main()
