"""An independent reader of every source that moeflux opens, in numpy.

It shares no code and no rules with src/source: it goes through the tensors that a file lists, gives each the
common name of its matrix ("layers.3.self_attn.q_proj", "layers.3.mlp.experts.17.gate_proj"), and decodes with
whole-array arithmetic. Formats come from the config (moeflux takes them from the shapes). A tensor that no
rule covers is an error, so nothing of a file can be dropped without being noticed.
"""

import dataclasses
import json
import pathlib
import re
import struct
from typing import Iterator, Optional

import numpy as np

NUMPY_TYPES = {"U8": "u1", "F8_E4M3": "u1", "BF16": "<u2", "F16": "<f2", "U32": "<u4", "F32": "<f4"}
BLOCK = 128
ONE_ADDED = re.compile(r"(^norm|layernorm|self_attn\.[qk]_norm)$")
SKIPPED = {
    "qwen3_5_moe": re.compile(r"(model\.|language_model\.)?mtp\.|(model\.)?visual\.|vision_(tower|model)\."),
    "deepseek_v3": re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq$"),
}
BODIES = {
    "qwen3_5_moe": ("language_model.model.", "model.language_model.", "model."),
    "deepseek_v3": ("model.",),
}


@dataclasses.dataclass(frozen=True)
class Tensor:
    """One tensor of a file: elements as stored (BF16 as 16-bit words, e4m3 as bytes)."""

    dtype: str
    array: np.ndarray


