"""Small random models of unusual shapes, each with the reason why it is tested.

Names and shapes come from tests/source/model_states.py. The numbers are drawn here, so that activations
between layers stay of order 1 and logits of order 1 to 10; only then is an error of 5e-4 a meaningful limit.
"""

import dataclasses
import pathlib
import sys
from typing import Callable, Iterator, Optional, Union

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "source"))

from checkpoint_writer import Tensors, write_checkpoint  # noqa: E402
from layouts import QWEN_ROUTERS, Plan, hugging_face, mlx  # noqa: E402
from model_states import (  # noqa: E402
    DEEPSEEK, QWEN, State, load_golden, random_deepseek, random_qwen, text_of)
from reference_reader import ONE_ADDED  # noqa: E402
from write_variants import FP8, changed  # noqa: E402

VOCABULARY = 509
WIDTHS, GROUPS = (2, 3, 4, 5, 6, 8), (32, 64, 128)
LINEAR, FULL = "linear_attention", "full_attention"
LONG_OPTIONS = (("--chunk", 1), ("--chunk", 7), ("--chunk", 256, "--threads", 2), ("--batch", 3),
                ("--precision", "exact"))
Options = tuple[Union[str, int], ...]
Overrides = dict[str, Union[tuple[int, int], bool]]
Layout = Callable[[dict, State], tuple[Tensors, dict]]


@dataclasses.dataclass
class Case:
    name: str
    config: dict
    layout: Layout
    positions: int = 9
    bits: Optional[int] = None  # option of pack
    greedy: int = 0  # tokens to continue the prompt with
    same: tuple[Options, ...] = ()  # options of eval that must not change a bit
    one_expert: bool = False  # also with one expert per token
    seen: tuple[dict, ...] = ()  # changes of the config that must change the logits

    def write(self, folder: pathlib.Path) -> None:
        tensors, more = self.layout(self.config, draw_state(self.config))
        write_checkpoint(folder, self.config | more, tensors)


def draw_state(config: dict) -> State:
    family = family_of(config)
    state = (random_qwen if family == QWEN else random_deepseek)(config, seed=0)
    random = np.random.default_rng(1)
    state = {name: draw(random, name, numbers.shape, family) for name, numbers in state.items()}
    if text_of(config).get("tie_word_embeddings"):
        del state["lm_head.weight"]
        state["embed_tokens.weight"] *= np.float32(3 / text_of(config)["hidden_size"] ** 0.5)
    if family == QWEN:
        mark_delta_nets(text_of(config), state)
    return state


def draw(random: np.random.Generator, name: str, shape: tuple[int, ...], family: str) -> np.ndarray:
    module, inputs = name.removesuffix(".weight"), shape[-1]
    numbers = random.standard_normal(shape)
    if name.endswith("A_log"):
        numbers = random.uniform(-4, 1, shape)
    elif name.endswith("e_score_correction_bias"):
        numbers = random.uniform(-0.7, 0.2, shape)  # biased scores are often below 0
    elif ONE_ADDED.search(module) and family == QWEN:
        numbers *= 0.2  # published as weight - 1
    elif ONE_ADDED.search(module) or module.endswith("linear_attn.norm"):
        numbers = 1 + 0.2 * numbers
    elif len(shape) > 1 and module != "embed_tokens":
        sizes = {"lm_head": 3.0, "gate": 1.5, "q_proj": 1.5, "q_b_proj": 1.5}
        numbers *= sizes.get(module.rpartition(".")[2], 1.0) / inputs**0.5
    return numbers.astype("<f4")


def mark_delta_nets(text: dict, state: State) -> None:
    """Corner cases of the delta net: a head of queries and one of keys so small that the 1e-6 added to their
    squares matters, and a step so long that its exponential exceeds float32."""
    keys, size = text["linear_num_key_heads"], text["linear_key_head_dim"]
    for name, numbers in state.items():
        if name.endswith("in_proj_qkv.weight"):
            numbers[:size] *= np.float32(2e-3)
            numbers[(2 * keys - 1) * size : 2 * keys * size] *= np.float32(2e-3)
        elif name.endswith("dt_bias"):
            numbers[0] = 95
        elif name.endswith("A_log"):
            numbers[0] = -4.5


def family_of(config: dict) -> str:
    return QWEN if "text_config" in config else DEEPSEEK


def plain(dtype: str = "BF16") -> Layout:
    return lambda config, state: (hugging_face(state, family_of(config), dtype=dtype), {})


