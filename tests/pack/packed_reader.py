"""An independent reader of packed models, in numpy, written from docs/formats/packed_model.md alone.

It shares no code with src/. It decodes with whole-array arithmetic, checks the manifest against the document
(names, order, alignment, sizes, padding), and accounts for every byte of every file: each byte belongs to
exactly one tensor or record, or is zero padding.
"""

import dataclasses
import json
import pathlib
from typing import Iterator, Union

import numpy as np

UNIT, LANES = 64, 16
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}
FP8_GROUP = 128
TENSOR_ALIGNMENT, RECORD_ALIGNMENT = 256, 4096


def e4m3_table() -> np.ndarray:
    byte = np.arange(256)
    exponent, mantissa = byte >> 3 & 15, byte & 7
    value = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10.0))
    value[[0x7F, 0xFF]] = np.nan
    return np.where(byte & 0x80, -value, value).astype("<f4")


E4M3 = e4m3_table()


def bf16(words: np.ndarray) -> np.ndarray:
    return (words.astype("<u4") << 16).view("<f4")


def up_to(value: int, alignment: int) -> int:
    return (value + alignment - 1) // alignment * alignment


def block_bytes(encoding: dict, cols: int) -> int:
    if encoding["kind"] == "affine":
        scales = {"BF16": UNIT, "F32": 2 * UNIT}[encoding["scales"]]
        return cols // encoding["group"] * (2 * encoding["group"] * encoding["bits"] + scales)
    if encoding["kind"] == "plain":
        return {"BF16": (cols + 1) // 2, "F32": cols}[encoding["dtype"]] * UNIT
    assert encoding == {"kind": "fp8_block", "scales": "F32"}, encoding
    rest = (cols % FP8_GROUP + 3) // 4
    return cols // FP8_GROUP * 33 * UNIT + (rest and (rest + 1) * UNIT)


def decode_plane(units: np.ndarray, bits: int) -> np.ndarray:
    """[blocks, groups, units, lanes, 4] → the plane's bits of each code, [blocks, lanes, groups, columns]."""
    blocks, groups = units.shape[:2]
    parts = np.stack([units >> bits * q & ((1 << bits) - 1) for q in range(8 // bits)], axis=-2)
    return parts.transpose(0, 3, 1, 2, 4, 5).reshape(blocks, LANES, groups, -1)


def decode_affine(units: np.ndarray, encoding: dict) -> np.ndarray:
    """[blocks, units, lanes, 4] → [blocks, lanes, columns]."""
    group, bits = encoding["group"], encoding["bits"]
    paired = encoding["scales"] == "BF16"
    units = units.reshape(units.shape[0], -1, group * bits // 32 + (1 if paired else 2), LANES, 4)
    codes, at, below = 0, 0, 0
    for plane in PLANES[bits]:
        count = group * plane // 32
        codes = codes | decode_plane(units[:, :, at : at + count], plane).astype("<u4") << below
        at, below = at + count, below + plane
    lanes = np.ascontiguousarray(units[:, :, at:])  # [blocks, groups, 1 or 2, lanes, 4]
    if paired:
        pairs = bf16(lanes.view("<u2"))
        bias, scale = pairs[:, :, 0, :, 0], pairs[:, :, 0, :, 1]
    else:
        scale, bias = lanes.view("<f4")[:, :, 0, :, 0], lanes.view("<f4")[:, :, 1, :, 0]
    scale, bias = (part.transpose(0, 2, 1)[..., None] for part in (scale, bias))
    numbers = codes.astype("<f4") * scale + bias
    return numbers.reshape(*numbers.shape[:2], -1)


def decode_plain(units: np.ndarray, encoding: dict, cols: int) -> np.ndarray:
    by_lane = np.ascontiguousarray(units.transpose(0, 2, 1, 3)).reshape(units.shape[0], LANES, -1)
    if encoding["dtype"] == "F32":
        return by_lane.view("<f4")
    words = by_lane.view("<u2")
    assert not words[:, :, cols:].any(), "the half of a lane beyond the last column is not zero"
    return bf16(words[:, :, :cols])


def decode_fp8(units: np.ndarray, cols: int) -> np.ndarray:
    groups, at = [], 0
    for first in range(0, cols, FP8_GROUP):
        width = min(FP8_GROUP, cols - first)
        count = (width + 3) // 4
        codes = units[:, at : at + count].transpose(0, 2, 1, 3).reshape(units.shape[0], LANES, -1)
        assert not codes[:, :, width:].any(), "the rest of an fp8 group is not zero"
        scales = np.ascontiguousarray(units[:, at + count]).view("<f4")
        groups.append(E4M3[codes[:, :, :width]] * scales)
        at += count + 1
    return np.concatenate(groups, axis=-1)


def decode_blocks(blocks: np.ndarray, rows: int, cols: int, encoding: dict) -> np.ndarray:
    """[blocks, bytes of a block] → [rows, cols] float32."""
    units = np.ascontiguousarray(blocks).reshape(len(blocks), -1, LANES, 4)
    unused = len(blocks) * LANES - rows
    assert 0 <= unused < LANES, f"{len(blocks)} blocks for {rows} rows"
    assert not units[-1, :, LANES - unused :].any(), "rows beyond the last are not zero"
    if encoding["kind"] == "affine":
        numbers = decode_affine(units, encoding)
    elif encoding["kind"] == "plain":
        numbers = decode_plain(units, encoding, cols)
    else:
        numbers = decode_fp8(units, cols)
    return numbers.reshape(-1, cols)[:rows]


def decode_tiles(data: np.ndarray, rows: int, cols: int, encoding: dict) -> np.ndarray:
    return decode_blocks(data.reshape(-1, block_bytes(encoding, cols)), rows, cols, encoding)


class Claims:
    """The bytes of one file. Each may be claimed once; unclaimed bytes must be zero."""

    def __init__(self, path: pathlib.Path, size: int) -> None:
        self.name, self.data = path.name, np.fromfile(path, "u1")
        assert self.data.size == size, f"{path.name}: {self.data.size} bytes, the manifest says {size}"
        self.claimed = np.zeros(size, bool)

    def take(self, offset: int, size: int) -> np.ndarray:
        assert offset >= 0 and offset + size <= self.data.size, f"{self.name}: [{offset}, +{size}) is outside"
        assert not self.claimed[offset : offset + size].any(), f"{self.name}: {offset} belongs to two"
        self.claimed[offset : offset + size] = True
        return self.data[offset : offset + size]

    def finish(self) -> int:
        stray = np.flatnonzero(self.data[~self.claimed])
        assert not stray.size, f"{self.name}: {stray.size} bytes that belong to nothing are not zero"
        return int(self.claimed.sum())


def record_matrices(record: np.ndarray, form: dict) -> Iterator[tuple[str, np.ndarray]]:
    """The three matrices of a record; the rest of it must be zero."""
    gate, up, down = form["gate"], form["up"], form["down"]
    sizes = [block_bytes(part["encoding"], part["cols"]) for part in (gate, up, down)]
    pairs = up_to(gate["rows"], LANES) // LANES
    pair_bytes = sizes[0] + sizes[1]
    both = record[: pairs * pair_bytes].reshape(pairs, pair_bytes)
    yield "gate_proj", decode_blocks(both[:, : sizes[0]], gate["rows"], gate["cols"], gate["encoding"])
    yield "up_proj", decode_blocks(both[:, sizes[0] :], up["rows"], up["cols"], up["encoding"])
    begin = up_to(pairs * pair_bytes, RECORD_ALIGNMENT)
    end = begin + up_to(down["rows"], LANES) // LANES * sizes[2]
    assert up_to(end, RECORD_ALIGNMENT) == record.size, f"{record.size} bytes, but the parts end at {end}"
    assert not record[pairs * pair_bytes : begin].any() and not record[end:].any(), "padding is not zero"
    yield "down_proj", decode_tiles(record[begin:end], down["rows"], down["cols"], down["encoding"])


def mixer_tensors(mixer: dict, dim: int, split: bool) -> Iterator[tuple[str, int, int, str]]:
    it = mixer.get
    if mixer["kind"] == "gated_delta_net":
        values = it("value_heads") * it("value_head_dim")
        conv = 2 * it("key_heads") * it("key_head_dim") + values
        yield "linear_attn.in_proj_qkv", conv, dim, "tile16"
        yield "linear_attn.in_proj_z", values, dim, "tile16"
        yield "linear_attn.in_proj_a", it("value_heads"), dim, "tile16"
        yield "linear_attn.in_proj_b", it("value_heads"), dim, "tile16"
        yield "linear_attn.conv1d", conv, it("conv_width"), "rows"
        yield "linear_attn.A_log", 1, it("value_heads"), "rows"
        yield "linear_attn.dt_bias", 1, it("value_heads"), "rows"
        yield "linear_attn.norm", 1, it("value_head_dim"), "rows"
        yield "linear_attn.out_proj", dim, values, "tile16"
    elif mixer["kind"] == "gated_attention":
        queries, keys = it("query_heads") * it("head_dim"), it("kv_heads") * it("head_dim")
        yield "self_attn.q_proj", 2 * queries, dim, "tile16"
        yield "self_attn.k_proj", keys, dim, "tile16"
        yield "self_attn.v_proj", keys, dim, "tile16"
        yield "self_attn.q_norm", 1, it("head_dim"), "rows"
        yield "self_attn.k_norm", 1, it("head_dim"), "rows"
        yield "self_attn.o_proj", dim, queries, "tile16"
    else:
        assert mixer["kind"] == "mla", mixer
        heads, latent, query_latent = it("heads"), it("latent_dim"), it("query_latent_dim")
        queries = heads * (it("nope_dim") + it("rope_dim"))
        if query_latent:
            yield "self_attn.q_a_proj", query_latent, dim, "tile16"
            yield "self_attn.q_a_layernorm", 1, query_latent, "rows"
            yield "self_attn.q_b_proj", queries, query_latent, "tile16"
        else:
            yield "self_attn.q_proj", queries, dim, "tile16"
        yield "self_attn.kv_a_proj_with_mqa", latent + it("rope_dim"), dim, "tile16"
        yield "self_attn.kv_a_layernorm", 1, latent, "rows"
        if split:
            yield "self_attn.embed_q", heads * latent, it("nope_dim"), "tile16"
            yield "self_attn.unembed_out", heads * it("value_dim"), latent, "tile16"
        else:
            yield "self_attn.kv_b_proj", heads * (it("nope_dim") + it("value_dim")), latent, "tile16"
        yield "self_attn.o_proj", dim, heads * it("value_dim"), "tile16"


def mlp_tensors(mlp: dict, dim: int) -> Iterator[tuple[str, int, int, str]]:
    def swiglu(name: str, hidden: int) -> Iterator[tuple[str, int, int, str]]:
        yield name + ".gate_proj", hidden, dim, "tile16"
        yield name + ".up_proj", hidden, dim, "tile16"
        yield name + ".down_proj", dim, hidden, "tile16"

    if mlp["kind"] == "dense":
        yield from swiglu("mlp", mlp["hidden_dim"])
        return
    assert mlp["kind"] == "moe", mlp
    yield "mlp.gate", mlp["experts"], dim, "tile16"
    if mlp["router"]["kind"] == "grouped_sigmoid":
        yield "mlp.gate.e_score_correction_bias", 1, mlp["experts"], "rows"
    shared = mlp.get("shared")
    if shared and shared["gated"]:
        yield from swiglu("mlp.shared_expert", shared["hidden_dim"])
        yield "mlp.shared_expert_gate", 1, dim, "tile16"
    elif shared:
        yield from swiglu("mlp.shared_experts", shared["hidden_dim"])


def expected_tensors(config: dict, split: bool) -> Iterator[tuple[str, int, int, str]]:
    """(name, rows, cols, layout) of every tensor of resident.bin, in order."""
    dim = config["dim"]
    for number, layer in enumerate(config["layers"]):
        of_layer = [("input_layernorm", 1, dim, "rows"), *mixer_tensors(layer["mixer"], dim, split),
                    ("post_attention_layernorm", 1, dim, "rows"), *mlp_tensors(layer["mlp"], dim)]
        for name, rows, cols, layout in of_layer:
            yield f"layers.{number}.{name}", rows, cols, layout
    yield "norm", 1, dim, "rows"
    if not config["tied_embeddings"]:
        yield "lm_head", config["vocabulary"], dim, "tile16"
    yield "embed_tokens", config["vocabulary"], dim, "tile16"


@dataclasses.dataclass
class PackedModel:
    manifest: dict
    numbers: dict[str, np.ndarray]  # by common name, like those of the source
    encodings: dict[str, dict]
    claimed_bytes: int
    padding_bytes: int


def read_resident(folder: pathlib.Path, manifest: dict, model: PackedModel) -> None:
    tensors = manifest["tensors"]
    split = any(tensor["name"].endswith(".embed_q") for tensor in tensors)
    listed = [tuple(tensor[key] for key in ("name", "rows", "cols", "layout")) for tensor in tensors]
    expected = list(expected_tensors(manifest["config"], split))
    assert listed == expected, f"other tensors: {sorted(set(listed) ^ set(expected))[:2]}, or another order"
    claims, end = Claims(folder / "resident.bin", manifest["resident_bytes"]), 0
    for tensor in tensors:
        name, rows, cols, encoding = (tensor[key] for key in ("name", "rows", "cols", "encoding"))
        assert tensor["offset"] == up_to(end, TENSOR_ALIGNMENT), f"{name} is not the next"
        data = claims.take(tensor["offset"], tensor["bytes"])
        end = tensor["offset"] + tensor["bytes"]
        if tensor["layout"] == "rows":
            assert encoding == {"kind": "plain", "dtype": "F32"}, f"{name}: {encoding}"
            model.numbers[name] = data.view("<f4").reshape(rows, cols)
        else:
            model.numbers[name] = decode_tiles(data, rows, cols, encoding)
        model.encodings[name] = encoding
    assert end == manifest["resident_bytes"], "resident.bin does not end with its last tensor"
    model.claimed_bytes += claims.finish()
    model.padding_bytes += int((~claims.claimed).sum())


def read_experts(folder: pathlib.Path, manifest: dict, model: PackedModel) -> None:
    layers = manifest["config"]["layers"]
    moe_layers = [number for number, layer in enumerate(layers) if layer["mlp"]["kind"] == "moe"]
    assert [file["layer"] for file in manifest["experts"]] == moe_layers, "the layers with experts are others"
    for file in manifest["experts"]:
        assert file["file"] == f"experts/layer_{file['layer']:03}.bin", file["file"]
        assert len(file["records"]) == manifest["config"]["layers"][file["layer"]]["mlp"]["experts"]
        claims = Claims(folder / file["file"], file["bytes"])
        for expert, (form, offset, size, _) in enumerate(file["records"]):
            assert offset % RECORD_ALIGNMENT == 0, f"a record at {offset}"
            form = manifest["expert_formats"][form]
            for part, numbers in record_matrices(claims.take(offset, size), form):
                name = f"layers.{file['layer']}.mlp.experts.{expert}.{part}"
                model.numbers[name] = numbers
                model.encodings[name] = form[part.removesuffix("_proj")]["encoding"]
        model.claimed_bytes += claims.finish()
        model.padding_bytes += int((~claims.claimed).sum())


def read_packed(path: Union[pathlib.Path, str]) -> PackedModel:
    folder = pathlib.Path(path)
    manifest = json.loads((folder / "manifest.json").read_text())
    head = {key: manifest[key] for key in ("format", "format_version", "layout")}
    assert head == {"format": "moeflux packed model", "format_version": 1, "layout": "tile16"}, head
    model = PackedModel(manifest, {}, {}, 0, 0)
    read_resident(folder, manifest, model)
    read_experts(folder, manifest, model)
    files = {"manifest.json", "resident.bin", *manifest["text_files"]}
    files |= {file["file"] for file in manifest["experts"]}
    found = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert found == files, f"files that the manifest does not name, or that are missing: {found ^ files}"
    return model
