#!/usr/bin/env python3
"""packed_decode_test.py BINARY: a packed model has the numbers of its source, bit for bit.

Packs every golden, the bundled model, the checkpoints of tests/source/write_variants.py and the original's
artifacts. Reads the result with packed_reader.py and the source with tests/source/reference_reader.py,
neither of which shares code with src/, and compares every number of every matrix. Where pack quantizes, the
expected numbers come from MLX's rule in numpy (tests/source/checkpoint_writer.py).
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Callable, Optional, Union

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "goldens" / "tiny"
DOCUMENT = ROOT / "docs" / "formats" / "packed_model.md"
sys.path.insert(0, str(ROOT / "tests" / "source"))

import reference_reader  # noqa: E402
from checkpoint_writer import quantize, to_bf16  # noqa: E402
from packed_reader import PackedModel, read_packed  # noqa: E402
from write_original import folders_of, write_original  # noqa: E402
from write_variants import variants  # noqa: E402

BF16, F32 = {"kind": "plain", "dtype": "BF16"}, {"kind": "plain", "dtype": "F32"}
GROUP = 64


def kind_of(matrix: reference_reader.Matrix) -> str:
    return {"U32": "affine", "F8_E4M3": "fp8"}.get(matrix.codes.dtype, "plain")


def kind_of_model(matrices: dict[str, reference_reader.Matrix]) -> str:
    kinds = {kind_of(matrix) for matrix in matrices.values()}
    return next(kind for kind in ("affine", "fp8", "plain") if kind in kinds)


def quantized(numbers: np.ndarray, bits: int) -> np.ndarray:
    codes, scales, biases = quantize(numbers, bits, GROUP)
    return reference_reader.Matrix(codes, scales, biases, bits, GROUP).decode()


def expected(name: str, matrix: reference_reader.Matrix, vector: bool, family: str,
             bits: Optional[int]) -> tuple[np.ndarray, dict]:
    """The expected numbers and encoding of a packed matrix. Plain and FP8 matrices are quantized to
    `bits`."""
    numbers, kind = matrix.decode(), kind_of(matrix)
    if vector:
        return numbers, F32
    if kind == "affine":
        scales = "BF16" if matrix.scales.dtype == "BF16" else "F32"
        return numbers, {"kind": "affine", "bits": matrix.bits, "group": matrix.group, "scales": scales}
    if bits is None and kind == "fp8":
        return numbers, {"kind": "fp8_block", "scales": "F32"}
    kept = BF16 if matrix.codes.dtype == "BF16" else F32
    router = name.endswith((".mlp.gate", ".mlp.shared_expert_gate"))
    stays = bits == 16 or numbers.shape[1] % GROUP != 0 or (router and family == "deepseek_v3")
    if bits is None or (stays and kind == "plain"):
        return numbers, kept
    if stays:
        return (to_bf16(numbers).astype("<u4") << 16).view("<f4"), BF16
    bits = 8 if router else bits
    return quantized(numbers, bits), {"kind": "affine", "bits": bits, "group": GROUP, "scales": "BF16"}


def compare(packed: PackedModel, matrices: dict[str, reference_reader.Matrix], bits: Optional[int]) -> int:
    """Both have the same matrices with the same bits. Returns how many numbers were compared."""
    rows = {tensor["name"] for tensor in packed.manifest["tensors"] if tensor["layout"] == "rows"}
    family, kind = packed.manifest["config"]["family"], kind_of_model(matrices)
    bits = 4 if bits is None and kind == "plain" else bits
    assert set(packed.numbers) == set(matrices), f"other matrices: {set(packed.numbers) ^ set(matrices)}"
    weights = 0
    for name, matrix in matrices.items():
        numbers, encoding = expected(name, matrix, name in rows, family, bits)
        found = packed.numbers[name]
        assert packed.encodings[name] == encoding, f"{name}: {packed.encodings[name]}, expected {encoding}"
        assert found.shape == numbers.shape, f"{name}: {found.shape}, expected {numbers.shape}"
        same = np.ascontiguousarray(found).view("<u4") == np.ascontiguousarray(numbers).view("<u4")
        assert same.all(), (
            f"{name}: {(~same).sum()} of {same.size} numbers differ, the first at {np.argwhere(~same)[0]}: "
            f"{found[~same][0]!r}, expected {numbers[~same][0]!r}")
        weights += found.size
    return weights


class Runner:
    def __init__(self, binary: str, folder: pathlib.Path) -> None:
        self.binary, self.folder = binary, folder
        self.passed = self.failed = self.models = self.weights = self.bytes = 0

    def step(self, name: str, check: Callable[[], str]) -> None:
        try:
            print(f"ok      {name}: {check()}", flush=True)
            self.passed += 1
        except AssertionError as problem:
            self.failed += 1
            print(f"FAILED  {name}: {problem}", flush=True)

    def moeflux(self, *arguments: Union[str, pathlib.Path]) -> "subprocess.CompletedProcess[str]":
        command = [self.binary, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, check=False)

    def pack(self, source: Union[pathlib.Path, str], bits: Optional[int], *flags: str) -> pathlib.Path:
        destination = self.folder / "packed"
        shutil.rmtree(destination, ignore_errors=True)
        wanted = ["--bits", str(bits)] if bits else []
        child = self.moeflux("pack", source, destination, "--jobs", "2", *wanted, *flags)
        assert child.returncode == 0, f"pack exits with {child.returncode}: {child.stderr}"
        return destination

    def check(self, name: str, source: Union[pathlib.Path, str], matrices: dict[str, reference_reader.Matrix],
              choices: tuple[Optional[int], ...] = (None,), flags: tuple[str, ...] = ()) -> None:
        for bits in choices:
            def whole_model() -> str:
                destination = self.pack(source, bits, *flags)
                packed = read_packed(destination)
                weights = compare(packed, matrices, bits)
                self.models += 1
                self.weights += weights
                self.bytes += packed.claimed_bytes
                return f"{len(packed.numbers):,} matrices, {packed.padding_bytes:,} bytes of padding"

            self.step(f"{name}{f' --bits {bits}' if bits else ''}", whole_model)


def every_choice(matrices: dict[str, reference_reader.Matrix], thorough: bool) -> tuple[Optional[int], ...]:
    kind = kind_of_model(matrices)
    if kind == "affine":
        return (None,)
    return (None, 4, 8, 16) if thorough else (None, 16)


def the_comparison_notices(run: Runner) -> str:
    """The comparison detects a flipped bit in a number, a padding row or padding, and a missing tensor."""
    source = TINY / "deepseekv3-tiny-fp8"
    matrices = reference_reader.read_checkpoint(source).matrices
    manifest = json.loads((run.pack(source, None) / "manifest.json").read_text())
    tensors = {tensor["name"]: tensor for tensor in manifest["tensors"]}
    norm = tensors["layers.1.self_attn.kv_a_layernorm"]
    record = manifest["experts"][0]["records"][0][2]
    first = manifest["experts"][0]["file"]
    cases = (
        ("resident.bin", manifest["tensors"][1]["offset"], "numbers differ"),
        (first, 0, "numbers differ"),
        (first, record - 1, "padding is not zero"),
        ("resident.bin", norm["offset"] + norm["bytes"], None),  # padding, or the next tensor's first byte
    )
    for file, offset, message in cases:
        folder = run.pack(source, None)
        with (folder / file).open("r+b") as out:
            out.seek(offset)
            byte = out.read(1)[0]
            out.seek(offset)
            out.write(bytes([byte ^ 1]))
        problem = "nothing"
        try:
            compare(read_packed(folder), matrices, None)
        except AssertionError as found:
            problem = str(found)
        assert problem != "nothing" and (message or "") in problem, f"{file} at {offset}: noticed {problem}"
        verified = run.moeflux("verify", folder)
        assert verified.returncode == 3 and "has changed" in verified.stderr, f"verify says {verified.stderr}"
    return f"{len(cases)} flipped bits"


def the_fingerprint_is_of_the_numbers(run: Runner) -> str:
    """Equal for the same tensors in other shards, different for other bits."""
    prints = {}
    for variant in variants():
        if variant.name in ("qwen mlx 4-bit group 64", "qwen mlx in 3 shards"):
            source = run.folder / "variant"
            variant.write(source)
            prints[variant.name] = read_packed(run.pack(source, None)).manifest
            shutil.rmtree(source)
    one, other = prints.values()
    assert one["fingerprint"] == other["fingerprint"], "the shards change it"
    source = TINY / "deepseekv3-tiny-bf16"
    seen = {read_packed(run.pack(source, bits)).manifest["fingerprint"] for bits in (4, 8, 16)}
    assert len(seen) == 3, "the bits do not change it"
    assert read_packed(run.pack(source, None)).manifest["fingerprint"] in seen, "the default is 4 bits"
    return "2 models in shards, 3 of other bits"


def bits_are_not_for_quantized_sources(run: Runner) -> str:
    child = run.moeflux("pack", TINY / "qwen35moe-tiny-mlx4", run.folder / "none", "--bits", "4")
    assert child.returncode == 2, child.stderr
    assert "qwen35moe-tiny-mlx4" in child.stderr and "--bits" in child.stderr, child.stderr
    assert not (run.folder / "none").exists(), "a refused pack leaves nothing"
    return "refused"


def the_document_has_a_true_excerpt(run: Runner) -> str:
    manifest = read_packed(run.pack(TINY / "deepseekv3-tiny-mlx4", None)).manifest
    text = DOCUMENT.read_text()
    said = [manifest["fingerprint"], *(tensor["xxh3"] for tensor in manifest["tensors"][:2]),
            f'"bytes":{manifest["experts"][0]["bytes"]},'.replace(",", ""),
            *(json.dumps(record, separators=(",", ":")) for record in manifest["experts"][0]["records"][:2])]
    missing = [part for part in said if part not in text]
    assert not missing, f"docs/formats/packed_model.md does not have {missing}"
    return f"{len(said)} values"


def check_originals(run: Runner) -> None:
    for source in ("qwen35moe-tiny-mlx4", "deepseekv3-tiny-mlx4"):
        both = run.folder / f"original-{source}-both"
        for two_bit in (False, True):
            destination = run.folder / f"original-{source}-{two_bit}"
            for folder in (destination, both):
                write_original(TINY / source, folder, two_bit=two_bit)
            artifacts, root, _ = folders_of(destination, "parent")
            matrices = reference_reader.read_original(artifacts, root).matrices
            run.check(f"original {source}{', 2-bit experts' if two_bit else ''}", destination, matrices)
            if two_bit:
                run.check(f"original {source}, 2-bit experts of both", both, matrices, flags=("--use-2bit",))
            else:
                four_bit = matrices
        run.check(f"original {source}, 4-bit experts of both", both, four_bit)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: packed_decode_test.py BINARY", file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(prefix="packed-decode-") as name:
        run = Runner(sys.argv[1], pathlib.Path(name))
        run.step("the comparison notices", lambda: the_comparison_notices(run))
        run.step("the fingerprint is of the numbers", lambda: the_fingerprint_is_of_the_numbers(run))
        run.step("--bits is not for quantized sources", lambda: bits_are_not_for_quantized_sources(run))
        run.step("the document has a true excerpt", lambda: the_document_has_a_true_excerpt(run))
        for path in [*sorted(TINY.iterdir()), ROOT / "models" / "tern"]:
            matrices = reference_reader.read_checkpoint(path).matrices
            run.check(path.name, path, matrices, every_choice(matrices, thorough=True))
        for variant in variants():
            path = run.folder / "variant"
            variant.write(path)
            matrices = reference_reader.read_checkpoint(path).matrices
            thorough = "odd" in variant.name or "widths" in variant.name or "F16" in variant.name
            run.check(variant.name, path, matrices, every_choice(matrices, thorough))
            shutil.rmtree(path)
        check_originals(run)
    print(f"{run.models} models, {run.weights:,} numbers, {run.bytes:,} bytes accounted for")
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
