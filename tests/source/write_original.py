#!/usr/bin/env python3
"""write_original.py SRC_MLX DST [--layout parent|flat|siblings] [--two-bit] [--without-bits]

Writes an MLX 4-bit checkpoint as the artifacts of the original moeflux: model_weights.bin and .json, and one
packed_experts/layer_NN.bin a layer (docs/formats/original.md). With --two-bit the experts are requantized
into packed_experts_2bit. --without-bits leaves "bits" out of the manifest, as its first extractor did.

  parent    DST/artifacts, DST/root, DST/mlx        (the default)
  flat      all of it in DST
  siblings  DST-artifacts, DST-root, DST-mlx-4bit
"""

import argparse
import json
import pathlib
import re
import shutil

import numpy as np

from checkpoint_writer import plain, quantize_two_bit
from reference_reader import Matrix, Tensor, floats, parse_checkpoint

EXPERT = re.compile(r"model\.layers\.(\d+)\.mlp\.switch_mlp\.(gate|up|down)_proj\.(weight|scales|biases)$")
VISION = ("vision_tower", "model.visual")
QWEN_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim",
    "vocab_size", "rms_norm_eps", "num_experts", "num_experts_per_tok", "moe_intermediate_size",
    "shared_expert_intermediate_size", "linear_num_value_heads", "linear_num_key_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "partial_rotary_factor",
    "rope_theta", "layer_types")
COGITO_KEYS = (
    "hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "rms_norm_eps",
    "n_routed_experts", "n_shared_experts", "num_experts_per_tok", "n_group", "topk_group",
    "first_k_dense_replace", "moe_intermediate_size", "intermediate_size", "qk_nope_head_dim",
    "qk_rope_head_dim", "v_head_dim", "q_lora_rank", "kv_lora_rank", "rope_theta",
    "rope_scaling", "routed_scaling_factor")
PARTS = ("weight", "scales", "biases")
EXPERT_PARTS = [(matrix, part) for matrix in ("gate", "up", "down") for part in PARTS]


def config_block(config: dict) -> dict:
    """The keys that the original's extractors copied, flat."""
    text = config.get("text_config", config)
    rope = text["rope_parameters"]
    known = {**text, **rope}
    block = {"default_bits": config["quantization"]["bits"],
             "default_group_size": config["quantization"]["group_size"]}
    if config["model_type"] == "deepseek_v3":
        known["rope_scaling"] = {"type": rope["rope_type"]} | {
            key: value for key, value in rope.items() if key not in ("rope_type", "rope_theta")}
        return {key: known[key] for key in COGITO_KEYS} | block
    block["full_attention_interval"] = text["layer_types"].index("full_attention") + 1
    return {key: known[key] for key in QWEN_KEYS} | block


def write_weights(folder: pathlib.Path, source: pathlib.Path, tensors: dict[str, Tensor], config: dict,
                  with_bits: bool) -> None:
    """model_weights.bin in the order of the checkpoint's names, and its manifest."""
    quantization = config["quantization"]
    entries = {}
    with (folder / "model_weights.bin").open("wb") as file:
        for full_name in sorted(tensors):
            name = full_name.removeprefix("language_model.")
            if full_name.startswith(VISION) or EXPERT.match(name):
                continue
            tensor = tensors[full_name]
            if name.endswith("A_log"):
                tensor = plain(floats(tensor), "F32")
            file.write(bytes(-file.tell() % 64))
            entries[name] = {"offset": file.tell(), "size": tensor.array.nbytes,
                             "shape": list(tensor.array.shape), "dtype": tensor.dtype}
            if tensor.dtype == "U32" and with_bits:
                module = full_name.removesuffix(".weight")
                entries[name]["bits"] = quantization.get(module, quantization)["bits"]
            file.write(tensor.array.tobytes())
    manifest = {"model": source.name, "num_tensors": len(entries), "tensors": entries,
                "config": config_block(config)}
    (folder / "model_weights.json").write_text(json.dumps(manifest, indent=1))


def write_experts(root: pathlib.Path, tensors: dict[str, Tensor], two_bit: bool) -> None:
    layers: dict[int, dict[tuple[str, str], Tensor]] = {}
    for full_name, tensor in tensors.items():
        if found := EXPERT.match(full_name.removeprefix("language_model.")):
            layers.setdefault(int(found[1]), {})[found[2], found[3]] = tensor
    folder = root / ("packed_experts_2bit" if two_bit else "packed_experts")
    folder.mkdir(parents=True, exist_ok=True)
    for layer, parts in layers.items():
        if two_bit:
            parts = requantized(parts)
        arrays = [parts[key].array for key in EXPERT_PARTS]
        expert_bytes = [array.reshape(len(array), -1).view("u1") for array in arrays]
        np.concatenate(expert_bytes, 1).tofile(folder / f"layer_{layer:02}.bin")
    sizes = [part.shape[1] for part in expert_bytes]
    layout = {"expert_size": sum(sizes), "num_layers": len(layers), "num_experts": len(expert_bytes[0]),
              "components": [{"name": f"{matrix}_proj.{part}", "offset": sum(sizes[:i]), "size": sizes[i]}
                             for i, (matrix, part) in enumerate(EXPERT_PARTS)]}
    (folder / "layout.json").write_text(json.dumps(layout, indent=1))


def requantized(parts: dict[tuple[str, str], Tensor]) -> dict[tuple[str, str], Tensor]:
    out = {}
    for matrix in ("gate", "up", "down"):
        four_bit = Matrix(*(parts[matrix, part] for part in PARTS), bits=4, group=64)
        experts, rows, groups = four_bit.scales.array.shape
        numbers = four_bit.decode().reshape(experts, rows, groups * 64)
        out[matrix, "weight"], out[matrix, "scales"], out[matrix, "biases"] = quantize_two_bit(numbers)
    return out


def folders_of(destination: pathlib.Path, layout: str) -> tuple[pathlib.Path, pathlib.Path, pathlib.Path]:
    """Where the artifacts, the experts' root and the rest of the MLX checkpoint go."""
    if layout == "parent":
        return destination / "artifacts", destination / "root", destination / "mlx"
    if layout == "flat":
        return destination, destination, destination
    name = destination.name
    return tuple(destination.with_name(name + suffix) for suffix in ("-artifacts", "-root", "-mlx-4bit"))


def write_original(source: pathlib.Path, destination: pathlib.Path, layout: str = "parent",
                   two_bit: bool = False, with_bits: bool = True) -> None:
    artifacts, root, rest = folders_of(destination, layout)
    for folder in (artifacts, root, rest):
        folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((source / "config.json").read_text())
    tensors = parse_checkpoint(source)
    write_weights(artifacts, source, tensors, config, with_bits)
    write_experts(root, tensors, two_bit)
    shutil.copy(source / "config.json", rest)


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes an MLX checkpoint as the original's artifacts.")
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("destination", type=pathlib.Path)
    parser.add_argument("--layout", choices=("parent", "flat", "siblings"), default="parent")
    parser.add_argument("--two-bit", action="store_true")
    parser.add_argument("--without-bits", action="store_true")
    args = parser.parse_args()
    write_original(args.source, args.destination, args.layout, args.two_bit, not args.without_bits)


if __name__ == "__main__":
    main()