def parse_safetensors(path: pathlib.Path) -> dict[str, Tensor]:
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    tensors = {}
    for name, entry in header.items():
        if name == "__metadata__":
            continue
        begin, end = entry["data_offsets"]
        kind = np.dtype(NUMPY_TYPES[entry["dtype"]])
        array = np.frombuffer(data, kind, (end - begin) // kind.itemsize, 8 + length + begin)
        tensors[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
    return tensors


def parse_checkpoint(folder: pathlib.Path) -> dict[str, Tensor]:
    index = folder / "model.safetensors.index.json"
    if not index.exists():
        return parse_safetensors(folder / "model.safetensors")
    tensors = {}
    for shard in sorted(set(json.loads(index.read_text())["weight_map"].values())):
        tensors.update(parse_safetensors(folder / shard))
    return tensors


def floats(tensor: Tensor) -> np.ndarray:
    """The float32 value of every element of a tensor of plain floats."""
    if tensor.dtype == "BF16":
        return (tensor.array.astype("<u4") << 16).view("<f4")
    assert tensor.dtype in ("F16", "F32"), tensor.dtype
    return tensor.array.astype("<f4")


def e4m3_value(byte: int) -> float:
    sign, exponent, mantissa = -1.0 if byte & 0x80 else 1.0, (byte >> 3) & 15, byte & 7
    if exponent == 15 and mantissa == 7:
        return float("nan")
    return sign * (mantissa / 8 * 2.0**-6 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7))


E4M3 = np.array([e4m3_value(byte) for byte in range(256)], "<f4")


def affine_codes(words: np.ndarray, bits: int, cols: int) -> np.ndarray:
    """The codes of each row, cut from its stream of bits: [rows, words] -> [rows, cols]."""
    rows = words.shape[0]
    stream = np.unpackbits(np.ascontiguousarray(words).view("u1"), axis=-1, bitorder="little")
    assert stream.shape[-1] == cols * bits, (stream.shape, cols, bits)
    one_a_row = np.zeros((rows * cols, 8), "u1")
    one_a_row[:, :bits] = stream.reshape(-1, bits)
    return np.packbits(one_a_row, axis=-1, bitorder="little").reshape(rows, cols)


@dataclasses.dataclass(frozen=True)
class Matrix:
    """One matrix (or a stack of equal ones) as stored, and what is needed to decode it."""

    codes: Tensor
    scales: Optional[Tensor] = None
    biases: Optional[Tensor] = None
    bits: int = 0
    group: int = 0
    add_one: bool = False

    def parts(self) -> list[Tensor]:
        return [part for part in (self.codes, self.scales, self.biases) if part is not None]

    def cut(self, where) -> "Matrix":
        """The same of each part: one matrix of a stack, or some rows."""
        def of(part):
            return part and Tensor(part.dtype, part.array[where])

        return dataclasses.replace(self, codes=of(self.codes), scales=of(self.scales), biases=of(self.biases))

    def total_bytes(self) -> int:
        return sum(part.array.nbytes for part in self.parts())

    def encoding(self) -> str:
        if self.codes.dtype == "U32":
            return f"affine {self.bits}-bit group {self.group}"
        return "fp8 e4m3 128x128" if self.codes.dtype == "F8_E4M3" else self.codes.dtype.lower()

    def decode(self) -> np.ndarray:
        """[rows, cols] float32. A vector is one row, a stack is its matrices one below another."""
        shape = self.codes.array.shape
        if self.codes.dtype == "U32":
            scales, biases = (floats(part).reshape(-1, 1) for part in (self.scales, self.biases))
            cols = self.scales.array.shape[-1] * self.group
            codes = affine_codes(self.codes.array.reshape(-1, shape[-1]), self.bits, cols)
            numbers = codes.astype("<f4").reshape(-1, self.group) * scales + biases
            return numbers.reshape(-1, cols)
        if self.codes.dtype == "F8_E4M3":
            assert len(shape) == 2, shape
            scales = floats(self.scales).repeat(BLOCK, 0)[: shape[0]].repeat(BLOCK, 1)[:, : shape[1]]
            return E4M3[self.codes.array] * scales
        numbers = floats(self.codes)
        numbers = numbers + np.float32(1) if self.add_one else numbers
        return numbers.reshape((1 if len(shape) == 1 else -1), shape[-1])


@dataclasses.dataclass
class Model:
    matrices: dict[str, Matrix]
    skipped: list[str]
    skipped_bytes: int
    config: dict  # flat: the keys of the text model
    file_bytes: int
    files: int

    def experts(self) -> Iterator[tuple[int, int, int]]:
        """(layer, expert, bytes of it)."""
        sizes: dict[tuple[int, int], int] = {}
        for name, matrix in self.matrices.items():
            if found := re.match(r"layers\.(\d+)\.mlp\.experts\.(\d+)\.", name):
                key = int(found[1]), int(found[2])
                sizes[key] = sizes.get(key, 0) + matrix.total_bytes()
        return ((layer, expert, size) for (layer, expert), size in sorted(sizes.items()))

    def summary(self) -> dict[str, int]:
        """The "bytes" of `inspect --json`."""
        by_layer: dict[int, list[int]] = {}
        for layer, _, size in self.experts():
            by_layer.setdefault(layer, []).append(size)
        sizes = [size for layer in by_layer.values() for size in layer]
        everything = sum(matrix.total_bytes() for matrix in self.matrices.values())
        return {
            "resident": everything - sum(sizes),
            "smallest_expert": min(sizes, default=0),
            "largest_expert": max(sizes, default=0),
            "experts_per_token": sum(map(max, by_layer.values())) * self.config["num_experts_per_tok"],
            "all_experts": sum(sizes),
            "skipped": self.skipped_bytes,
        }


def is_skipped(name: str, family: str, config: dict) -> bool:
    if SKIPPED[family].match(name) or (config.get("tie_word_embeddings") and "lm_head." in name):
        return True
    layer = re.match(r"model\.layers\.(\d+)\.", name)  # beyond the last one: multi-token prediction
    return family == "deepseek_v3" and layer is not None and int(layer[1]) >= config["num_hidden_layers"]


def common_name(name: str, family: str) -> str:
    if name.startswith(("lm_head.", "language_model.lm_head.")):
        return name[name.index("lm_head.") :]
    body = next((body for body in BODIES[family] if name.startswith(body)), None)
    assert body, f"tensor '{name}' is of no known kind"
    return name[len(body) :]


def group_modules(tensors: dict[str, Tensor], affine) -> Iterator[tuple[str, str, Matrix]]:
    """(name without ".weight", full name, matrix): tensors that belong together, together."""
    for name, tensor in tensors.items():
        module, _, part = name.rpartition(".")
        if part in ("scales", "biases", "weight_scale_inv"):
            assert module + ".weight" in tensors, f"tensor '{name}' belongs to nothing"
        elif part == "weight" and tensor.dtype == "U32":
            scales, biases = tensors[module + ".scales"], tensors[module + ".biases"]
            yield module, name, Matrix(tensor, scales, biases, *affine(module))
        elif part == "weight" and tensor.dtype == "F8_E4M3":
            yield module, name, Matrix(tensor, tensors[module + ".weight_scale_inv"])
        else:
            yield module if part == "weight" else name, name, Matrix(tensor)


def name_matrices(module: str, matrix: Matrix, one_missing: bool) -> Iterator[tuple[str, Matrix]]:
    """A module under its common name → the matrices it holds."""
    count = matrix.codes.array.shape[0]
    if found := re.match(r"(layers\.\d+\.mlp)\.switch_mlp\.(\w+_proj)$", module):
        for expert in range(count):
            yield f"{found[1]}.experts.{expert}.{found[2]}", matrix.cut(expert)
    elif found := re.match(r"(layers\.\d+\.mlp\.experts)\.gate_up_proj$", module):
        half = matrix.codes.array.shape[1] // 2
        for expert in range(count):
            yield f"{found[1]}.{expert}.gate_proj", matrix.cut((expert, slice(0, half)))
            yield f"{found[1]}.{expert}.up_proj", matrix.cut((expert, slice(half, None)))
    elif found := re.match(r"(layers\.\d+\.mlp\.experts)\.down_proj$", module):
        for expert in range(count):
            yield f"{found[1]}.{expert}.down_proj", matrix.cut(expert)
    elif module.endswith("conv1d"):
        assert 1 in matrix.codes.array.shape[1:], matrix.codes.array.shape
        yield module, Matrix(Tensor(matrix.codes.dtype, matrix.codes.array.reshape(count, -1)))
    else:
        yield module, dataclasses.replace(matrix, add_one=one_missing and bool(ONE_ADDED.search(module)))


def build(
    tensors: dict[str, Tensor], family: str, config: dict, affine
) -> tuple[dict[str, Matrix], list[str]]:
    """Every matrix by its common name, and the tensors that are none. affine(module): its bits and group."""
    skipped = [name for name in tensors if is_skipped(name, family, config)]
    kept = {name: tensor for name, tensor in tensors.items() if name not in set(skipped)}
    convolutions = [tensor.array.shape for name, tensor in kept.items() if name.endswith("conv1d.weight")]
    one_missing = family == "qwen3_5_moe" and any(shape[2] != 1 for shape in convolutions)
    matrices: dict[str, Matrix] = {}
    for module, full_name, matrix in group_modules(kept, affine):
        common = common_name(full_name, family)
        common = common[: len(common) - (len(full_name) - len(module))]
        for name, part in name_matrices(common, matrix, one_missing):
            assert name not in matrices, f"'{name}' comes from two tensors"
            matrices[name] = part
    return matrices, skipped


def read_checkpoint(folder: pathlib.Path) -> Model:
    top = json.loads((folder / "config.json").read_text())
    config = {**top, **top.get("text_config", {})}
    family = top["model_type"].removesuffix("_text")
    quantization = top.get("quantization") or top.get("quantization_config") or {}

    def affine(module: str) -> tuple[int, int]:
        override = quantization.get(module, quantization)
        override = quantization if override is True else override
        return override["bits"], override["group_size"]

    tensors = parse_checkpoint(folder)
    matrices, skipped = build(tensors, family, config, affine)
    files = sorted(folder.glob("model*.safetensors"))
    sizes = sum(tensors[name].array.nbytes for name in skipped if not name.endswith("inv_freq"))
    return Model(matrices, skipped, sizes, config, sum(path.stat().st_size for path in files), len(files))


def read_original(artifacts: pathlib.Path, root: pathlib.Path) -> Model:
    """The original's artifacts: packed_experts/ when it is there, else packed_experts_2bit/."""
    manifest = json.loads((artifacts / "model_weights.json").read_text())
    data = (artifacts / "model_weights.bin").read_bytes()
    config, entries = manifest["config"], manifest["tensors"]
    family = "deepseek_v3" if "n_routed_experts" in config else "qwen3_5_moe"
    tensors = {}
    for name, entry in entries.items():
        kind = np.dtype(NUMPY_TYPES[entry["dtype"]])
        array = np.frombuffer(data, kind, entry["size"] // kind.itemsize, entry["offset"])
        tensors[name] = Tensor(entry["dtype"], array.reshape(entry["shape"]))
    matrices, skipped = build(
        tensors, family, config, lambda module: (entries[module + ".weight"].get("bits", 4), 64)
    )
    bits, folder = 4, root / "packed_experts"
    if not folder.exists():
        bits, folder = 2, root / "packed_experts_2bit"
    files = sorted(folder.glob("layer_*.bin"))
    for path in files:
        layer = f"layers.{int(path.stem[len('layer_'):])}.mlp.experts"
        matrices.update(read_packed_experts(path, layer, config, bits))
    files.append(artifacts / "model_weights.bin")
    return Model(matrices, skipped, 0, config, sum(path.stat().st_size for path in files), len(files))


def read_packed_experts(path: pathlib.Path, layer: str, config: dict, bits: int) -> dict[str, Matrix]:
    hidden, dim = config["moe_intermediate_size"], config["hidden_size"]
    count = config.get("num_experts") or config["n_routed_experts"]
    data = np.fromfile(path, "u1").reshape(count, -1)
    matrices = {}
    for expert in range(count):
        at = 0

        def take(kind: str, rows: int, cols: int) -> Tensor:
            nonlocal at
            size = rows * cols * np.dtype(NUMPY_TYPES[kind]).itemsize
            at += size
            return Tensor(kind, data[expert, at - size : at].view(NUMPY_TYPES[kind]).reshape(rows, cols))

        for part, rows, cols in (("gate", hidden, dim), ("up", hidden, dim), ("down", dim, hidden)):
            words = take("U32", rows, cols * bits // 32)
            scales, biases = take("BF16", rows, cols // 64), take("BF16", rows, cols // 64)
            matrices[f"{layer}.{expert}.{part}_proj"] = Matrix(words, scales, biases, bits, 64)
        assert at == data.shape[1], f"{path}: an expert has {data.shape[1]} bytes, {at} are known"
    return matrices