def fp8(scales: str) -> Layout:
    def layout(config: dict, state: State) -> tuple[Tensors, dict]:
        return hugging_face(state, family_of(config), fused=False, fp8_scales=scales), FP8

    return layout


def affine(bits: int, group: int, overrides: Optional[Overrides] = None, *, split: bool = False,
           scales: str = "BF16") -> Layout:
    """`split`: kv_b_proj as two tensors. bits 0: not quantized."""
    def layout(config: dict, state: State) -> tuple[Tensors, dict]:
        heads, nope = (config["num_attention_heads"], config["qk_nope_head_dim"]) if split else (0, 0)
        plan = Plan(bits, group, scales, overrides or {})
        return mlx(state, family_of(config), plan, split_heads=heads, nope_dim=nope)

    return layout


def every_width() -> Layout:
    """A width and a group for each matrix in turn, so that those of one expert differ."""
    formats = [(bits, group) for group in GROUPS for bits in WIDTHS]

    def layout(config: dict, state: State) -> tuple[Tensors, dict]:
        names = [name.removesuffix(".weight") for name, numbers in state.items() if numbers.ndim > 1]
        names = [name.replace("experts.gate_up_proj", "switch_mlp.gate_proj") for name in names]
        names += [name.replace("gate_proj", "up_proj") for name in names if "switch_mlp.gate_proj" in name]
        names = [name.replace("mlp.experts.", "mlp.switch_mlp.") for name in names if "conv1d" not in name]
        overrides: Overrides = {name: formats[5 * i % len(formats)] for i, name in enumerate(names)}
        overrides |= {"layers.1.mlp.switch_mlp.up_proj": False}
        if family_of(config) == DEEPSEEK:  # MLX does not quantize its routers
            overrides = {name: said for name, said in overrides.items() if not name.endswith("mlp.gate")}
        return mlx(state, family_of(config), Plan(4, 64, overrides=overrides))

    return layout


def rope(rotary: float, theta: float = 1e4) -> dict:
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": rotary}


def qwen(golden: dict, **changes) -> dict:
    """Every input a multiple of 128; more values than keys, of other sizes; one linear and one full layer."""
    kinds = changes.setdefault("layer_types", [LINEAR, FULL])
    rotary = changes.pop("rotary", 0.25)
    defaults = {
        "num_hidden_layers": len(kinds), "vocab_size": VOCABULARY, "eos_token_id": [7, VOCABULARY - 1],
        "hidden_size": 128, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32,
        "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 24,
        "linear_value_head_dim": 32, "linear_conv_kernel_dim": 4, "num_experts": 6, "num_experts_per_tok": 3,
        "moe_intermediate_size": 128, "shared_expert_intermediate_size": 256, "partial_rotary_factor": ...,
        "full_attention_interval": ..., "rope_parameters": rope(rotary)}
    return changed(golden, **defaults | changes)


def deepseek(golden: dict, **changes) -> dict:
    """Every input a multiple of 128; one dense layer and one of experts in groups."""
    defaults = {
        "num_hidden_layers": 2, "first_k_dense_replace": 1, "vocab_size": VOCABULARY,
        "eos_token_id": VOCABULARY - 1, "hidden_size": 128, "intermediate_size": 384,
        "moe_intermediate_size": 128, "num_attention_heads": 4, "n_shared_experts": 2,
        "n_routed_experts": 12, "n_group": 3, "topk_group": 2, "num_experts_per_tok": 3,
        "kv_lora_rank": 128, "q_lora_rank": 128, "qk_rope_head_dim": 8, "qk_nope_head_dim": 24,
        "v_head_dim": 32, "rms_norm_eps": 1e-6}
    return changed(golden, **defaults | changes)


def yarn(golden: dict, **changes) -> dict:
    return {"rope_parameters": golden["rope_parameters"] | changes}


