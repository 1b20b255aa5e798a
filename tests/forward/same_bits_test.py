#!/usr/bin/env python3
"""same_bits_test.py PROGRAM [--full]: every golden is matched, with the same bits in every way of computing.

For each golden of tests/goldens, PROGRAM packs the checkpoint and evaluates it. Logits, greedy ids, the
hidden states of every layer and the choice of every router match transformers, and all instruction sets,
chunks, threads and batches give one hash of all logits. Options are changed one at a time. The long goldens
get a few of them, or all with --full.
"""

import pathlib
import sys
import tempfile
import time
from typing import Union

from program import ISAS, Program
from reference64 import TINY, goldens, read_golden

# Of logits: tests/goldens/README.md.
MAX_ERROR, MAX_ERROR_LONG = 5e-4, 1e-3
MAX_HIDDEN_ERROR, MAX_WEIGHT_ERROR = 1e-4, 1e-5  # of one layer, given the reference's input

Options = tuple[Union[str, int], ...]
ONE_AT_A_TIME: list[Options] = [
    *(("--isa", isa) for isa in ISAS),
    *(("--chunk", count) for count in (1, 7, 256, 1000)),
    *(("--threads", count) for count in (1, 2)),
    *(("--batch", count) for count in (1, 5)),
]
ENOUGH_OF_LONG: list[Options] = [("--chunk", 256, "--isa", "avx2"), ("--chunk", 1000, "--threads", 2)]


def bits_to_pack(checkpoint: pathlib.Path) -> Union[int, None]:
    return 16 if checkpoint.name.endswith("-bf16") else None


def isas_that_run(program: Program, folder: pathlib.Path) -> list[str]:
    checkpoint = TINY / "deepseekv3-tiny-mlx4"
    program.pack(checkpoint, folder / "for-isas")
    return program.isas(folder / "for-isas", checkpoint / "golden.safetensors")


def check_layers(found: dict, golden: dict) -> str:
    if "hidden_states" not in golden:
        return "no layers"
    layers = {layer["layer"]: layer for layer in found["layers"]}
    largest_hidden = largest_weight = 0.0
    for number in range(len(golden["hidden_states"]) - 1):
        layer = layers[number]
        hidden, weight = layer["max_hidden_error"], layer["max_router_weight_error"]
        assert hidden <= MAX_HIDDEN_ERROR, f"layer {number}: hidden states differ by {hidden:.1e}"
        largest_hidden = max(largest_hidden, hidden)
        if f"layer.{number}.router.0" in golden:
            assert layer["router_ids_equal"] is True, f"layer {number}: other experts"
            assert weight <= MAX_WEIGHT_ERROR, f"layer {number}: router weights differ by {weight:.1e}"
            largest_weight = max(largest_weight, weight)
        else:
            assert layer["router_ids_equal"] is None and weight is None, f"layer {number}: {layer}"
    return f"hidden {largest_hidden:.1e}, router weights {largest_weight:.1e}"


def check_golden(program: Program, checkpoint: pathlib.Path, golden_path: pathlib.Path,
                 isas: list[str], full: bool, packed: pathlib.Path) -> str:
    golden = read_golden(golden_path)
    is_long = "logit_positions" in golden
    program.pack(checkpoint, packed, bits_to_pack(checkpoint))
    limit = ("--max-error", MAX_ERROR_LONG if is_long else MAX_ERROR)
    greedy = True if "greedy_ids" in golden else None

    def evaluate(*options: Union[str, int]) -> dict:
        found = program.evaluate(packed, golden_path, *limit, *options)
        words, error = " ".join(map(str, options)) or "without options", found["max_logit_error"]
        assert error <= limit[1], f"{words}: logits differ by {error:.1e}"
        assert found["top1_agreement"] == 1, f"{words}: {found['top1_agreement']} of the best tokens agree"
        assert found["greedy_match"] is greedy, f"{words}: greedy_match is {found['greedy_match']}"
        return found

    first = evaluate()
    assert is_long or first["positions"] == len(golden["logits"]), f"{first['positions']} positions"
    layers = "no layers"
    if "hidden_states" in golden:
        with_layers = evaluate("--layers")
        layers = check_layers(with_layers, golden)
        assert with_layers["logits_xxh3"] == first["logits_xxh3"], "--layers: other bits"
    skipped = {isa for isa in ISAS if isa not in isas}
    variants = ENOUGH_OF_LONG if is_long and not full else ONE_AT_A_TIME
    variants = [options for options in variants if not skipped & set(options)]
    for options in variants:
        found = evaluate(*options)
        assert found["logits_xxh3"] == first["logits_xxh3"], f"{' '.join(map(str, options))}: other bits"
    return (f"logits {first['max_logit_error']:.1e}, {layers}, the same bits in {len(variants) + 1} ways; "
            + check_fast(program, packed, golden_path, variants))


def check_fast(program: Program, packed: pathlib.Path, golden: pathlib.Path, variants: list[Options]) -> str:
    """`fast` also gives one hash, over bytes as well. Its distance from exact means little here, because
    untrained routers are nearly undecided."""
    def evaluate(*options: Union[str, int]) -> dict:
        return program.evaluate(packed, golden, "--max-error", 1000, "--precision", "fast", *options)

    said = []
    for kv in ("f32", "int8"):
        first = evaluate("--kv", kv)
        for options in variants:
            found = evaluate("--kv", kv, *options)
            assert found["logits_xxh3"] == first["logits_xxh3"], \
                f"fast, {kv}, {' '.join(map(str, options))}: other bits"
        said.append(f"fast, {kv}: {first['max_logit_error']:.1e}")
    return ", ".join(said)


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--full"]
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    program, failed = Program(arguments[0]), 0
    with tempfile.TemporaryDirectory(prefix="same-bits-test-") as name:
        isas = isas_that_run(program, pathlib.Path(name))
        print(f"this processor runs {', '.join(isas)}", flush=True)
        for checkpoint, golden in goldens():
            began, packed = time.monotonic(), pathlib.Path(name, checkpoint.name)
            try:
                said = check_golden(program, checkpoint, golden, isas, "--full" in sys.argv, packed)
                print(f"ok      {checkpoint.name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAILED  {checkpoint.name}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
