#!/usr/bin/env python3
"""Checks that code compiled for one instruction set stays in its own object files.

  tools/check_isa_objects.py BUILD_DIR

The linker keeps one copy of a weak symbol, such as an inline function of the standard library, for the
whole program. A copy from a file compiled with -mavx512f would crash on processors without AVX-512. So the
generated files of src/kernels for an instruction set (isa/FAMILY_NAME.cpp) define no weak symbol of ours or
of the standard library, and nothing global but their table of kernels.

Prints one line per violation, "object: what", and exits 1 if there is any, or if there are no such objects.
"""

import argparse
import pathlib
import re
import subprocess
import sys

FOLDER = "isa"  # of the generated files, by src/kernels/CMakeLists.txt
TABLE = re.compile(r"moeflux::k(?!Scalar)[A-Z]\w+$")
# Compilers add these to code that an exception could leave: a pointer and, in clang, a call of terminate.
HARMLESS_WEAK = re.compile(r"DW\.ref\.__gxx_personality_v0$|__clang_call_terminate$")
WEAK = set("WVu")


def violations(symbols):
    """The violations in the output of `nm -C` of one object file, one line each."""
    for line in symbols.splitlines():
        # "0000000000000000 W std::sort(...)"; undefined symbols have no address and define nothing.
        match = re.match(r"[0-9a-f]+ (\w) (.+)$", line)
        if not match or match[1].islower() and match[1] not in WEAK:
            continue
        kind, name = match[1], match[2]
        if kind in WEAK:
            if not HARMLESS_WEAK.match(name):
                yield f"defines {name}, weakly: the linker may use it in files for other processors"
        elif not TABLE.match(name):
            yield f"defines {name}, globally: only tables of kernels may be visible outside"


def check(build):
    """Every violation in the object files of src/kernels under `build`."""
    objects = sorted((build / "src" / "kernels").rglob(f"{FOLDER}/*.o"))
    if not objects:
        return [f"{build}: has no object files of kernels for an instruction set; is it a build directory?"]
    problems = []
    for path in objects:
        symbols = subprocess.run(["nm", "-C", str(path)], capture_output=True, text=True, check=True).stdout
        problems += [f"{path.name}: {what}" for what in violations(symbols)]
        if not re.search(r"^[0-9a-f]+ \w moeflux::k[A-Z]\w+$", symbols, re.M):
            problems.append(f"{path.name}: defines no table of kernels")
    return problems


def main():
    parser = argparse.ArgumentParser(description="Checks the object files of each instruction set.")
    parser.add_argument("build", type=pathlib.Path, help="a build directory, such as build/dev")
    problems = check(parser.parse_args().build)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
