#!/usr/bin/env python3
"""hashes_test.py PROGRAM [--write]: the bits of every golden are those of the recorded hashes.

tests/goldens/logits_xxh3.txt has one line per golden, precision and dtype of keys and values, with the hash
of all logits. A difference means that the law of arithmetic changed, on purpose or not. After a change on
purpose, raise kLawVersion, record the hashes again with --write, and say so in docs/arithmetic.md.
"""

import pathlib
import sys
import tempfile

from program import Program
from reference64 import ROOT, goldens
from same_bits_test import bits_to_pack

RECORDED = ROOT / "tests" / "goldens" / "logits_xxh3.txt"
PRECISIONS, DTYPES = ("exact", "fast"), ("f32", "bf16", "int8")
Hashes = dict[tuple[str, str, str], str]  # by model, precision and dtype


def compute(program: Program) -> Hashes:
    found: Hashes = {}
    with tempfile.TemporaryDirectory(prefix="hashes-test-") as folder:
        for checkpoint, golden in goldens():
            packed = pathlib.Path(folder, checkpoint.name)
            program.pack(checkpoint, packed, bits_to_pack(checkpoint))
            for precision in PRECISIONS:
                for dtype in DTYPES:
                    said = program.evaluate(packed, golden, "--precision", precision, "--kv", dtype)
                    found[checkpoint.name, precision, dtype] = said["logits_xxh3"]
    return found


def read(path: pathlib.Path) -> Hashes:
    recorded: Hashes = {}
    for line in path.read_text().splitlines():
        model, precision, dtype, digest = line.split()
        recorded[model, precision, dtype] = digest
    return recorded


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--write"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    found = compute(Program(arguments[0]))
    if "--write" in sys.argv:
        RECORDED.write_text("".join(f"{' '.join(key)} {digest}\n" for key, digest in found.items()))
        return 0
    recorded = read(RECORDED)
    different = sorted(key for key in found.keys() | recorded.keys() if found.get(key) != recorded.get(key))
    for key in different:
        print(f"FAILED  {' '.join(key)}: expected {recorded.get(key)}, found {found.get(key)}")
    print(f"{len(found) - len(different)} of {len(found)} hashes are as recorded")
    return 1 if different or not found else 0


if __name__ == "__main__":
    sys.exit(main())
