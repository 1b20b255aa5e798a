"""What the checkers of a tree share: --root, one line a problem, exit 1 if there is any."""

import argparse
import pathlib


def main(check, description):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    problems = check(parser.parse_args().root)
    for problem in problems:
        print(problem)
    return 1 if problems else 0
