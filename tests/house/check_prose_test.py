#!/usr/bin/env python3
"""tools/check_prose.py finds long lines and banned phrases in prose, and leaves code alone."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_prose  # noqa: E402

LONG = "word " * 22 + "a"  # 111 columns


class CheckProse(unittest.TestCase):
    def expect(self, files, *messages, not_yet_clean=()):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for name, text in files.items():
                path = root / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text, encoding="utf-8")
            self.assertEqual(check_prose.check(root, not_yet_clean), list(messages))

    def test_limits_comments_to_110_columns(self):
        code = "int a = 1;" + " " * 99
        self.expect(
            {"src/base/a.cpp": f"// {LONG}\n{code}//\n{code}// \n{code}//.\n"},
            "src/base/a.cpp:1: a comment goes to column 114, the limit is 110",
            "src/base/a.cpp:2: a comment goes to column 111, the limit is 110",
            "src/base/a.cpp:3: a comment goes to column 111, the limit is 110",
            "src/base/a.cpp:4: a comment goes to column 112, the limit is 110",
        )

    def test_lets_code_and_strings_be_long(self):
        self.expect({"src/base/a.cpp": f'auto a = "// {LONG}";  \nint b = {" + ".join(["1"] * 50)};\n'})

    def test_limits_markdown_to_110_columns_but_not_tables_code_and_links(self):
        self.expect(
            {"docs/a.md": f"| {LONG} |\n```\n{LONG}\n```\n- https://example.org/{'a' * 110}\n{LONG}\n"},
            "docs/a.md:6: 111 columns of prose, the limit is 110",
        )

    def test_finds_phrases_in_comments_of_every_language(self):
        self.expect(
            {
                "src/base/a.h": "#pragma once\n// A buffer that nobody owns.\n",
                "src/base/a.cu": "/* Whoever\n   holds it. */\n",
                "tools/a.py": '"""Called once a layer."""\n\n\ndef f():\n    """Asks ahead."""\n    return 1  # so many\n',
                "tools/a.sh": "set -e\n# Somebody's turn.\n",
                "CMakeLists.txt": 'set(A "b # nobody")  # it is told\n',
                "docs/a.md": "| 4 bytes a token |\n",
            },
            "CMakeLists.txt:1: 'is told': say what is passed, returned or reported",
            "docs/a.md:1: 'bytes a token': write 'per'",
            "src/base/a.cu:1: 'Whoever': name the part of the program or the user",
            "src/base/a.h:2: 'nobody': name the part of the program or the user",
            "tools/a.py:1: 'once a layer': write 'per'",
            "tools/a.py:5: 'Asks ahead': write 'prefetch'",
            "tools/a.py:6: 'so many': name the quantity",
            "tools/a.sh:2: 'Somebody': name the part of the program or the user",
        )

    def test_finds_a_phrase_across_a_line_break(self):
        self.expect(
            {"src/base/a.h": "  // Reserves so\n  // many rows.\n", "docs/a.md": "Two rows a\ntoken.\n\nSo\n\nmany.\n"},
            "docs/a.md:1: 'rows a token': write 'per'",
            "src/base/a.h:1: 'so many': name the quantity",
        )

    def test_ignores_code_strings_and_data(self):
        self.expect(
            {
                "src/base/a.cpp": 'auto nobody = "so many";\n',
                "tools/a.py": 'somebody = ["nobody",\n    "so many"]\n',
                "docs/a.md": "```\nso many\n```\n`nobody` is a name.\n",
                "models/README.md": f"so many {LONG}\n",
                "src/base/a.bin": "so many",
            }
        )

    def test_exempts_folders_that_are_not_yet_clean_and_only_those(self):
        self.expect(
            {"src/base/a.h": "// so many\n", "src/basement/a.h": "// so many\n", "README.md": "so many\n"},
            "src/basement/a.h:1: 'so many': name the quantity",
            not_yet_clean=["src/base", "README.md"],
        )

    def test_refuses_an_exemption_that_is_no_longer_needed(self):
        self.expect({"src/base/a.h": "// clean\n"},
                    "tools/check_prose.py: src/base is clean: remove it from NOT_YET_CLEAN", not_yet_clean=["src/base"])


if __name__ == "__main__":
    unittest.main()
