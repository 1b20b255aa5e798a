#!/usr/bin/env python3
"""removal_test.py BINARY: what is missing is named, and what is not needed may be missing.

Takes each tensor and each needed config key away from a model of every kind, one at a time: `inspect` exits
with 3, prints nothing, and its message holds the name. The other keys are taken away too: nothing changes.
The lists of keys are complete: a key of a golden's config that is in none of them fails the test.
"""

import copy
import json
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
from typing import Callable, Iterable, Optional

import removal_keys as keys
from checkpoint_writer import write_checkpoint
from layouts import Plan, mlx
from model_states import DEEPSEEK, GOLDENS, load_golden
from write_original import write_original
from write_variants import odd_deepseek

Path = tuple[str, ...]  # of a key: ("text_config", "hidden_size")


def at(document: dict, path: Path) -> dict:
    for key in path:
        document = document[key]
    return document


def without(document: dict, *paths: Path) -> dict:
    document = copy.deepcopy(document)
    for path in paths:
        del at(document, path[:-1])[path[-1]]
    return document


class Removal:
    def __init__(self, binary: str) -> None:
        self.binary = binary
        self.passed = self.failed = 0

    def inspect(self, model: pathlib.Path) -> subprocess.CompletedProcess:
        return subprocess.run([self.binary, "inspect", "--json", str(model)], capture_output=True, text=True,
                              check=False)

    def judge(self, what: str, problem: Optional[str]) -> None:
        if problem:
            self.failed += 1
            print(f"FAILED  {what}: {problem}", flush=True)
        else:
            self.passed += 1

    def expect_named(self, what: str, model: pathlib.Path, name: str) -> None:
        child = self.inspect(model)
        said = child.stderr.strip()
        problem = None
        if child.returncode != 3:
            problem = f"exits with {child.returncode} instead of 3: {said}"
        elif child.stdout:
            problem = "prints something although it fails"
        elif not said.startswith("moeflux: ") or "\n" in said:
            problem = f"the message is not one line of moeflux: {said}"
        elif not re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", said.replace(str(model), "")):
            problem = f"the message does not name {name}: {said}"
        self.judge(f"{what} without {name}", problem)

    def expect_same(self, what: str, model: pathlib.Path, expected: str) -> None:
        child = self.inspect(model)
        problem = None
        if child.returncode != 0:
            problem = f"exits with {child.returncode}: {child.stderr.strip()}"
        elif child.stdout != expected:
            problem = f"says something else: {child.stdout}"
        self.judge(what, problem)

    def page(self, what: str, model: pathlib.Path) -> str:
        child = self.inspect(model)
        self.judge(f"{what}, nothing removed", child.stderr.strip() or None)
        return child.stdout

    def tensors(self, what: str, model: pathlib.Path, file: pathlib.Path) -> None:
        """Takes each tensor out of the header; its bytes stay, and the header keeps its length."""
        with file.open("r+b") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            text = stream.read(length)
            header = json.loads(text)
            for name in header:
                if name == "__metadata__":
                    continue
                rest = {key: value for key, value in header.items() if key != name}
                stream.seek(8)
                stream.write(json.dumps(rest, separators=(",", ":")).encode().ljust(length))
                stream.flush()
                self.expect_named(what, model, name)
            stream.seek(8)
            stream.write(text)

    def document(self, what: str, model: pathlib.Path, file: pathlib.Path, needed: dict[str, Iterable[Path]],
                 not_needed: Iterable[Path], changed: Optional[dict] = None) -> None:
        """Takes keys out of a JSON file, or out of `changed` in its place. `needed`: the name that the
        message must hold → what is removed together."""
        text = file.read_text()
        document = changed or json.loads(text)
        file.write_text(json.dumps(document))
        expected = self.page(what, model)
        for name, paths in needed.items():
            file.write_text(json.dumps(without(document, *paths)))
            self.expect_named(what, model, name)
        for path in not_needed:
            file.write_text(json.dumps(without(document, path)))
            self.expect_same(f"{what} without {'.'.join(path)}", model, expected)
        file.write_text(text)


def check_complete(run: Removal, what: str, document: dict, needed: dict, not_needed: Iterable[Path]) -> None:
    listed = [path for paths in needed.values() for path in paths] + list(not_needed)
    known = {path[:length] for path in listed for length in range(1, len(path) + 1)}
    there = {(key,) for key in document if key != "text_config"}
    there |= {("text_config", key) for key in document.get("text_config", {})}
    unknown = sorted(there - known - {("quantization",), ("quantization_config",)})
    run.judge(f"{what}, every key is in a list", f"{unknown} are in none" if unknown else None)


def qwen(run: Removal, folder: pathlib.Path) -> None:
    for kind in ("bf16", "mlx4"):
        model = folder / f"qwen-{kind}"
        shutil.copytree(GOLDENS / f"qwen35moe-tiny-{kind}", model)
        config = json.loads((model / "config.json").read_text())
        file = model / "config.json"
        run.tensors(model.name, model, model / "model.safetensors")
        needed = keys.nested(keys.QWEN_NEEDED) | keys.each("model_type") | keys.quantization_of(config)
        not_needed = keys.nested_paths(keys.QWEN_NOT_NEEDED) + keys.TOP_NOT_NEEDED
        not_needed += [(key,) for key in ("quantization", "quantization_config") if key in config]
        check_complete(run, model.name, config, needed, not_needed)
        run.document(model.name, model, file, needed, not_needed)
        # Without a text_config its keys are looked for at the top.
        run.document(f"{model.name}, no text_config", model, file, {"hidden_size": [("text_config",)]}, [])
        flat = {**without(config, ("text_config",)), **config["text_config"]}
        run.document(f"{model.name}, flat", model, file, keys.QWEN_NEEDED, keys.QWEN_NOT_NEEDED, flat)
        # Both spellings are there: one of them may go, both may not.
        both = copy.deepcopy(flat)
        both |= {"full_attention_interval": 4, "rope_theta": 1e7, "partial_rotary_factor": 0.25}
        needed = {"layer_types": [("layer_types",), ("full_attention_interval",)],
                  "rope_theta": [("rope_parameters",), ("rope_theta",)],
                  "partial_rotary_factor": [("rope_parameters",), ("partial_rotary_factor",)]}
        spellings = [path for paths in needed.values() for path in paths]
        run.document(f"{model.name}, both spellings", model, file, needed, dict.fromkeys(spellings), both)


