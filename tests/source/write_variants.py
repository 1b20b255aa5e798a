#!/usr/bin/env python3
"""write_variants.py DST: checkpoints of the kinds that people have, made from the BF16 goldens and at random.

Each variant is a way in which a published checkpoint may differ from the goldens: bits, groups, overrides,
names, old spellings of a config, other layouts, shapes that are no powers of two.
"""

import copy
import dataclasses
import pathlib
import sys
from typing import Iterator

from checkpoint_writer import Tensors, plain, write_checkpoint
from layouts import QWEN_ROUTERS, Plan, hugging_face, mlx
from model_states import (
    DEEPSEEK, QWEN, Dice, State, keep_layers, load_golden, random_deepseek, random_qwen, text_of)

FP8 = {
    "quantization_config": {
        "activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8", "weight_block_size": [128, 128]}
}


@dataclasses.dataclass
class Variant:
    name: str
    config: dict
    tensors: Tensors
    shards: int = 1
    skipped: int = 0  # tensors that are there and not used
    notes: tuple[str, ...] = ()  # what `inspect` must say, one part of each note; nothing else

    def write(self, folder: pathlib.Path) -> None:
        write_checkpoint(folder, self.config, self.tensors, self.shards)


def changed(config: dict, **changes) -> dict:
    """A copy with keys of the text model set; ... removes one."""
    config = copy.deepcopy(config)
    for key, value in changes.items():
        if value is ...:
            text_of(config).pop(key, None)
        else:
            text_of(config)[key] = value
    return config


def flat(config: dict) -> dict:
    return {**{key: value for key, value in config.items() if key != "text_config"}, **config["text_config"],
            "model_type": "qwen3_5_moe_text"}


