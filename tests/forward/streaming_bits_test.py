#!/usr/bin/env python3
"""streaming_bits_test.py PROGRAM [--full]: streamed experts produce the same bits as experts in memory.

For each golden of tests/goldens there is one hash of all logits, for every drive, at budgets of all experts,
half of them, a tenth and one record, with and without prefetching, on one thread and two, alone and in a
batch of five, exact and fast. Each drive and budget is tested with one choice of the other options, or with
all of them with --full. Of the long goldens only every fifth choice is tested, or with --full one each.
"""

import itertools
import json
import pathlib
import sys
import tempfile
import time

from program import Program
from reference64 import goldens
from same_bits_test import bits_to_pack

DRIVES = ("uring", "pread", "buffered", "sim:16G,2us")
BUDGETS = ("all", "half", "a tenth", "one record")
OTHERS = list(itertools.product(("previous", "off"), (1, 2), (1, 5)))  # prefetch, threads, batch
PRECISIONS = ("exact", "fast")
SHARES = {"all": 1.0, "half": 0.5, "a tenth": 0.1}


def sizes_of(packed: pathlib.Path) -> tuple[int, int]:
    """All records together, and one of every size."""
    records = [record for layer in json.loads((packed / "manifest.json").read_text())["experts"]
               for record in layer["records"]]
    by_format = {record[0]: record[2] for record in records}  # format, offset, bytes, checksum
    return sum(record[2] for record in records), sum(by_format.values())


def combinations(full: bool, is_long: bool):
    for number, (drive, budget) in enumerate(itertools.product(DRIVES, BUDGETS)):
        if is_long and not full and number % 5 != 0:
            continue
        # 3 and 8 have no common divisor: neighbors differ in every option, and all choices occur.
        chosen = OTHERS if full and not is_long else [OTHERS[3 * number % len(OTHERS)]]
        for prefetch, threads, batch in chosen:
            for precision in PRECISIONS if full else (PRECISIONS[(number + number // len(BUDGETS)) % 2],):
                yield drive, budget, prefetch, threads, batch, precision


def check_golden(program: Program, checkpoint: pathlib.Path, golden: pathlib.Path, packed: pathlib.Path,
                 full: bool) -> str:
    program.pack(checkpoint, packed, bits_to_pack(checkpoint))
    all_bytes, one_record = sizes_of(packed)
    resident = {precision: program.evaluate(packed, golden, "--prefetch", "off", "--precision", precision)["logits_xxh3"]
                for precision in PRECISIONS}
    count = 0
    for drive, budget, prefetch, threads, batch, precision in combinations(full, "-long-" in checkpoint.name):
        size = one_record if budget == "one record" else max(one_record, int(all_bytes * SHARES[budget]))
        options = ("--io", drive, "--expert-cache", size, "--prefetch", prefetch, "--threads", threads, "--batch", batch,
                   "--verify-reads", "--precision", precision)
        found = program.evaluate(packed, golden, *options)
        assert found["logits_xxh3"] == resident[precision], f"{' '.join(map(str, options))}: other bits"
        count += 1
    return f"{all_bytes / one_record:.0f} records, the same bits in {count} ways"


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--full"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    program, failed = Program(arguments[0]), 0
    with tempfile.TemporaryDirectory(prefix="streaming-bits-test-") as name:
        for checkpoint, golden in goldens():
            began, packed = time.monotonic(), pathlib.Path(name, checkpoint.name)
            try:
                said = check_golden(program, checkpoint, golden, packed, "--full" in sys.argv)
                print(f"ok      {checkpoint.name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAILED  {checkpoint.name}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
