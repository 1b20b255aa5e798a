#!/usr/bin/env python3
"""decode_test.py TOOL BINARY: what moeflux decodes is, bit for bit, what an independent reader decodes.

Over every golden and the bundled model, over checkpoints that write_variants.py makes, and over the
original's artifacts: every matrix that TOOL (decode_dump) emits equals the reference, every tensor of the
files is part of a matrix that was emitted or is one that should be skipped, and `BINARY inspect` counts the
same bytes.
"""

import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from typing import Callable, Iterator, Union

import numpy as np

import reference_reader
from layouts import QWEN_ROUTERS, Plan, mlx
from model_states import DEEPSEEK, QWEN, load_golden
from write_original import folders_of, write_original
from write_variants import variants

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "goldens" / "tiny"


def read_dump(tool: str, path: Union[pathlib.Path, str]) -> Iterator[tuple[str, np.ndarray]]:
    with tempfile.TemporaryFile() as errors:
        with subprocess.Popen([tool, str(path)], stdout=subprocess.PIPE, stderr=errors) as child:
            while line := child.stdout.readline():
                head = json.loads(line)
                count = head["rows"] * head["cols"]
                data = child.stdout.read(4 * count)
                assert len(data) == 4 * count, f"{head['name']}: the dump ends in the middle"
                yield head["name"], np.frombuffer(data, "<f4").reshape(head["rows"], head["cols"])
        errors.seek(0)
        message = errors.read().decode()
    assert child.returncode == 0, f"{tool} exits with {child.returncode}: {message}"
    assert not message, f"standard error is not empty: {message}"


def compare(
    tool: str, path: Union[pathlib.Path, str], matrices: dict[str, reference_reader.Matrix]
) -> tuple[int, int]:
    """Every matrix of one is in the other, with the same bits. How many matrices, and how many weights."""
    seen, weights = set(), 0
    for name, numbers in read_dump(tool, path):
        assert name not in seen, f"{name} is emitted twice"
        assert name in matrices, f"{name} is emitted, but no tensor of the files says so"
        expected = matrices[name].decode()
        assert numbers.shape == expected.shape, f"{name}: {numbers.shape}, expected {expected.shape}"
        same = numbers.view("<u4") == np.ascontiguousarray(expected).view("<u4")
        assert same.all(), (
            f"{name}: {(~same).sum()} of {same.size} weights differ, the first at {np.argwhere(~same)[0]}: "
            f"{numbers[~same][0]!r}, expected {expected[~same][0]!r}")
        seen.add(name)
        weights += numbers.size
    missing = sorted(set(matrices) - seen)
    assert not missing, f"{len(missing)} matrices of the files are not emitted, the first is {missing[0]}"
    return len(seen), weights


class Runner:
    def __init__(self, tool: str, binary: str) -> None:
        self.tool, self.binary = tool, binary
        self.passed = self.failed = self.matrices = self.weights = 0

    def step(self, name: str, check: Callable[[], str]) -> None:
        """One test: `check` says what it has looked at, or raises AssertionError."""
        try:
            seen = check()
        except AssertionError as problem:
            self.failed += 1
            print(f"FAILED  {name}: {problem}", flush=True)
            return
        self.passed += 1
        print(f"ok      {name}: {seen}", flush=True)

    def check(self, name: str, path: Union[pathlib.Path, str], model: reference_reader.Model,
              skipped: int = 0, notes: tuple[str, ...] = ()) -> None:
        def whole_model() -> str:
            matrices, weights = compare(self.tool, path, model.matrices)
            assert len(model.skipped) == skipped, f"{len(model.skipped)} tensors are skipped: {model.skipped}"
            self.inspect(path, model, notes)
            self.matrices += matrices
            self.weights += weights
            return f"{matrices:,} matrices, {weights:,} weights"

        self.step(name, whole_model)

    def inspect(self, path: Union[pathlib.Path, str], model: reference_reader.Model,
                notes: tuple[str, ...]) -> None:
        command = [self.binary, "inspect", "--json", str(path)]
        child = subprocess.run(command, capture_output=True, check=False)
        assert child.returncode == 0, f"inspect exits with {child.returncode}: {child.stderr.decode()}"
        found = json.loads(child.stdout)
        assert found["bytes"] == model.summary(), f"inspect says {found['bytes']}, expected {model.summary()}"
        rest = list(found["notes"])
        for note in notes:
            said = [line for line in rest if note in line]
            assert len(said) == 1, f"inspect should note {note!r} once, it notes {found['notes']}"
            rest.remove(said[0])
        assert not rest, f"inspect notes more than it should: {rest}"


