"""Makes models with one defect each, from the goldens or from scratch.

A builder is a function that fills the empty folder it gets; it returns the path to inspect if that is not the
folder itself. Large files are sparse, so they take no disk space.
"""

import json
import os
import pathlib
import struct
from collections.abc import Callable

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "tiny"
QWEN = "qwen35moe-long-mlx4"
QWEN_BF16 = "qwen35moe-tiny-bf16"
DEEPSEEK = "deepseekv3-tiny-mlx4"
DEEPSEEK_BF16 = "deepseekv3-tiny-bf16"
FP8 = "deepseekv3-tiny-fp8"

DTYPE_BYTES = {"U8": 1, "F8_E4M3": 1, "F16": 2, "BF16": 2, "U32": 4, "I32": 4, "F32": 4}
MAX_HEADER = 32 << 20
Builder = Callable[[pathlib.Path], pathlib.Path | None]


def made(content):
    """Large contents are passed as functions, so that the table of cases stays small in memory."""
    return content() if callable(content) else content


def compact(document) -> bytes:
    return json.dumps(document, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "surrogateescape")


def entry(dtype: str, shape: list, begin, end) -> dict:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def write_safetensors(path: pathlib.Path, header, data_bytes: int = 0, length: int | None = None) -> None:
    """`header` is a document or bytes; `length` is the header length the file claims. The data is a hole."""
    text = header if isinstance(header, bytes) else compact(header)
    with open(path, "wb") as out:
        out.write(struct.pack("<Q", len(text) if length is None else length) + text)
        out.truncate(8 + len(text) + data_bytes)


class Checkpoint:
    """A golden to modify and write. `text` is the part of the config that has the model's sizes."""

    def __init__(self, golden: str):
        folder = GOLDENS / golden
        self.config = json.loads((folder / "config.json").read_text())
        self.text = self.config.get("text_config", self.config)
        content = (folder / "model.safetensors").read_bytes()
        data = 8 + struct.unpack("<Q", content[:8])[0]
        self.tensors = {}  # name -> [dtype, shape, bytes, or None for a hole of the right size]
        for name, it in json.loads(content[8:data]).items():
            if name == "__metadata__":
                continue
            begin, end = it["data_offsets"]
            self.tensors[name] = [it["dtype"], it["shape"], content[data + begin : data + end]]

    def size_of(self, name: str) -> int:
        dtype, shape, content = self.tensors[name]
        size = DTYPE_BYTES[dtype]
        for dim in shape:
            size *= dim
        assert content is None or len(content) == size, name
        return size

    def hole(self, name: str, dtype: str, shape: list) -> None:
        self.tensors[name] = [dtype, shape, None]

    def poke(self, name: str, at: int, content: bytes) -> None:
        old = self.tensors[name][2]
        assert at + len(content) <= len(old), name
        self.tensors[name][2] = old[:at] + content + old[at + len(content) :]

    def drop(self, *names: str) -> None:
        for name in names:
            del self.tensors[name]

    def header(self, names: list) -> tuple[dict, int]:
        header, end = {}, 0
        for name in names:
            size = self.size_of(name)
            header[name] = entry(self.tensors[name][0], self.tensors[name][1], end, end + size)
            end += size
        return header, end

    def write_tensors(self, path: pathlib.Path, names: list | None = None) -> None:
        names = sorted(self.tensors) if names is None else names
        header, data_bytes = self.header(names)
        write_safetensors(path, header, data_bytes)
        with open(path, "r+b") as out:
            at = path.stat().st_size - data_bytes
            for name in names:
                if self.tensors[name][2] is not None:
                    out.seek(at)
                    out.write(self.tensors[name][2])
                at += self.size_of(name)

    def write_config(self, folder: pathlib.Path) -> None:
        (folder / "config.json").write_bytes(compact(self.config))

    def write(self, folder: pathlib.Path) -> None:
        self.write_config(folder)
        self.write_tensors(folder / "model.safetensors")


def model(golden: str, change: Callable[[Checkpoint], object]) -> Builder:
    def build(folder):
        checkpoint = Checkpoint(golden)
        change(checkpoint)
        checkpoint.write(folder)

    return build


def sizes(golden: str, **values) -> Builder:
    """The golden with other values in its config."""
    return model(golden, lambda checkpoint: checkpoint.text.update(values))


def quantization(**values) -> Builder:
    return model(QWEN, lambda checkpoint: checkpoint.config["quantization"].update(values))


def quant_method(**values) -> Builder:
    """A checkpoint whose config declares another kind of quantization."""

    def change(checkpoint):
        checkpoint.config.pop("quantization", None)
        checkpoint.config["quantization_config"] = values

    return model(QWEN, change)


def config_text(content: bytes | Callable[[], bytes]) -> Builder:
    """A golden's tensors beside a config.json of these bytes."""

    def build(folder):
        (folder / "config.json").write_bytes(made(content))
        os.symlink(GOLDENS / QWEN / "model.safetensors", folder / "model.safetensors")

    return build


