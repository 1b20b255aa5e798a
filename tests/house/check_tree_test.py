#!/usr/bin/env python3
"""tools/check_tree.py finds each kind of violation and reports its place."""

import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_tree  # noqa: E402

HEADER = "#pragma once\n// What it is.\n"


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


class CheckTree(unittest.TestCase):
    def expect(self, files, *messages):
        with tempfile.TemporaryDirectory() as folder:
            write(pathlib.Path(folder), files)
            self.assertEqual(check_tree.check(pathlib.Path(folder)), list(messages))

    def test_accepts_a_tree_that_follows_the_rules(self):
        self.expect(
            {
                "src/base/a.h": HEADER,
                "src/base/check.cpp": 'void f() { std::fprintf(stderr, "x"); std::abort(); }\n',
                "src/cli/main.cpp": '#include <iostream>\nint main() { return getenv("A") ? 1 : 0; }\n',
                "src/io/a_test.cpp": 'TEST(A, B) { GTEST_SKIP() << "no disk"; }\n',
                "docs/a.md": "[web](https://example.org/home/x)\n",
                "build/dev/junk.cpp": "abort();\n",
            }
        )

    def test_limits_the_size_of_the_tree(self):
        with mock.patch.object(check_tree, "TREE_LIMIT_BYTES", 2 * 2**20):
            self.expect({"models/a.bin": "x" * 2**20, "b.txt": "x" * 2**20},
                        "the tree holds 2.0 MiB, the limit is 2 MiB")
            self.expect({"models/a.bin": "x" * 2**20, "b.txt": "x" * (2**20 - 1)})

    def test_limits_the_length_of_a_source_file(self):
        self.expect(
            {"src/base/a.cpp": "\n" * 801, "src/base/b.cpp": "\n" * 800, "models/long.py": "\n" * 801},
            "src/base/a.cpp: 801 lines, the limit is 800: split it",
        )

    def test_refuses_disabled_and_unexplained_skipped_tests(self):
        self.expect(
            {"src/io/a_test.cpp": "\nTEST(A, DISABLED_B) {}\nTEST(A, C) { GTEST_SKIP(); }\n// DISABLED_D\n"},
            "src/io/a_test.cpp:2: DISABLED_B is disabled: repair it or remove it",
            "src/io/a_test.cpp:3: GTEST_SKIP() does not say why",
        )

    def test_refuses_printing_and_exits_in_the_library(self):
        self.expect(
            {
                "src/io/a.cpp": "#include <iostream>\nvoid f() {\n  std::printf(\"x\");\n  getenv(\"A\");\n"
                "  std::exit(1);\n  abort();\n  // abort()\n  say(\"exit(1)\");\n  queue_exit(1);\n  x.exit(2);\n}\n"
            },
            "src/io/a.cpp:1: <iostream> is for src/cli/ only",
            "src/io/a.cpp:3: printing is for src/cli/ only",
            "src/io/a.cpp:4: getenv is for src/cli/ only",
            "src/io/a.cpp:5: ending the process is for src/cli/ only",
            "src/io/a.cpp:6: ending the process is for src/cli/ only",
        )

    def test_ignores_comments_and_literals(self):
        self.expect({"src/io/a.cpp": "auto a = 1'000; auto b = '\"'; auto c = R\"(\")\"; /* \" */ void f();\n"})
        self.expect(
            {"src/io/a.cpp": "auto a = 1'000; auto b = '\"'; abort(); // \"\n"},
            "src/io/a.cpp:1: ending the process is for src/cli/ only",
        )

    def test_requires_a_guard_and_a_comment_in_headers(self):
        self.expect(
            {"src/base/a.h": "// What.\n", "src/base/b.h": "#pragma once\n#include <span>\n", "src/base/c.h": ""},
            "src/base/a.h: has no #pragma once",
            "src/base/b.h: does not begin with a comment that says what it is",
            "src/base/c.h: has no #pragma once",
            "src/base/c.h: does not begin with a comment that says what it is",
        )

    def test_refuses_paths_of_a_particular_machine(self):
        home = "/" + "home/someone/model"
        self.expect(
            {"docs/a.md": f"\nsee {home}\n", "src/base/a.cpp": f'auto a = "{home}";\n', "models/config.json": home},
            "docs/a.md:2: a path of a particular machine (/" + "home/s…)",
            "src/base/a.cpp:1: a path of a particular machine (/" + "home/s…)",
        )

    def test_checks_what_git_tracks_or_would_track(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            write(root, {".gitignore": "/out/\n", "out/a.h": "", "src/base/a.h": "// What.\n", "gone.md": ""})
            for command in (["init", "-q"], ["add", "gone.md"]):
                subprocess.run(["git", "-C", folder, *command], check=True)
            (root / "gone.md").unlink()
            self.assertEqual(check_tree.check(root), ["src/base/a.h: has no #pragma once"])


if __name__ == "__main__":
    unittest.main()