def the_writers_reproduce_the_goldens() -> str:
    """The variants are worth something: the code that writes them writes the goldens, byte for byte."""
    seen = 0
    for golden, family, plan in (("qwen35moe-tiny", QWEN, Plan(4, overrides=QWEN_ROUTERS)),
                                 ("deepseekv3-tiny", DEEPSEEK, Plan(4))):
        tensors, _ = mlx(load_golden(golden + "-bf16")[1], family, plan)
        expected = reference_reader.parse_checkpoint(TINY / (golden + "-mlx4"))
        assert set(tensors) == set(expected), f"other tensors: {set(tensors) ^ set(expected)}"
        for name, tensor in tensors.items():
            same = tensor.dtype == expected[name].dtype and np.array_equal(tensor.array, expected[name].array)
            assert same, f"{name} is another one"
        seen += len(tensors)
    return f"{seen} tensors"


def the_comparison_notices(tool: str, folder: pathlib.Path) -> str:
    """It is worth something as well: it finds a matrix too many, one too few, and a single flipped bit."""
    golden, flipped = TINY / "deepseekv3-tiny-fp8", folder / "flipped"
    matrices = reference_reader.read_checkpoint(golden).matrices
    fewer = {name: matrix for name, matrix in matrices.items() if name != "layers.3.mlp.gate"}
    more = matrices | {"layers.3.self_attn.other": matrices["norm"]}
    shutil.copytree(golden, flipped)
    with (flipped / "model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        last = file.read(1)[0]
        file.seek(-1, 2)
        file.write(bytes([last ^ 1]))
    cases = (("is emitted, but", golden, fewer), ("are not emitted", golden, more),
             ("weights differ", flipped, matrices))
    for message, path, reference in cases:
        problem = "nothing"
        try:
            compare(tool, path, reference)
        except AssertionError as found:
            problem = str(found)
        assert message in problem, f"expected '... {message} ...', noticed {problem}"
    return f"{len(cases)} changes"


def check_originals(run: Runner, folder: pathlib.Path) -> None:
    positions = ("'max_position_embeddings' is not recorded",)
    for source in ("qwen35moe-tiny-mlx4", "deepseekv3-tiny-mlx4"):
        four_bit = reference_reader.read_checkpoint(TINY / source)

        def check(name: str, path: Union[pathlib.Path, str], destination: pathlib.Path, layout: str,
                  as_mlx: bool = True) -> None:
            artifacts, root, _ = folders_of(destination, layout)
            model = reference_reader.read_original(artifacts, root)
            if as_mlx:  # the same matrices, from the checkpoint that the artifacts were made of
                model.matrices = four_bit.matrices
            run.check(f"original {source}, {name}", path, model, notes=positions)

        destination = folder / f"{source}-parent"
        write_original(TINY / source, destination)
        check("parent folder", destination, destination, "parent")
        check("parent folder, itself as reference", destination, destination, "parent", as_mlx=False)

        destination = folder / f"{source}-flat"
        write_original(TINY / source, destination, "flat")
        check("one folder", destination, destination, "flat")
        check("one folder, its manifest", destination / "model_weights.json", destination, "flat")

        destination = folder / source.removesuffix("-mlx4")
        write_original(TINY / source, destination, "siblings")
        for suffix in ("-artifacts", "-root", "-mlx-4bit"):
            path = destination.with_name(destination.name + suffix)
            check(f"siblings, by {suffix}", path, destination, "siblings")
        check("siblings, with a slash at the end", f"{path}/", destination, "siblings")

        destination = folder / f"{source}-2bit"
        write_original(TINY / source, destination, two_bit=True)
        check("2-bit experts", destination, destination, "parent", as_mlx=False)
    destination = folder / "without-bits"  # all of it is 4-bit there
    write_original(TINY / "deepseekv3-tiny-mlx4", destination, with_bits=False)
    check("no bits in the manifest", destination, destination, "parent")


def main() -> int:
    if len(sys.argv) != 3:
        print("usage: decode_test.py TOOL BINARY", file=sys.stderr)
        return 2
    run = Runner(*sys.argv[1:])
    run.step("the writers reproduce the goldens", the_writers_reproduce_the_goldens)
    for path in [*sorted(TINY.iterdir()), ROOT / "models" / "tern"]:
        run.check(path.name, path, reference_reader.read_checkpoint(path))
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        run.step("the comparison notices", lambda: the_comparison_notices(run.tool, folder))
        for variant in variants():
            path = folder / "variant"
            variant.write(path)
            model = reference_reader.read_checkpoint(path)
            run.check(variant.name, path, model, variant.skipped, variant.notes)
            shutil.rmtree(path)
        check_originals(run, folder)
    print(f"{run.matrices:,} matrices, {run.weights:,} weights compared")
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
