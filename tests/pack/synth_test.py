#!/usr/bin/env python3
"""synth_test.py BINARY: synthetic models, which have real shapes and random weights.

Checks what `inspect` prints about the published shapes without any files; a reduced shape, packed and
verified; that equal seeds give equal bytes; source files in every format; and the errors for invalid
arguments.
"""

import hashlib
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY = ROOT / "tests" / "goldens" / "tiny"
QWEN, DEEPSEEK = TINY / "qwen35moe-tiny-mlx4" / "config.json", TINY / "deepseekv3-tiny-mlx4" / "config.json"
DISK_BYTES = 3_000_000_000
SHAPES = {  # bytes of one expert, of all experts, of the experts per token
    "qwen3.5-35b-a3b": (1_769_472, 18_119_393_280, 566_231_040),
    "qwen3.6-35b-a3b": (1_769_472, 18_119_393_280, 566_231_040),
    "qwen3.5-122b-a10b": (5_308_416, 65_229_815_808, 2_038_431_744),
    "qwen3.5-397b-a17b": (7_077_888, 217_432_719_360, 4_246_732_800),
    "deepseek-v3": (24_772_608, 367_823_683_584, 11_494_490_112),
    "cogito-v2-671b": (24_772_608, 367_823_683_584, 11_494_490_112),
}


