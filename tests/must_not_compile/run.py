#!/usr/bin/env python3
"""Runs one case that must not compile.

  run.py --compiler g++ --include src CASE.cpp

A case begins with "// expect: REGEX". With -DFIXED it must compile: then the mistake, and nothing else, is
what breaks it. Without, the compiler must refuse it with a message that REGEX is found in.
"""

import argparse
import os
import pathlib
import re
import subprocess
import sys

FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror"]
EXPECT = re.compile(r"// expect: (.+)")


def compile_case(compiler, flags, case):
    """Whether it compiled, and the output of the compiler, in English."""
    done = subprocess.run(
        [*compiler.split(), *FLAGS, *flags, str(case)],
        capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )
    return done.returncode == 0, done.stdout + done.stderr


def check(compiler, includes, case):
    """The violation of the case, or None."""
    expected = EXPECT.match(case.read_text(encoding="utf-8").splitlines()[0])
    if not expected:
        return f"{case.name}: the first line is not '// expect: REGEX'"
    flags = [f"-I{folder}" for folder in includes]
    compiled, said = compile_case(compiler, [*flags, "-DFIXED"], case)
    if not compiled:
        return f"{case.name}: does not compile with -DFIXED either, so it shows nothing:\n{said}"
    compiled, said = compile_case(compiler, flags, case)
    if compiled:
        return f"{case.name}: compiles, and must not"
    if not re.search(expected[1], said):
        return f"{case.name}: is refused, but not for '{expected[1]}':\n{said}"
    return None


def main():
    parser = argparse.ArgumentParser(description="Checks that a case does not compile.")
    parser.add_argument("--compiler", required=True)
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("case", type=pathlib.Path)
    arguments = parser.parse_args()
    problem = check(arguments.compiler, arguments.include, arguments.case)
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
