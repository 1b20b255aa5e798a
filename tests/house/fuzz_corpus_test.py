#!/usr/bin/env python3
"""tools/fuzz_corpus.py packs seeds reproducibly, and every fuzz target has an archive that it can read."""

import hashlib
import pathlib
import re
import sys
import tarfile
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import fuzz_corpus  # noqa: E402

FUZZ = ROOT / "tests" / "fuzz"


class FuzzCorpus(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.folder = pathlib.Path(scratch.name)

    def write(self, name, seeds):
        folder = self.folder / name
        folder.mkdir()
        for seed, data in seeds:
            (folder / seed).write_bytes(data)
        return folder

    def test_unpacks_what_it_packed(self):
        seeds = self.write("seeds", [("b", b""), ("a", bytes(range(256)) * 40), ("name.json", b"{}")])
        fuzz_corpus.pack("target", seeds, self.folder)
        fuzz_corpus.unpack("target", self.folder / "new" / "folder", self.folder)
        self.assertEqual({path.name: path.read_bytes() for path in (self.folder / "new" / "folder").iterdir()},
                         {path.name: path.read_bytes() for path in seeds.iterdir()})

    def test_the_same_seeds_give_the_same_archive(self):
        one = self.write("one", [("a", b"1"), ("b", b"2")])
        other = self.write("other", [("b", b"2"), ("a", b"1")])
        (other / "a").chmod(0o600)
        fuzz_corpus.pack("first", one, self.folder)
        fuzz_corpus.pack("second", other, self.folder)
        digests = [hashlib.sha256((self.folder / f"{name}.tar.xz").read_bytes()).hexdigest() for name in ("first", "second")]
        self.assertEqual(digests[0], digests[1])

    def test_a_target_without_an_archive_has_no_seeds(self):
        fuzz_corpus.unpack("target", self.folder / "seeds", self.folder)
        self.assertEqual(list((self.folder / "seeds").iterdir()), [])

    def test_refuses_members_outside_of_the_folder(self):
        for name, kind in (("../a", tarfile.REGTYPE), ("a/b", tarfile.REGTYPE), ("link", tarfile.SYMTYPE)):
            with tarfile.open(self.folder / "bad.tar.xz", "w:xz") as tar:
                member = tarfile.TarInfo(name)
                member.type = kind
                tar.addfile(member)
            with self.subTest(name), self.assertRaisesRegex(ValueError, re.escape(f"'{name}'")):
                fuzz_corpus.unpack("bad", self.folder / "seeds", self.folder)

    def test_every_target_has_one_archive_with_plain_members(self):
        targets = set(re.findall(r"^moeflux_fuzz\((\w+)\)", (FUZZ / "CMakeLists.txt").read_text(encoding="utf-8"), re.M))
        self.assertEqual({f"{name}.tar.xz" for name in targets}, {path.name for path in (FUZZ / "corpus").iterdir()})
        for name in sorted(targets):
            with self.subTest(name), tarfile.open(fuzz_corpus.archive_of(name), "r:xz") as tar:
                members = tar.getmembers()
                self.assertTrue(members)
                self.assertEqual([member.name for member in members], sorted(member.name for member in members))
                self.assertEqual({(m.isreg(), m.mtime, m.uid, m.gid, m.mode) for m in members}, {(True, 0, 0, 0, 0o644)})


if __name__ == "__main__":
    unittest.main()
