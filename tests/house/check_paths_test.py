#!/usr/bin/env python3
"""tools/check_paths.py finds names of files and folders that do not exist, and only those."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_paths  # noqa: E402

TREE = {"src/io/drive/drive.h": "", "src/io/files.h": "", "src/base/files.h": "", "tools/fuzz.sh": "", "README.md": "",
        "docs/README.md": "", "docs/io.md": "", "tests/io/some_test.cpp": "", "tests/fuzz/one_fuzz.cpp": ""}


def problems_of(files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**TREE, **files}.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return check_paths.check(root)


class CheckPaths(unittest.TestCase):
    def expect(self, text, *messages, name="docs/io.md"):
        self.assertEqual(problems_of({name: text}), [f"{name}:{message}" for message in messages])

    def test_accepts_paths_from_the_root_and_from_src_and_names_of_one_file(self):
        self.expect("`src/io/drive/drive.h` `io/drive/drive.h` `drive.h` `src/` `io/drive/` `tests/io` `README.md`")

    def test_accepts_commands_with_paths_in_them(self):
        self.expect("`tools/fuzz.sh 60 NAME`, `src/io/files.h build/moeflux --full`")

    def test_accepts_globs_and_placeholders(self):
        self.expect("`src/io/*_test.cpp`", "1: src/io/*_test.cpp does not exist")
        self.expect("`tests/io/*_test.cpp` `*.h` `tests/fuzz/NAME_fuzz.cpp` `src/FOLDER/drive/drive.h` `src/NAME/`")
        self.expect("`src/*.h`", "1: src/*.h does not exist")

    def test_reports_files_and_folders_that_do_not_exist(self):
        self.expect("\n`io/gone.h` and\n`src/io/gone` `io/gone/` `gone.py` `tools/gone.sh --all`",
                    "2: io/gone.h does not exist", "3: src/io/gone does not exist", "3: io/gone/ does not exist",
                    "3: gone.py does not exist", "3: tools/gone.sh does not exist")

    def test_reports_the_name_of_several_files(self):
        self.expect("`files.h`, but `io/files.h`", "1: files.h is the name of 2 files: add a folder")

    def test_files_of_users_and_other_programs_are_not_ours(self):
        self.expect("`config.json` `model.safetensors` `resident.bin` `build/dev/a.bin` `packed_experts/` `io/layer.bin`\n"
                    "`~/.cache/x.py` `/usr/bin/x.py` `llama.cpp` `.cpp` `io/DIGEST` `a/b` `drive.read()` `x = y.c + 1`")

    def test_code_blocks_and_the_changelog_are_exempt(self):
        self.expect("```\n`io/gone.h`\n```\n")
        self.expect("`io/gone.h`", name="CHANGELOG.md")

    def test_reports_links_to_missing_files(self):
        self.expect("[a](../README.md#part) [b](README.md) [c](https://example.org/x) [d](mailto:a@example.org) [e](#f)\n"
                    "[g](../gone.md)", "2: a link to a file that does not exist (../gone.md)")

    def test_reports_paths_in_comments(self):
        self.expect('#include "io/gone.h"\n// See io/gone.h, drive/drive.h and docs/io.md.\nauto a = "io/gone.h";',
                    "2: io/gone.h does not exist", name="src/io/a.cpp")

    def test_other_words_in_comments_are_not_paths(self):
        self.expect("// made_by_cmake.cpp, <fmt/format.h>, https://example.org/a.h, a/b.cpp.in, /etc/a.sh",
                    name="src/io/a.cpp")

    def test_this_repository_has_no_violation(self):
        self.assertEqual(check_paths.check(ROOT), [])


if __name__ == "__main__":
    unittest.main()