def deepseek(run: Removal, folder: pathlib.Path) -> None:
    for kind in ("bf16", "fp8", "mlx4"):
        model = folder / f"deepseek-{kind}"
        shutil.copytree(GOLDENS / f"deepseekv3-tiny-{kind}", model)
        config = json.loads((model / "config.json").read_text())
        run.tensors(model.name, model, model / "model.safetensors")
        needed = keys.DEEPSEEK_NEEDED | keys.quantization_of(config)
        not_needed = list(keys.DEEPSEEK_NOT_NEEDED)
        not_needed += [(key,) for key in ("quantization", "quantization_config") if "quantization" in config]
        not_needed += [("quantization_config", "activation_scheme")] if kind == "fp8" else []
        check_complete(run, model.name, config, needed, not_needed)
        run.document(model.name, model, model / "config.json", needed, not_needed)
        if kind != "bf16":
            continue
        rope = config["rope_parameters"]
        old = without(config, ("rope_parameters",)) | {"rope_theta": rope["rope_theta"], "rope_scaling": rope}
        del old["rope_scaling"]["rope_theta"]
        old["rope_scaling"]["type"] = old["rope_scaling"].pop("rope_type")
        needed = {key: [("rope_scaling", key)] for key in keys.YARN} | {
            "rope_theta": [("rope_theta",)], "rope_type": [("rope_scaling", "type")]}
        run.document(f"{model.name}, old rope", model, model / "config.json", needed, [], old)


def shards(run: Removal, folder: pathlib.Path) -> None:
    """Tensors of a sharded checkpoint with the newer MLX layout; then whole shards."""
    model = folder / "shards"
    config, state = odd_deepseek(load_golden("deepseekv3-tiny-bf16")[0])
    tensors, more = mlx(state, DEEPSEEK, Plan(4), split_heads=3, nope_dim=64)
    write_checkpoint(model, config | more, tensors, shards=2)
    for file in sorted(model.glob("*.safetensors")):
        run.tensors(model.name, model, file)
    for file in [*sorted(model.glob("*.safetensors")), model / "config.json"]:
        kept = file.read_bytes()
        file.unlink()
        run.expect_named(model.name, model, file.name)
        file.write_bytes(kept)
    index = model / "model.safetensors.index.json"
    run.document(model.name, model, index, {"weight_map": [("weight_map",)]}, [("metadata",)])
    run.page(model.name, model)
    index.unlink()
    run.expect_named(model.name, model, "model.safetensors")


def originals(run: Removal, folder: pathlib.Path) -> None:
    for family, needed, not_needed in (
            ("qwen35moe", keys.ORIGINAL_QWEN_NEEDED, keys.ORIGINAL_QWEN_NOT_NEEDED),
            ("deepseekv3", keys.ORIGINAL_DEEPSEEK_NEEDED, keys.ORIGINAL_NOT_NEEDED)):
        model = folder / f"original-{family}"
        write_original(GOLDENS / f"{family}-tiny-mlx4", model)
        what, file = model.name, model / "artifacts" / "model_weights.json"
        manifest = json.loads(file.read_text())
        counted = {name: [("tensors", name), ("num_tensors",)] for name in manifest["tensors"]}
        run.document(f"{what}, tensors", model, file, counted, [])
        inside = {name: [("config", *path) for path in paths] for name, paths in needed.items()}
        optional = [("config", *path) for path in not_needed]
        check_complete(run, what, manifest["config"], needed, not_needed)
        run.document(f"{what}, config", model, file, inside, optional)
        whole: dict = {key: [(key,)] for key in ("tensors", "config")}
        entry = ("tensors", "model.norm.weight")
        whole |= {key: [(*entry, key)] for key in ("offset", "size", "shape", "dtype")}
        run.document(f"{what}, manifest", model, file, whole, [("model",), ("num_tensors",)])
        gate = "model.layers.0.mlp.gate"
        if manifest["tensors"].get(gate + ".weight", {}).get("bits") == 8:
            run.document(what, model, file, {gate: [("tensors", gate + ".weight", "bits")]},
                         [("tensors", "model.embed_tokens.weight", "bits")])
        for part in [model / "artifacts" / "model_weights.bin", *sorted(model.glob("root/*/layer_*.bin"))]:
            part.rename(model / "away")
            run.expect_named(what, model, part.name)
            (model / "away").rename(part)
        (model / "root").rename(model / "away")
        run.expect_named(what, model, "packed_experts")


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: removal_test.py BINARY", file=sys.stderr)
        return 2
    run = Removal(sys.argv[1])
    steps: tuple[Callable[[Removal, pathlib.Path], None], ...] = (qwen, deepseek, shards, originals)
    for step in steps:
        before = run.passed
        with tempfile.TemporaryDirectory() as folder:
            step(run, pathlib.Path(folder))
        print(f"{step.__name__}: {run.passed - before} removals as they should be", flush=True)
    print(f"{run.passed} passed, {run.failed} failed")
    return 1 if run.failed else 0


if __name__ == "__main__":
    sys.exit(main())