def odd_qwen(config: dict, **changes) -> tuple[dict, State]:
    """Keys and values of different sizes, one kv head, three widths of experts' hidden layers, odd counts."""
    config = changed(config, **{
        "num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "vocab_size": 331, "eos_token_id": [7, 330], "hidden_size": 192, "num_attention_heads": 3,
        "num_key_value_heads": 1, "head_dim": 64, "linear_num_key_heads": 3, "linear_num_value_heads": 9,
        "linear_key_head_dim": 24, "linear_value_head_dim": 64, "linear_conv_kernel_dim": 3,
        "num_experts": 7, "num_experts_per_tok": 5, "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 320} | changes)
    return config, random_qwen(config, seed=1)


def odd_deepseek(config: dict, **changes) -> tuple[dict, State]:
    """Three heads, wide keys and narrow values, two shared experts, counts that are no powers of two."""
    config = changed(config, **{
        "num_hidden_layers": 3, "vocab_size": 331, "eos_token_id": 330, "hidden_size": 192,
        "intermediate_size": 320, "moe_intermediate_size": 64, "num_attention_heads": 3,
        "n_shared_experts": 2, "n_routed_experts": 9, "n_group": 3, "topk_group": 2,
        "num_experts_per_tok": 5, "kv_lora_rank": 64, "q_lora_rank": 128, "qk_rope_head_dim": 24,
        "qk_nope_head_dim": 64, "v_head_dim": 32,
        "first_k_dense_replace": 2} | changes)
    return config, random_deepseek(config, seed=2)


def qwen_quantized(config: dict, state: State) -> Iterator[Variant]:
    short_config, short = keep_layers(config, state, 4)
    for bits in (2, 3, 4, 5, 6, 8):
        for group in (32, 64, 128):
            tensors, more = mlx(short, QWEN, Plan(bits, group, overrides=QWEN_ROUTERS))
            yield Variant(f"qwen mlx {bits}-bit group {group}", short_config | more, tensors)
    mixed = Plan(4, overrides={
        "layers.0.mlp.gate": (8, 64), "layers.1.mlp.gate": False, "layers.2.mlp.gate": True,
        "layers.0.mlp.shared_expert_gate": (8, 32), "layers.3.self_attn.q_proj": (3, 128),
        "layers.3.self_attn.v_proj": (6, 32), "layers.1.mlp.switch_mlp.down_proj": (6, 32),
        "layers.2.mlp.switch_mlp.gate_proj": (5, 64), "layers.0.mlp.switch_mlp.up_proj": False,
        "layers.3.mlp.switch_mlp.down_proj": False, "lm_head": (6, 64), "embed_tokens": (8, 128)})
    tensors, more = mlx(short, QWEN, mixed)
    yield Variant("qwen mlx mixed overrides", short_config | more, tensors)
    yield Variant("qwen mlx only quantization_config", short_config | {
        "quantization_config": more["quantization_config"]}, tensors)
    other = {"quantization": more["quantization"], "quantization_config": {"bits": 8, "group_size": 32}}
    yield Variant("qwen mlx copies of quantization differ", short_config | other, tensors,
                  notes=("'quantization' and 'quantization_config' differ",))
    for scales in ("F16", "F32"):
        tensors, more = mlx(short, QWEN, Plan(4, overrides=QWEN_ROUTERS, scales=scales))
        yield Variant(f"qwen mlx {scales} scales", short_config | more, tensors)
    tensors, more = mlx(short, QWEN, Plan(4, overrides=QWEN_ROUTERS), parameters="BF16")
    yield Variant("qwen mlx A_log in BF16", short_config | more, tensors)
    tensors, more = mlx(short, QWEN, Plan(4, overrides=QWEN_ROUTERS))
    yield Variant("qwen mlx in 3 shards", short_config | more, tensors, shards=3)
    tensors, more = mlx(short, QWEN, Plan(0))
    yield Variant("qwen mlx not quantized", short_config, tensors)
    tensors, more = mlx(short, QWEN, Plan(4, overrides=QWEN_ROUTERS), prefix="model.")
    yield Variant("qwen mlx flat, model. names", flat(short_config) | more, tensors)


def qwen_configs(config: dict, state: State) -> Iterator[Variant]:
    config, state = keep_layers(config, state, 4)
    yield Variant("qwen hf flat, model. names", flat(config), hugging_face(state, QWEN, prefix="model."))
    old = changed(config, layer_types=..., full_attention_interval=4, rope_parameters=...,
                  rope_theta=1e7, partial_rotary_factor=0.25)
    yield Variant("qwen hf old spellings", old, hugging_face(state, QWEN))
    both = changed(config, full_attention_interval=2, rope_theta=5e6, partial_rotary_factor=0.5)
    yield Variant("qwen hf old spellings that differ", both, hugging_face(state, QWEN), notes=(
        "'layer_types' and 'full_attention_interval' differ", "'rope_theta' is 1e+07 in rope_parameters",
        "'partial_rotary_factor' is 0.25 in rope_parameters"))
    tied = changed(config, tie_word_embeddings=True) | {"tie_word_embeddings": True}
    tensors = hugging_face(state, QWEN)
    yield Variant("qwen hf tied, with a head", tied, tensors, skipped=1,
                  notes=("skipped 1 tensors 'lm_head.",))
    del tensors["lm_head.weight"]
    yield Variant("qwen hf tied", tied, tensors)
    yield Variant("qwen hf tied at the top only", changed(config, tie_word_embeddings=...) | {
        "tie_word_embeddings": True}, tensors)
    more = {"mtp.fc.weight": plain(Dice(3)(8, 8)), "mtp.layers.0.mlp.gate.weight": plain(Dice(4)(8, 8)),
            "model.visual.patch_embed.proj.weight": plain(Dice(5)(4, 3, 2, 2)),
            "model.visual.blocks.0.norm1.bias": plain(Dice(6)(5), "F32")}
    yield Variant("qwen hf with mtp and vision",
                  config | {"vision_config": {"depth": 1}, "image_token_id": 5},
                  hugging_face(state, QWEN) | more, skipped=4, shards=2,
                  notes=("skipped 2 tensors 'mtp.*'", "skipped 2 tensors 'model.visual.*'"))
    tensors, quantization = mlx(state, QWEN, Plan(4, overrides=QWEN_ROUTERS))
    more = {"vision_tower.blocks.0.norm.weight": plain(Dice(7)(9)),
            "language_model.mtp.fc.weight": plain(Dice(8)(8, 8))}
    yield Variant("qwen mlx with mtp and vision", config | quantization, tensors | more, skipped=2,
                  notes=("skipped 1 tensors 'language_model.mtp.*'", "skipped 1 tensors 'vision_tower.*'"))


def qwen_layouts(config: dict, state: State) -> Iterator[Variant]:
    config, state = keep_layers(config, state, 4)
    yield Variant("qwen hf separate experts", config, hugging_face(state, QWEN, fused=False))
    yield Variant("qwen hf A_log in BF16", config, hugging_face(state, QWEN, parameters="BF16"))
    for dtype in ("F16", "F32"):
        yield Variant(f"qwen hf {dtype}", config, hugging_face(state, QWEN, dtype=dtype))
    for scales in ("BF16", "F32"):
        tensors = hugging_face(state, QWEN, fused=False, fp8_scales=scales)
        yield Variant(f"qwen hf fp8, {scales} scales", config | FP8, tensors)


def qwen_shapes(golden: dict) -> Iterator[Variant]:
    config, state = odd_qwen(golden)
    yield Variant("qwen odd shapes, hf", config, hugging_face(state, QWEN))
    yield Variant("qwen odd shapes, hf fp8", config | FP8,
                  hugging_face(state, QWEN, fused=False, fp8_scales="BF16"))
    for bits, group in ((4, 64), (3, 32)):
        tensors, more = mlx(state, QWEN, Plan(bits, group, overrides=QWEN_ROUTERS))
        yield Variant(f"qwen odd shapes, mlx {bits}-bit group {group}", config | more, tensors)
    config, state = odd_qwen(golden, hidden_size=200, moe_intermediate_size=40,
                             shared_expert_intermediate_size=136)
    yield Variant("qwen widths of no block, hf fp8", config | FP8,
                  hugging_face(state, QWEN, fused=False, fp8_scales="BF16"), shards=3)
    config, state = odd_qwen(golden, moe_intermediate_size=96, shared_expert_intermediate_size=0)
    tensors, more = mlx(state, QWEN, Plan(4, overrides=QWEN_ROUTERS))  # 96 is no multiple of 64: plain
    yield Variant("qwen mlx, down_proj plain, nothing shared", config | more, tensors)


def deepseek_layouts(config: dict, state: State) -> Iterator[Variant]:
    yield Variant("deepseek hf fused experts", config, hugging_face(state, DEEPSEEK))
    tensors = hugging_face(state, DEEPSEEK, fused=False, parameters="BF16")
    yield Variant("deepseek hf bias in BF16", config, tensors)
    tensors = hugging_face(state, DEEPSEEK, fused=False, fp8_scales="BF16")
    yield Variant("deepseek hf fp8, BF16 scales, 3 shards", config | FP8, tensors, shards=3)
    heads, nope = config["num_attention_heads"], config["qk_nope_head_dim"]
    more = {f"model.layers.4.{name}": plain(Dice(9)(8, 8)) for name in ("eh_proj.weight", "mlp.gate.weight")}
    more |= {"model.layers.0.self_attn.rotary_emb.inv_freq": plain(Dice(10)(8), "F32")}
    yield Variant("deepseek hf with mtp and inv_freq", config,
                  hugging_face(state, DEEPSEEK, fused=False) | more, skipped=3,
                  notes=("skipped 2 tensors 'model.layers.4.*'",))
    for parameters in ("F32", "BF16"):
        tensors, more = mlx(state, DEEPSEEK, Plan(4), parameters=parameters)
        yield Variant(f"deepseek mlx, bias in {parameters}", config | more, tensors)
    tensors, _ = mlx(state, DEEPSEEK, Plan(0), split_heads=heads, nope_dim=nope)
    yield Variant("deepseek mlx not quantized, kv_b split", config, tensors)
    for bits, group in ((4, 32), (8, 32), (3, 32), (4, 64)):  # 64: embed_q has 32 columns and stays plain
        tensors, more = mlx(state, DEEPSEEK, Plan(bits, group), split_heads=heads, nope_dim=nope)
        yield Variant(f"deepseek mlx {bits}-bit group {group}, kv_b split", config | more, tensors)
    mixed = Plan(4, overrides={"embed_q": (8, 32), "layers.2.self_attn.unembed_out": (6, 32),
                               "q_b_proj": False, "layers.1.mlp.switch_mlp.down_proj": (2, 32)})
    tensors, more = mlx(state, DEEPSEEK, mixed, split_heads=heads, nope_dim=nope)
    yield Variant("deepseek mlx mixed overrides", config | more, tensors)


def deepseek_shapes(golden: dict) -> Iterator[Variant]:
    yarn = golden["rope_parameters"]
    old_yarn = {key: value for key, value in yarn.items() if key not in ("rope_theta", "rope_type")}
    cases = {
        "two shared experts": {},
        "no q_lora": {"q_lora_rank": None},
        "no dense layers": {"first_k_dense_replace": 0, "intermediate_size": ...},
        "only dense layers but one, nothing shared": {"n_shared_experts": 0},
        "norm_topk_prob off, one group": {"norm_topk_prob": False, "n_group": 1, "topk_group": 1},
        "plain rope": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
        "plain rope, old spelling": {"rope_parameters": ..., "rope_theta": 1e4, "rope_scaling": None},
        "yarn, old spelling": {
            "rope_parameters": ..., "rope_theta": 1e4, "rope_scaling": old_yarn | {"type": "yarn"}},
        "half-split rope": {"rope_interleave": False},
        "tied": {"tie_word_embeddings": True},
    }
    for name, changes in cases.items():
        config, state = odd_deepseek(golden, **changes)
        if changes.get("tie_word_embeddings"):
            del state["lm_head.weight"]
        yield Variant(f"deepseek {name}", config, hugging_face(state, DEEPSEEK, fused=False))
    differing = {"rope_theta": 2e4, "rope_scaling": old_yarn | {"type": "yarn", "factor": 4.0}}
    config, state = odd_deepseek(golden, **differing)
    tensors = hugging_face(state, DEEPSEEK, fused=False)
    yield Variant("deepseek old spellings that differ", config, tensors, notes=(
        "'rope_theta' is 10000 in rope_parameters", "'rope_parameters' and 'rope_scaling' differ"))
    config, state = odd_deepseek(golden)
    tensors, more = mlx(state, DEEPSEEK, Plan(4), split_heads=3, nope_dim=64)
    yield Variant("deepseek odd shapes, mlx", config | more, tensors, shards=2)
    config, state = odd_deepseek(golden, hidden_size=200, intermediate_size=261, moe_intermediate_size=40,
                                 kv_lora_rank=72, q_lora_rank=None, v_head_dim=20)
    for scales in ("F32", "BF16"):
        tensors = hugging_face(state, DEEPSEEK, fused=False, fp8_scales=scales)
        yield Variant(f"deepseek widths of no block, hf fp8 {scales}", config | FP8, tensors)
    config, state = odd_deepseek(golden, intermediate_size=261, moe_intermediate_size=96, kv_lora_rank=72)
    tensors, more = mlx(state, DEEPSEEK, Plan(4))
    yield Variant("deepseek widths of no group, mlx", config | more, tensors)


def variants() -> Iterator[Variant]:
    config, state = load_golden("qwen35moe-tiny-bf16")
    yield from qwen_quantized(config, state)
    yield from qwen_configs(config, state)
    yield from qwen_layouts(config, state)
    yield from qwen_shapes(config)
    config, state = load_golden("deepseekv3-tiny-bf16")
    yield from deepseek_layouts(config, state)
    yield from deepseek_shapes(config)


def main() -> int:
    if len(sys.argv) != 2:
        print("usage: write_variants.py DST", file=sys.stderr)
        return 2
    for variant in variants():
        variant.write(pathlib.Path(sys.argv[1]) / variant.name.replace(" ", "-").replace(",", ""))
    return 0


if __name__ == "__main__":
    sys.exit(main())
