"""Writes checkpoints: the encodings that people have on disk, and safetensors directories that hold them.

Tensors are reference_reader.Tensor: a dtype name and the elements as stored. Data begins at an odd offset, as
it may in published files.
"""

import json
import pathlib
import struct

import numpy as np

from reference_reader import E4M3, Tensor

Tensors = dict[str, Tensor]


def to_bf16(numbers: np.ndarray) -> np.ndarray:
    """The nearest BF16 of each number, ties to even, as 16-bit words."""
    words = np.ascontiguousarray(numbers, "<f4").view("<u4").astype("u8")
    return ((words + 0x7FFF + ((words >> 16) & 1)) >> 16).astype("<u2")


def rounded(numbers: np.ndarray, dtype: str) -> np.ndarray:
    """The numbers after rounding to `dtype`, as float32."""
    if dtype == "BF16":
        return (to_bf16(numbers).astype("<u4") << 16).view("<f4").reshape(numbers.shape)
    return numbers.astype("<f2" if dtype == "F16" else "<f4").astype("<f4")


def plain(numbers: np.ndarray, dtype: str = "BF16") -> Tensor:
    if dtype == "BF16":
        return Tensor(dtype, to_bf16(numbers).reshape(numbers.shape))
    return Tensor(dtype, numbers.astype("<f2" if dtype == "F16" else "<f4"))


def pack_codes(codes: np.ndarray, bits: int) -> np.ndarray:
    """The codes of each row as a stream of bits in 32-bit words: [..., cols] -> [..., cols * bits / 32]."""
    stream = np.unpackbits(codes.astype("u1")[..., None], axis=-1, bitorder="little")[..., :bits]
    stream = stream.reshape(*codes.shape[:-1], -1)
    return np.packbits(stream, axis=-1, bitorder="little").view("<u4")


def quantize(
    numbers: np.ndarray, bits: int, group: int, scale_dtype: str = "BF16"
) -> tuple[Tensor, Tensor, Tensor]:
    """MLX's affine rule: the end of a group that is farther from 0 has a code of its own, and so has 0."""
    assert numbers.shape[-1] % group == 0, (numbers.shape, group)
    groups = numbers.astype("<f4").reshape(*numbers.shape[:-1], -1, group)
    bins = np.float32((1 << bits) - 1)
    high, low = groups.max(-1), groups.min(-1)
    negative = np.abs(low) > np.abs(high)
    scale = np.maximum((high - low) / bins, np.float32(1e-7))
    scale = np.where(negative, scale, -scale)
    edge = np.where(negative, low, high)
    code_of_edge = np.round(edge / scale)
    has_code = code_of_edge != 0
    scale = np.where(has_code, edge / np.where(has_code, code_of_edge, np.float32(1)), scale)
    bias = np.where(has_code, edge, np.float32(0))
    return encode_affine(groups, scale, bias, bits, scale_dtype)


def quantize_two_bit(numbers: np.ndarray, group: int = 64) -> tuple[Tensor, Tensor, Tensor]:
    """The original's 2-bit rule: from the smallest to the largest of a group in three steps."""
    groups = numbers.astype("<f4").reshape(*numbers.shape[:-1], -1, group)
    low = groups.min(-1)
    return encode_affine(groups, (groups.max(-1) - low) / np.float32(3), low, 2, "BF16")


def encode_affine(groups, scale, bias, bits: int, scale_dtype: str) -> tuple[Tensor, Tensor, Tensor]:
    """The nearest codes under the scales and biases as they are stored."""
    scales, biases = plain(scale, scale_dtype), plain(bias, scale_dtype)
    step = rounded(scale, scale_dtype)[..., None]
    start = rounded(bias, scale_dtype)[..., None]
    codes = np.round((groups - start) / np.where(step == 0, np.float32(1), step))
    codes = codes.clip(0, (1 << bits) - 1).astype("u1")
    return Tensor("U32", pack_codes(codes.reshape(*codes.shape[:-2], -1), bits)), scales, biases


FINITE_E4M3 = np.array([byte for byte in np.argsort(E4M3, kind="stable") if np.isfinite(E4M3[byte])], "u1")


def quantize_fp8(numbers: np.ndarray, scale_dtype: str = "F32") -> tuple[Tensor, Tensor]:
    """The nearest e4m3 of each number under one inverse scale a block of 128 by 128, partial at the edges."""
    rows, cols = numbers.shape
    down, across = -(-rows // 128), -(-cols // 128)
    padded = np.zeros((down * 128, across * 128), "<f4")
    padded[:rows, :cols] = numbers
    largest = np.abs(padded).reshape(down, 128, across, 128).max((1, 3))
    inverse = plain(np.maximum(largest / np.float32(448), np.float32(1e-8)), scale_dtype)
    scale = rounded(np.maximum(largest / np.float32(448), np.float32(1e-8)), scale_dtype)
    scaled = numbers / scale.repeat(128, 0)[:rows].repeat(128, 1)[:, :cols]
    values = E4M3[FINITE_E4M3]
    above = np.searchsorted(values, scaled).clip(1, len(values) - 1)
    nearer_below = scaled - values[above - 1] < values[above] - scaled
    return Tensor("F8_E4M3", FINITE_E4M3[above - nearer_below]), inverse


def write_safetensors(path: pathlib.Path, tensors: Tensors) -> None:
    header: dict = {"__metadata__": {"format": "pt"}}
    at = 0
    for name, tensor in tensors.items():
        end = at + tensor.array.nbytes
        header[name] = {"dtype": tensor.dtype, "shape": list(tensor.array.shape), "data_offsets": [at, end]}
        at = end
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (1 - len(text) % 2)
    with path.open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.array.tobytes())


def write_checkpoint(folder: pathlib.Path, config: dict, tensors: Tensors, shards: int = 1) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=1))
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors)
        return
    names = [f"model-{i + 1:05}-of-{shards:05}.safetensors" for i in range(shards)]
    weight_map = {}
    for i, shard in enumerate(names):
        part = dict(list(tensors.items())[i::shards])  # a module's tensors come to lie in different shards
        write_safetensors(folder / shard, part)
        weight_map.update({name: shard for name in part})
    total = sum(tensor.array.nbytes for tensor in tensors.values())
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
