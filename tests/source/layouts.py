"""Turns the state of a model into the tensors of a checkpoint, as Hugging Face or MLX lay them out."""

import dataclasses
from typing import Optional, Union

import numpy as np

from checkpoint_writer import Tensors, plain, quantize, quantize_fp8
from model_states import DEEPSEEK, QWEN, State
from reference_reader import ONE_ADDED

HF_PREFIX = {QWEN: "model.language_model.", DEEPSEEK: "model."}
MLX_PREFIX = {QWEN: "language_model.model.", DEEPSEEK: "model."}
FP8_ENDINGS = ("_proj.weight", "in_proj_qkv.weight", "in_proj_z.weight", "kv_a_proj_with_mqa.weight")


def hugging_face(
    state: State,
    family: str,
    *,
    prefix: Optional[str] = None,
    fused: bool = True,
    dtype: str = "BF16",
    fp8_scales: str = "",
    parameters: str = "F32",
) -> Tensors:
    """`fp8_scales`: the dtype of the inverse scales of an FP8 release, "" for others. `parameters`: the dtype
    of A_log and of the router's bias."""
    prefix = HF_PREFIX[family] if prefix is None else prefix
    out: Tensors = {}

    def put(name: str, numbers: np.ndarray) -> None:
        full_name = name if name.startswith("lm_head.") else prefix + name
        if fp8_scales and numbers.ndim == 2 and name.endswith(FP8_ENDINGS):
            out[full_name], out[full_name + "_scale_inv"] = quantize_fp8(numbers, fp8_scales)
        elif name.endswith(("A_log", "e_score_correction_bias")):
            out[full_name] = plain(numbers, parameters)
        else:
            out[full_name] = plain(numbers, dtype)

    for name, numbers in state.items():
        if fused or ".mlp.experts." not in name:
            put(name, numbers)
            continue
        base, _, kind = name.rpartition(".")
        for expert, matrix in enumerate(numbers):
            if kind == "down_proj":
                put(f"{base}.{expert}.down_proj.weight", matrix)
            else:
                gate, up = np.split(matrix, 2)
                put(f"{base}.{expert}.gate_proj.weight", gate)
                put(f"{base}.{expert}.up_proj.weight", up)
    return out


@dataclasses.dataclass
class Plan:
    """How MLX quantizes: defaults, and overrides by the end of a module's path. bits 0: not at all."""

    bits: int
    group: int = 64
    scales: str = "BF16"
    overrides: dict[str, Union[tuple[int, int], bool]] = dataclasses.field(default_factory=dict)

    def of(self, module: str) -> Union[tuple[int, int], bool, None]:
        return next((said for ending, said in self.overrides.items() if module.endswith(ending)), None)


QWEN_ROUTERS: dict[str, Union[tuple[int, int], bool]] = {"mlp.gate": (8, 64), "shared_expert_gate": (8, 64)}


def mlx(
    state: State,
    family: str,
    plan: Plan,
    *,
    prefix: Optional[str] = None,
    parameters: str = "F32",
    split_heads: int = 0,
    nope_dim: int = 0,
) -> tuple[Tensors, dict]:
    """The tensors, and what to add to the config. If `split_heads` is not 0, it is the number of heads of
    kv_b_proj, which is split into embed_q (transposed) and unembed_out, as newer conversions do."""
    prefix = MLX_PREFIX[family] if prefix is None else prefix
    head = "language_model.lm_head" if prefix.startswith("language_model.") else "lm_head"
    out: Tensors = {}
    quantization: dict = {"group_size": plan.group, "bits": plan.bits, "mode": "affine"}

    def put(module: str, numbers: np.ndarray) -> None:
        path = head if module == "lm_head" else prefix + module
        said = plan.of(path)
        bits, group = said if isinstance(said, tuple) else (plan.bits, plan.group)
        is_router = family == DEEPSEEK and path.endswith("mlp.gate")  # a parameter, which MLX never quantizes
        if bits == 0 or said is False or is_router or numbers.shape[-1] % group != 0:
            out[path + ".weight"] = plain(numbers)
        else:
            parts = quantize(numbers, bits, group, plan.scales)
            out[path + ".weight"], out[path + ".scales"], out[path + ".biases"] = parts
        if isinstance(said, bool):
            quantization[path] = said
        elif said is not None:
            quantization[path] = {"group_size": group, "bits": bits}

    for name, numbers in state.items():
        module = name.removesuffix(".weight")
        if module.endswith("mlp.experts.gate_up_proj"):
            gate, up = np.split(numbers, 2, 1)
            put(module.replace("experts.gate_up_proj", "switch_mlp.gate_proj"), gate)
            put(module.replace("experts.gate_up_proj", "switch_mlp.up_proj"), up)
        elif module.endswith("mlp.experts.down_proj"):
            put(module.replace("experts.", "switch_mlp."), numbers)
        elif module.endswith("kv_b_proj") and split_heads:
            by_head = numbers.reshape(split_heads, -1, numbers.shape[-1])
            keys = np.ascontiguousarray(by_head[:, :nope_dim].swapaxes(1, 2))
            put(module.replace("kv_b_proj", "embed_q"), keys)
            put(module.replace("kv_b_proj", "unembed_out"), by_head[:, nope_dim:])
        elif module.endswith("conv1d"):
            out[prefix + name] = plain(numbers.swapaxes(1, 2))
        elif numbers.ndim == 2:
            put(module, numbers)
        elif name.endswith(("A_log", "e_score_correction_bias")):
            out[prefix + name] = plain(numbers, parameters)
        elif family == QWEN and ONE_ADDED.search(module):
            out[prefix + name] = plain(numbers + np.float32(1))
        else:
            out[prefix + name] = plain(numbers)
    if plan.bits == 0:
        return out, {}
    return out, {"quantization": quantization, "quantization_config": quantization}