def qwen_cases(golden: dict) -> Iterator[Case]:
    for group in GROUPS:
        for bits in WIDTHS:
            yield Case(f"qwen {bits}-bit, groups of {group}",
                       qwen(golden, hidden_size=256 if bits == 4 else 128), affine(bits, group),
                       positions=4 + bits % 3)
    yield Case("qwen, a width for each matrix", qwen(golden), every_width(), one_expert=True)
    yield Case("qwen 397 experts, 20 a token",
               qwen(golden, hidden_size=64, head_dim=16, num_experts=397, num_experts_per_tok=20,
                    moe_intermediate_size=32, shared_expert_intermediate_size=32, linear_value_head_dim=16),
               affine(4, 32, QWEN_ROUTERS), one_expert=True, same=(("--chunk", 2), ("--threads", 2)),
               seen=({"num_experts_per_tok": 19}, {"num_experts_per_tok": 21}))
    odd = {"hidden_size": 67, "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 27,
           "linear_num_key_heads": 3, "linear_num_value_heads": 9, "linear_key_head_dim": 21,
           "linear_value_head_dim": 13, "moe_intermediate_size": 37, "shared_expert_intermediate_size": 51}
    yield Case("qwen odd widths, BF16, one expert a token, one kv head",
               qwen(golden, rotary=0.3, num_experts_per_tok=1, num_experts=5, linear_conv_kernel_dim=2,
                    **odd),
               plain(), bits=16, same=(("--chunk", 4),),
               seen=({"num_experts_per_tok": 2}, {"rms_norm_eps": 1e-2}))
    yield Case("qwen odd widths, F32, nothing shared, a convolution of 3",
               qwen(golden, rotary=0.5, linear_conv_kernel_dim=3, layer_types=[FULL, LINEAR, LINEAR],
                    **odd | {"shared_expert_intermediate_size": 0, "head_dim": 28}),
               plain("F32"), bits=16, positions=6)
    yield Case("qwen odd widths, F16, a large epsilon",
               qwen(golden, rotary=0.5, rms_norm_eps=0.03,
                    **odd | {"head_dim": 36, "moe_intermediate_size": 15}),
               plain("F16"), bits=16, positions=6, seen=({"rms_norm_eps": 0.04},))
    yield Case("qwen widths of no block, FP8",
               qwen(golden, **odd | {"hidden_size": 201, "moe_intermediate_size": 41, "head_dim": 40,
                                     "shared_expert_intermediate_size": 139, "linear_key_head_dim": 24}),
               fp8("BF16"), same=(("--batch", 3),))
    yield Case("qwen wide heads, tied, F16 scales",
               qwen(golden, head_dim=256, num_attention_heads=2, num_key_value_heads=1, rotary=1.0,
                    tie_word_embeddings=True, linear_key_head_dim=128, linear_value_head_dim=64,
                    linear_num_key_heads=1) | {"tie_word_embeddings": True},
               affine(4, 64, QWEN_ROUTERS, scales="F16"),
               seen=({"rope_parameters": rope(1.0, theta=2e4)},))
    yield Case("qwen only linear layers, all experts",
               qwen(golden, layer_types=[LINEAR] * 2, num_experts_per_tok=6), affine(8, 64))
    yield Case("qwen only full layers, F32 scales", qwen(golden, layer_types=[FULL] * 2, rotary=0.5),
               affine(6, 32, scales="F32"), seen=({"rope_parameters": rope(0.25)},))
    for bits in (4, 8):
        yield Case(f"qwen packed to {bits} bits", qwen(golden), plain(), bits=bits)
    yield Case("qwen FP8 packed to 4 bits", qwen(golden), fp8("F32"), bits=4)
    yield Case("qwen 300 positions", qwen(golden, num_experts_per_tok=2), affine(4, 64, QWEN_ROUTERS),
               positions=300, same=LONG_OPTIONS)
    yield Case("qwen 253 positions and 6 more one by one",
               qwen(golden, layer_types=[FULL], num_experts=4, num_experts_per_tok=1), affine(4, 64),
               positions=253, greedy=6, same=(("--chunk", 60), ("--threads", 2)))


