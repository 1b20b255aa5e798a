#!/usr/bin/env python3
"""quantizer_test.py TOOL: pack quantizes BF16 numbers by MLX's rule, bit for bit.

TOOL is quantize_dump. Its output is compared with the rule in numpy (tests/source/checkpoint_writer.py, which
shares no code with src/) over groups of every kind, and with the 4-bit goldens, which the reference wrote:
quantizing the matrices of a BF16 golden must give those of its 4-bit counterpart.
"""

import json
import pathlib
import subprocess
import sys
from typing import Callable

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "source"))

import reference_reader  # noqa: E402
from checkpoint_writer import quantize, rounded, to_bf16  # noqa: E402
from layouts import Plan, mlx  # noqa: E402
from model_states import DEEPSEEK, GOLDENS, QWEN, load_golden  # noqa: E402

Parts = tuple[np.ndarray, np.ndarray, np.ndarray]  # words of codes, scales and biases as BF16 words


def tool_parts(tool: str, words: np.ndarray, bits: int, group: int) -> Parts:
    """words: [rows, cols] BF16."""
    rows, cols = words.shape
    command = [tool, str(bits), str(group), str(cols)]
    child = subprocess.run(command, input=words.astype("<u2").tobytes(), capture_output=True, check=False)
    assert child.returncode == 0 and not child.stderr, f"exit {child.returncode}: {child.stderr.decode()}"
    sizes = rows * cols * bits // 8, rows * (cols // group) * 2, rows * (cols // group) * 2
    assert len(child.stdout) == sum(sizes), f"{len(child.stdout)} bytes, expected {sum(sizes)}"
    codes, scales, biases = np.split(np.frombuffer(child.stdout, "u1"), np.cumsum(sizes)[:-1])
    return (codes.view("<u4").reshape(rows, -1), scales.view("<u2").reshape(rows, -1),
            biases.view("<u2").reshape(rows, -1))


def numpy_parts(words: np.ndarray, bits: int, group: int) -> Parts:
    numbers = (words.astype("<u4") << 16).view("<f4")
    with np.errstate(all="ignore"):
        codes, scales, biases = quantize(numbers, bits, group)
    return codes.array, scales.array, biases.array


def compare(found: Parts, expected: Parts) -> None:
    for what, one, other in zip(("codes", "scales", "biases"), found, expected):
        assert one.shape == other.shape, f"{what}: {one.shape}, expected {other.shape}"
        same = one == other
        assert same.all(), (
            f"{(~same).sum()} of {same.size} words of {what} differ, the first at {np.argwhere(~same)[0]}: "
            f"{one[~same][0]:#x}, expected {other[~same][0]:#x}")


def wide_exponents(random: np.random.Generator, rows: int, cols: int, low: int, high: int) -> np.ndarray:
    """BF16 words of either sign whose exponents are spread over [low, high)."""
    fields = random.integers(0, 2, (rows, cols)) << 15 | random.integers(low, high, (rows, cols)) << 7
    return (fields | random.integers(0, 128, (rows, cols))).astype("<u2")


def kinds(random: np.random.Generator, rows: int, cols: int) -> dict[str, np.ndarray]:
    """[rows, cols] BF16 words: groups of every kind."""
    normal = random.standard_normal((rows, cols), "<f4")
    each_row = np.float32(10) ** random.uniform(-7, 4, (rows, 1)).astype("<f4")
    outlier = normal * np.float32(0.02)
    outlier[np.arange(rows), random.integers(0, cols, rows)] *= np.float32(3000)
    sparse = np.where(random.random((rows, cols)) < 0.9, np.float32(0), normal)
    few = rounded(normal[:, :2], "BF16")[np.arange(rows)[:, None], random.integers(0, 2, (rows, cols))]
    ramp = np.arange(cols, dtype="<f4") * random.uniform(-1, 1, (rows, 1)).astype("<f4")
    return {
        "weights": to_bf16(normal * np.float32(0.02)),
        "any scale": to_bf16(normal * each_row),
        "heavy tails": to_bf16(random.standard_cauchy((rows, cols)).astype("<f4")),
        "one outlier": to_bf16(outlier),
        "negative only": to_bf16(-np.abs(normal) - np.float32(0.5)),
        "positive only": to_bf16(np.abs(normal) + np.float32(0.5)),
        "constants": to_bf16(np.broadcast_to(normal[:, :1] * each_row, (rows, cols))),
        "any constant": np.repeat(wide_exponents(random, rows, 1, 0, 255), cols, 1),
        "zeros of both signs": (random.integers(0, 2, (rows, cols)) << 15).astype("<u2"),
        "mostly zeros": to_bf16(sparse),
        "two numbers": to_bf16(few),
        "ramps": to_bf16(ramp),
        "ties": to_bf16(random.integers(-30, 31, (rows, cols)).astype("<f4") / np.float32(2)),
        "denormals": wide_exponents(random, rows, cols, 0, 1),
        "around the smallest step": to_bf16(normal * np.float32(1e-7)),
        "tiny": to_bf16(normal * np.float32(1e-30)),
        "every exponent": wide_exponents(random, rows, cols, 0, 255),
        "huge": wide_exponents(random, rows, cols, 240, 255),
        "around one": wide_exponents(random, rows, cols, 120, 130),
    }


