#!/usr/bin/env python3
"""tools/check_isa_objects.py finds the symbols that an object file exports."""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))
import check_isa_objects  # noqa: E402


class CheckIsaObjects(unittest.TestCase):
    def expect(self, symbols, *messages):
        self.assertEqual(list(check_isa_objects.violations(symbols)), list(messages))

    def test_accepts_tables_and_local_symbols(self):
        self.expect(
            "0000000000000000 D moeflux::kAvx512Matmul\n"
            "0000000000000060 R moeflux::kAvx2Rows\n"
            "0000000000000000 t moeflux::(anonymous namespace)::multiply(moeflux::MatmulArgs const&)\n"
            "0000000000000000 r .LC0\n"
            "                 U memcpy\n"
            "                 w __gmon_start__\n"
            "0000000000000000 V DW.ref.__gxx_personality_v0\n"
            "0000000000000000 W __clang_call_terminate\n"
        )

    def test_finds_weak_symbols_of_ours_and_of_the_standard_library(self):
        self.expect(
            "0000000000000000 W int const& std::min<int>(int const&, int const&)\n"
            "0000000000000000 W moeflux::law::exp(float)\n"
            "0000000000000000 u moeflux::counter()::value\n",
            "defines int const& std::min<int>(int const&, int const&), weakly: "
            "the linker may use it in files for other processors",
            "defines moeflux::law::exp(float), weakly: the linker may use it in files for other processors",
            "defines moeflux::counter()::value, weakly: the linker may use it in files for other processors",
        )

    def test_finds_global_functions(self):
        self.expect(
            "0000000000000010 T moeflux::multiply(moeflux::MatmulArgs const&)\n",
            "defines moeflux::multiply(moeflux::MatmulArgs const&), globally: "
            "only tables of kernels may be visible outside",
        )

    def test_refuses_a_directory_without_objects(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assertEqual(len(check_isa_objects.check(pathlib.Path(folder))), 1)


if __name__ == "__main__":
    unittest.main()