def deepseek_cases(golden: dict) -> Iterator[Case]:
    for group in GROUPS:
        for bits in WIDTHS:
            yield Case(f"deepseek {bits}-bit, groups of {group}",
                       deepseek(golden, hidden_size=256 if bits == 4 else 128), affine(bits, group),
                       positions=4 + bits % 3)
    yield Case("deepseek, a width for each matrix", deepseek(golden), every_width(), one_expert=True)
    for layout, name in ((affine(4, 64), "4-bit"), (fp8("F32"), "FP8")):
        yield Case(f"deepseek 18432 inputs, {name}",
                   deepseek(golden, num_hidden_layers=1, intermediate_size=18432, hidden_size=64,
                            kv_lora_rank=64, q_lora_rank=64), layout, positions=5, same=(("--threads", 2),))
    yield Case("deepseek 397 experts, 20 a token",
               deepseek(golden, hidden_size=64, first_k_dense_replace=0, intermediate_size=...,
                        num_hidden_layers=1, n_routed_experts=397, n_group=1, topk_group=1,
                        num_experts_per_tok=20, moe_intermediate_size=32), affine(5, 32), one_expert=True,
               same=(("--chunk", 2),), seen=({"num_experts_per_tok": 19}, {"num_experts_per_tok": 21}))
    odd = {"hidden_size": 67, "intermediate_size": 75, "moe_intermediate_size": 37, "num_attention_heads": 3,
           "kv_lora_rank": 41, "q_lora_rank": 53, "qk_nope_head_dim": 19, "qk_rope_head_dim": 6,
           "v_head_dim": 11}
    yield Case("deepseek odd widths, BF16, no q_lora, one expert a token",
               deepseek(golden, **odd | {"q_lora_rank": None, "num_experts_per_tok": 1}), plain(), bits=16,
               same=(("--chunk", 4),), seen=({"num_experts_per_tok": 2}, {"rope_interleave": False},
                                             {"topk_group": 1}, {"routed_scaling_factor": 2.4}))
    yield Case("deepseek odd widths, F32, weights as they are, one group",
               deepseek(golden, norm_topk_prob=False, n_group=1, topk_group=1, n_shared_experts=1, **odd),
               plain("F32"), bits=16, one_expert=True, seen=({"norm_topk_prob": True}, {"n_group": 2}))
    yield Case("deepseek odd widths, F16, all experts of 2 groups of 4, nothing shared, no dense layer",
               deepseek(golden, **odd | {"first_k_dense_replace": 0, "intermediate_size": ..., "n_group": 4,
                                         "num_experts_per_tok": 6, "n_shared_experts": 0}),
               plain("F16"), bits=16, seen=({"topk_group": 3},))
    yield Case("deepseek widths of no block, FP8",
               deepseek(golden, **odd | {"hidden_size": 201, "intermediate_size": 261, "kv_lora_rank": 131,
                                         "q_lora_rank": 77}), fp8("BF16"), same=(("--batch", 3),))
    yield Case("deepseek half-split rope without YaRN",
               deepseek(golden, rope_interleave=False, qk_rope_head_dim=32, rope_parameters={
                   "rope_type": "default", "rope_theta": 1e4}), affine(4, 64), positions=20,
               seen=({"rope_interleave": True}, yarn(golden)))
    # DeepSeek's own code defaults to a mscale of 1 with a mscale_all_dim of 0.
    for name, scales in (("turned vectors longer", {"mscale": 1.0, "mscale_all_dim": 0.0}),
                         ("two magnitudes", {"mscale": 0.9, "mscale_all_dim": 0.4})):
        yield Case(f"deepseek YaRN, {name}",
                   deepseek(golden, qk_rope_head_dim=32, **yarn(golden, factor=8.0, beta_fast=2, **scales)),
                   affine(4, 64), positions=40,
                   seen=(yarn(golden, factor=8.0, beta_fast=2), yarn(golden, factor=8.0, **scales),
                         yarn(golden, factor=7.5, beta_fast=2, **scales)))
    yield Case("deepseek tied", deepseek(golden, tie_word_embeddings=True), affine(4, 32))
    yield Case("deepseek keys and values cut apart, BF16", deepseek(golden, **odd),
               affine(0, 64, split=True), bits=16)
    for bits, group in ((4, 32), (8, 64), (3, 64), (2, 128)):
        yield Case(f"deepseek keys and values cut apart, {bits}-bit, groups of {group}",
                   deepseek(golden, qk_nope_head_dim=group, num_attention_heads=3, v_head_dim=20),
                   affine(bits, group, split=True), positions=6)
    yield Case("deepseek keys 4-bit, values plain",
               deepseek(golden, qk_nope_head_dim=64), affine(4, 64, {"unembed_out": False}, split=True))
    for bits in (4, 8):
        yield Case(f"deepseek packed to {bits} bits", deepseek(golden, kv_lora_rank=72), plain(), bits=bits)
    yield Case("deepseek 300 positions", deepseek(golden, num_experts_per_tok=2), affine(4, 64),
               positions=300, same=LONG_OPTIONS)
    yield Case("deepseek 253 positions and 6 more one by one",
               deepseek(golden, first_k_dense_replace=1, num_hidden_layers=1, num_attention_heads=3),
               affine(4, 64), positions=253, greedy=6, same=(("--chunk", 60), ("--threads", 2)))


def cases() -> Iterator[Case]:
    yield from qwen_cases(load_golden("qwen35moe-tiny-bf16")[0])
    yield from deepseek_cases(load_golden("deepseekv3-tiny-bf16")[0])