def golden_config(folder: pathlib.Path) -> None:
    (folder / "config.json").write_bytes((GOLDENS / QWEN / "config.json").read_bytes())


def header(content, data_bytes: int = 0, length: int | None = None) -> Builder:
    """A golden's config beside a model.safetensors with this header."""

    def build(folder):
        golden_config(folder)
        write_safetensors(folder / "model.safetensors", made(content), data_bytes, length)

    return build


def file_bytes(change: Callable[[bytes], bytes], size: int | None = None) -> Builder:
    """A golden whose model.safetensors is changed as bytes; `size` lengthens it by a hole."""

    def build(folder):
        golden_config(folder)
        content = change((GOLDENS / QWEN / "model.safetensors").read_bytes())
        with open(folder / "model.safetensors", "wb") as out:
            out.write(content)
            if size is not None:
                out.truncate(size)

    return build


def sharded(change: Callable[[Checkpoint, dict, pathlib.Path], object] | None = None, index=None) -> Builder:
    """A golden in two shards. `change` gets the checkpoint, the weight_map and the folder once the shards are
    written; `index` replaces the whole index."""

    def build(folder):
        checkpoint = Checkpoint(QWEN)
        checkpoint.write_config(folder)
        names = sorted(checkpoint.tensors)
        weight_map = {}
        for i, half in enumerate((names[: len(names) // 2], names[len(names) // 2 :])):
            shard = f"model-{i + 1:05}-of-00002.safetensors"
            checkpoint.write_tensors(folder / shard, half)
            weight_map.update(dict.fromkeys(half, shard))
        if change is not None:
            change(checkpoint, weight_map, folder)
        text = compact({"metadata": {}, "weight_map": weight_map}) if index is None else made(index)
        (folder / "model.safetensors.index.json").write_bytes(text)

    return build


def shards_of(headers: Callable[[], list[bytes]]) -> Builder:
    """Shards with these headers and no data, and an index that names each of them once."""

    def build(folder):
        golden_config(folder)
        weight_map = {}
        for i, content in enumerate(headers()):
            write_safetensors(folder / f"{i}.safetensors", content)
            weight_map[f"tensor{i}"] = f"{i}.safetensors"
        (folder / "model.safetensors.index.json").write_bytes(compact({"weight_map": weight_map}))

    return build


def full_index(folder: pathlib.Path) -> None:
    """As many tensors as a source may have, in two shards, with names so long that the index is full too."""
    golden_config(folder)
    half, name_bytes, pairs = 100_000, 114, []
    for shard in range(2):
        write_safetensors(folder / f"{shard}", many_tensors(half, name_bytes, shard * half))
        pairs += [b'"%0*d":"%d"' % (name_bytes, shard * half + i, shard) for i in range(half)]
    (folder / "model.safetensors.index.json").write_bytes(b'{"weight_map":{' + b",".join(pairs) + b"}}")


def metadata(size: int) -> bytes:
    """A header of `size` bytes, all of it metadata."""
    filler = b'{"__metadata__":{' + b'"a":"",' * (size // 7 - 4) + b'"a":""}}'
    return filler.ljust(size)


def one_pair(name: str, count: int) -> bytes:
    """An index that says `count` times in which shard the tensor is."""
    pair = compact({name: "model-00001-of-00002.safetensors"})[1:-1]
    return b'{"weight_map":{' + b",".join([pair] * count) + b"}}"


def many_tensors(count: int, name_bytes: int = 0, first: int = 0) -> bytes:
    """A header of `count` empty tensors."""
    body = b":" + compact(entry("U8", [0], 0, 0))
    names = (b'"%0*d"' % (name_bytes, i) for i in range(first, first + count))
    return b"{" + b",".join(name + body for name in names) + b"}"


def largest_header() -> bytes:
    """As many tensors as a header may list, with names so long that it is as large as it may be."""
    count = 1 << 17
    return many_tensors(count, MAX_HEADER // count - len(many_tensors(1)) - 1).ljust(MAX_HEADER)


def linked(target: str, name: str) -> Builder:
    def build(folder):
        golden_config(folder)
        os.symlink(target, folder / name)

    return build


def bare(**files: bytes) -> Builder:
    """A folder with just these files; "__" in a name stands for "."."""

    def build(folder):
        for name, content in files.items():
            (folder / name.replace("__", ".")).write_bytes(content)

    return build


def pointing_at(name: str, content: bytes) -> Builder:
    """One file; the model is opened by the path of this file, not of its folder."""

    def build(folder):
        (folder / name).write_bytes(content)
        return folder / name

    return build


def place(name: str, make: Callable[[pathlib.Path], object]) -> Builder:
    """A golden's config, and `make` creates something that is not a file at `name`."""

    def build(folder):
        golden_config(folder)
        make(folder / name)

    return build


# ---- the original's artifacts ----

ORIGINAL_KEYS = """
    hidden_size num_hidden_layers num_attention_heads num_key_value_heads head_dim vocab_size rms_norm_eps
    num_experts num_experts_per_tok moe_intermediate_size shared_expert_intermediate_size layer_types
    linear_num_value_heads linear_num_key_heads linear_key_head_dim linear_value_head_dim
    linear_conv_kernel_dim partial_rotary_factor
""".split()


class Original:
    """A golden as model_weights.bin, model_weights.json and packed_experts/."""

    def __init__(self):
        checkpoint = Checkpoint(QWEN)
        text = checkpoint.text
        config = {key: text[key] for key in ORIGINAL_KEYS}
        config.update(rope_theta=text["rope_parameters"]["rope_theta"], default_bits=4, default_group_size=64)
        self.tensors, self.weights = {}, b""
        for name, (dtype, shape, content) in sorted(checkpoint.tensors.items()):
            if ".switch_mlp." in name:
                continue
            self.weights += b"\0" * (-len(self.weights) % 64)
            it = {"offset": len(self.weights), "size": len(content), "shape": shape, "dtype": dtype}
            if dtype == "U32":
                it["bits"] = 8 if ".mlp.gate." in name or "shared_expert_gate" in name else 4
            self.tensors[name.removeprefix("language_model.")] = it
            self.weights += content
        self.manifest = {"model": "tiny", "config": config, "tensors": self.tensors}
        layers, experts = text["num_hidden_layers"], text["num_experts"]
        self.layers = [self.experts(checkpoint, layer, experts) for layer in range(layers)]
        self.folder = "packed_experts"

    @staticmethod
    def experts(checkpoint: Checkpoint, layer: int, count: int) -> bytes:
        parts = [
            checkpoint.tensors[f"language_model.model.layers.{layer}.mlp.switch_mlp.{matrix}_proj.{part}"][2]
            for matrix in ("gate", "up", "down")
            for part in ("weight", "scales", "biases")
        ]
        record = b""
        for expert in range(count):
            for part in parts:
                size = len(part) // count
                record += part[size * expert : size * (expert + 1)]
        return record

    def write(self, folder: pathlib.Path) -> None:
        (folder / "model_weights.bin").write_bytes(self.weights)
        (folder / "model_weights.json").write_bytes(compact(self.manifest))
        (folder / self.folder).mkdir()
        for i, content in enumerate(self.layers):
            (folder / self.folder / f"layer_{i:02}.bin").write_bytes(content)


def original(change: Callable[[Original], object]) -> Builder:
    def build(folder):
        artifacts = Original()
        change(artifacts)
        artifacts.write(folder)

    return build


def beside(build_model: Builder, name: str, content: bytes | Callable[[], bytes]) -> Builder:
    """A model, and a text file of these bytes at `name` in its folder."""

    def build(folder):
        build_model(folder)
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(made(content))

    return build


def manifest_text(content: bytes) -> Builder:
    def build(folder):
        (folder / "model_weights.bin").write_bytes(b"\0" * 64)
        (folder / "model_weights.json").write_bytes(content)

    return build


# ---- models that are consistent and enormous ----


def stacked_experts(count: int) -> Builder:
    """A golden with `count` experts per layer, in tensors that are holes."""

    def change(checkpoint):
        checkpoint.text["num_experts"] = count
        for name, (dtype, shape, _) in list(checkpoint.tensors.items()):
            if ".switch_mlp." in name or ".mlp.gate." in name:
                checkpoint.hole(name, dtype, [count, *shape[1:]])

    return model(QWEN, change)


def separate_experts(count: int) -> Builder:
    """One layer of `count` experts with three tensors each, in shards of as many as a file may have."""

    def build(folder):
        checkpoint = Checkpoint(DEEPSEEK_BF16)
        checkpoint.text.update(num_hidden_layers=2, n_routed_experts=count)
        checkpoint.write_config(folder)
        for name in [name for name in checkpoint.tensors if ".layers.2." in name or ".layers.3." in name]:
            checkpoint.drop(name)
        for name, (dtype, shape, _) in list(checkpoint.tensors.items()):
            if ".mlp.gate." in name:
                checkpoint.hole(name, dtype, [count, *shape[1:]])
        for part, shape in (("gate", [64, 128]), ("up", [64, 128]), ("down", [128, 64])):
            for i in range(count):
                checkpoint.hole(f"model.layers.1.mlp.experts.{i}.{part}_proj.weight", "BF16", shape)
        names = sorted(checkpoint.tensors)
        weight_map = {}
        for i in range(0, len(names), 1 << 17):
            shard = f"model-{i >> 17:05}.safetensors"
            checkpoint.write_tensors(folder / shard, names[i : i + (1 << 17)])
            weight_map.update(dict.fromkeys(names[i : i + (1 << 17)], shard))
        (folder / "model.safetensors.index.json").write_bytes(compact({"weight_map": weight_map}))

    return build