def the_rule(tool: str, bits: int, group: int) -> str:
    random = np.random.default_rng(bits * 1000 + group)
    groups = 0
    for name, words in kinds(random, 200, 4 * group).items():
        try:
            compare(tool_parts(tool, words, bits, group), numpy_parts(words, bits, group))
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from problem
        groups += words.size // group
    return f"{groups:,} groups"


def the_goldens(tool: str, golden: str, family: str) -> str:
    """The tool turns every matrix of the BF16 golden into that of the 4-bit one."""
    plain, _ = mlx(load_golden(golden + "-bf16")[1], family, Plan(0))  # the names of MLX, not quantized
    expected = reference_reader.parse_checkpoint(GOLDENS / (golden + "-mlx4"))
    overrides = json.loads((GOLDENS / (golden + "-mlx4") / "config.json").read_text())["quantization"]
    seen: dict[int, int] = {}
    for name, scales in expected.items():
        if not name.endswith(".scales"):
            continue
        module = name.removesuffix(".scales")
        said = overrides.get(module, overrides)
        bits, group = said["bits"], said["group_size"]
        words = plain[module + ".weight"].array
        found = tool_parts(tool, words.reshape(-1, words.shape[-1]), bits, group)
        parts = (expected[module + ".weight"].array, scales.array, expected[module + ".biases"].array)
        try:
            compare(found, tuple(part.reshape(-1, part.shape[-1]) for part in parts))
        except AssertionError as problem:
            raise AssertionError(f"{module}: {problem}") from problem
        seen[bits] = seen.get(bits, 0) + 1
    assert seen.get(4, 0) > 20 and (family != QWEN or seen.get(8, 0) == 16), f"too few were compared: {seen}"
    return ", ".join(f"{count} tensors of {bits} bits" for bits, count in sorted(seen.items()))


def the_comparison_notices(tool: str) -> str:
    """The comparison detects a change of one bit in one number."""
    words = to_bf16(np.random.default_rng(5).standard_normal((3, 64), "<f4"))
    changed = words.copy()
    changed[1, (words[1] & 0x7FFF).argmax()] ^= 1  # the edge that the codes start from
    try:
        compare(tool_parts(tool, words, 8, 64), numpy_parts(changed, 8, 64))
    except AssertionError:
        return "a flipped bit"
    raise AssertionError("a flipped bit was not noticed")


def main() -> int:
    tool = sys.argv[1]
    checks: dict[str, Callable[[], str]] = {
        f"{bits} bits, groups of {group}": lambda bits=bits, group=group: the_rule(tool, bits, group)
        for bits in (4, 8) for group in (32, 64, 128)
    }
    checks["qwen35moe-tiny"] = lambda: the_goldens(tool, "qwen35moe-tiny", QWEN)
    checks["deepseekv3-tiny"] = lambda: the_goldens(tool, "deepseekv3-tiny", DEEPSEEK)
    checks["the comparison"] = lambda: the_comparison_notices(tool)
    failed = 0
    for name, check in checks.items():
        try:
            print(f"ok      {name}: {check()}", flush=True)
        except AssertionError as problem:
            failed += 1
            print(f"FAILED  {name}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