class Tests:
    """Each test method gets an empty folder."""

    def __init__(self, binary: str, folder: pathlib.Path) -> None:
        self.binary, self.folder = binary, folder

    def moeflux(self, *arguments, code: int = 0) -> str:
        command = [self.binary, *map(str, arguments)]
        child = subprocess.run(command, capture_output=True, text=True, check=False)
        words = " ".join(command[1:])
        assert child.returncode == code, f"{words}: exit {child.returncode}: {child.stderr}"
        silent = child.stderr if code == 0 else child.stdout
        assert not silent, f"{words}: words on the wrong stream: {silent}"
        return child.stdout if code == 0 else child.stderr

    def inspect(self, path) -> dict:
        return json.loads(self.moeflux("inspect", "--json", path))

    def tree(self, folder: pathlib.Path) -> dict[str, str]:
        return {path.relative_to(folder).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(folder.rglob("*")) if path.is_file()}

    def the_true_shapes(self) -> str:
        for shape, (expert, everything, token) in SHAPES.items():
            page, found = self.moeflux("inspect", shape), self.inspect(shape)["bytes"]
            keys = "smallest_expert", "largest_expert", "all_experts", "experts_per_token"
            said = [found[key] for key in keys]
            assert said == [expert, expert, everything, token], f"{shape}: {found}"
            for number in (expert, everything):
                assert f"{number:,}" in page, f"{shape}: the page does not say {number:,}"
        assert not list(self.folder.iterdir()), "inspect writes nothing"
        return ", ".join(SHAPES)

    def the_models_of_the_readme(self) -> str:
        row = r"^\| [^|]* \| `([\w.-]+)` \| (\d+) \| (\d+), (\d+) \| ([\d.]+) GB \| ([\d.]+) GB \|$"
        rows = re.findall(row, (ROOT / "README.md").read_text(encoding="utf-8"), re.M)
        assert sorted(row[0] for row in rows) == sorted(SHAPES), f"README.md lists {[name for name, *_ in rows]}"
        for shape, layers, experts, chosen, everything, token in rows:
            found = self.inspect(shape)
            assert (found["layers"], found["experts_per_layer"], found["experts_per_token"]) == (
                int(layers), int(experts), int(chosen)), f"{shape}: {found}"
            said = [round(found["bytes"][key] / 1e9, digits) for key, digits in
                    (("all_experts", 1), ("experts_per_token", 2))]
            assert said == [float(everything), float(token)], f"{shape}: {said}"
        return f"{len(rows)} rows"

    def a_cut_of_the_largest_model(self) -> str:
        free = shutil.disk_usage(self.folder).free
        assert free > DISK_BYTES, f"needs {DISK_BYTES / 1e9:.0f} GB of free disk"
        path = self.folder / "cut"
        self.moeflux("synth", "qwen3.5-397b-a17b", path, "--layers", 4, "--experts", 8)
        found = self.inspect(path)["bytes"]
        assert found["largest_expert"] == 7_077_888 and found["all_experts"] == 4 * 8 * 7_077_888, found
        assert "sound: " in self.moeflux("verify", path)
        return f"{found['all_experts']:,} bytes of experts"

    def the_seed_decides(self) -> str:
        for config in (QWEN, DEEPSEEK):
            for more in ([], ["--source", "mlx"], ["--source", "bf16"], ["--source", "fp8"]):
                trees = []
                for seed, jobs in ((7, 1), (7, 2), (8, 2)):
                    path = self.folder / f"seed-{len(trees)}"
                    self.moeflux("synth", config, path, "--layers", 4, "--experts", 8, "--seed", seed,
                                 "--jobs", jobs, *more)
                    trees.append(self.tree(path))
                    shutil.rmtree(path)
                assert trees[0] == trees[1], f"{more}: the same seed gives other bytes"
                weights = [name for name in trees[0] if name.endswith((".bin", ".safetensors"))]
                assert weights and all(trees[0][name] != trees[2][name] for name in weights), \
                    f"{more}: another seed gives the same bytes"
        return "packed models and sources of both families"

    def another_seed_does_not_continue_a_pack(self) -> str:
        path, shape = self.folder / "unfinished", ["qwen3.5-35b-a3b", "--layers", "1", "--experts", "16"]
        command = [self.binary, "synth", shape[0], str(path), *shape[1:]]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
            while child.poll() is None and not (path / "pack.journal").exists():
                time.sleep(0.001)
            child.kill()
        assert not (path / "manifest.json").exists(), "the pack was to be stopped before its end"
        message = self.moeflux("synth", shape[0], path, *shape[1:], "--seed", 1, code=2)
        assert "an unfinished pack of another source" in message, message
        return "refused"

    def sources_of_every_kind(self) -> str:
        for config in (QWEN, DEEPSEEK):
            for kind in ("mlx", "bf16", "fp8"):
                path = self.folder / f"{config.parent.name}-{kind}"
                self.moeflux("synth", config, path, "--layers", 4, "--experts", 8, "--source", kind)
                assert "all finite" in self.moeflux("inspect", "--check", path), kind
                packed = self.folder / f"{path.name}-packed"
                self.moeflux("pack", path, packed)
                assert "sound: " in self.moeflux("verify", packed)
                names = {file.name for file in path.iterdir()}
                assert "config.json" in names and "model.safetensors.index.json" in names, names
        # Packing directly and packing from the files give the same model.
        self.moeflux("synth", QWEN, self.folder / "at-once", "--layers", 4, "--experts", 8)
        at_once = self.tree(self.folder / "at-once")
        in_two_steps = self.tree(self.folder / f"{QWEN.parent.name}-mlx-packed")
        assert at_once == in_two_steps, "packed at once it is another"
        return "6 sources"

    def bad_arguments(self) -> str:
        existing = self.folder / "existing"
        existing.mkdir()
        (existing / "note.txt").write_text("mine")
        fresh = self.folder / "fresh"
        cases = [
            (["synth"], 2, "required"),
            (["synth", "qwen3.5-35b-a3b"], 2, "DST"),
            (["synth", QWEN, fresh, "--layers", "0"], 2, "layers"),
            (["synth", QWEN, fresh, "--layers", "-1"], 2, "layers"),
            (["synth", QWEN, fresh, "--layers", "many"], 2, "layers"),
            (["synth", QWEN, fresh, "--layers", "1025"], 2, "layers"),
            (["synth", QWEN, fresh, "--experts", "0"], 2, "experts"),
            (["synth", QWEN, fresh, "--experts", "65537"], 2, "experts"),
            (["synth", QWEN, fresh, "--seed", "x"], 2, "seed"),
            (["synth", QWEN, fresh, "--source", "gguf"], 2, "mlx, bf16 or fp8"),
            (["synth", QWEN, fresh, "--jobs", "0"], 2, "jobs"),
            (["synth", QWEN, fresh, "--bits", "4"], 2, "bits"),
            (["synth", QWEN, existing], 2, "not empty"),
            (["synth", self.folder / "no-such-shape", fresh], 3, "no-such-shape"),
            (["pack", TINY / "qwen35moe-tiny-bf16", fresh, "--bits", "5"], 2, "4, 8 or 16"),
            (["pack", TINY / "qwen35moe-tiny-bf16", fresh, "--bits", "x"], 2, "bits"),
            (["pack", TINY / "qwen35moe-tiny-bf16", existing], 2, "not empty"),
            (["pack", self.folder / "nowhere", fresh], 3, "nowhere"),
            (["verify", self.folder / "nowhere"], 3, "nowhere"),
            (["verify", existing], 3, "manifest.json"),
            (["verify"], 2, "PATH"),
        ]
        for arguments, code, telling in cases:
            message = self.moeflux(*arguments, code=code)
            assert telling in message, f"{arguments}: {message!r} does not say {telling!r}"
            assert message.startswith("moeflux: ") and message.count("\n") == 1, message
        assert not fresh.exists(), "a refused command leaves nothing"
        assert [path.name for path in existing.iterdir()] == ["note.txt"], "somebody else's folder is touched"
        return f"{len(cases)} commands"


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: synth_test.py BINARY", file=sys.stderr)
        return 2
    names = [name for name in vars(Tests) if name not in ("moeflux", "inspect", "tree") and name[0] != "_"]
    failed = 0
    for name in names:
        with tempfile.TemporaryDirectory(prefix="synth-test-") as folder:
            try:
                tests = Tests(sys.argv[1], pathlib.Path(folder))
                print(f"ok      {name}: {getattr(tests, name)()}", flush=True)
            except AssertionError as problem:
                failed += 1
                print(f"FAILED  {name}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
