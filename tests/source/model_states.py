"""Models before they are written: weights as float32 under published names, from a golden or at random.

Names have no prefix ("layers.0.mlp.gate.weight", "lm_head.weight"), experts are fused (`gate_up_proj` is
[experts, 2 * hidden, dim]), the convolution is [channels, 1, width], Qwen norms are weight - 1: as Hugging
Face publishes them. layouts.py turns a state into the tensors of a checkpoint.
"""

import copy
import json
import pathlib
import re

import numpy as np

import reference_reader
from checkpoint_writer import rounded

GOLDENS = pathlib.Path(__file__).resolve().parents[1] / "goldens" / "tiny"
QWEN, DEEPSEEK = "qwen3_5_moe", "deepseek_v3"
State = dict[str, np.ndarray]


def load_golden(name: str) -> tuple[dict, State]:
    """The config and the state of a BF16 golden."""
    folder = GOLDENS / name
    config = json.loads((folder / "config.json").read_text())
    family = config["model_type"]
    state: State = {}
    separate: dict[str, dict[int, np.ndarray]] = {}
    for full_name, tensor in reference_reader.parse_checkpoint(folder).items():
        name = reference_reader.common_name(full_name, family)
        numbers = reference_reader.floats(tensor)
        if found := re.match(r"(.*\.mlp\.experts)\.(\d+)\.(\w+)\.weight$", name):
            separate.setdefault(f"{found[1]}.{found[3]}", {})[int(found[2])] = numbers
        else:
            state[name] = numbers
    stacks = {name: np.stack([of[i] for i in range(len(of))]) for name, of in separate.items()}
    for name, stack in stacks.items():
        if name.endswith("gate_proj"):
            both = np.concatenate([stack, stacks[name.replace("gate_proj", "up_proj")]], 1)
            state[name.replace("gate_proj", "gate_up_proj")] = both
        elif name.endswith("down_proj"):
            state[name] = stack
    return config, state


def text_of(config: dict) -> dict:
    return config.get("text_config", config)


def keep_layers(config: dict, state: State, count: int) -> tuple[dict, State]:
    """The same model, cut after `count` layers."""
    config = copy.deepcopy(config)
    text = text_of(config)
    text["num_hidden_layers"] = count
    if "layer_types" in text:
        text["layer_types"] = text["layer_types"][:count]

    def kept(name: str) -> bool:
        layer = re.match(r"layers\.(\d+)\.", name)
        return layer is None or int(layer[1]) < count

    return config, {name: numbers for name, numbers in state.items() if kept(name)}


class Dice:
    """Random BF16 weights with the corners in them: zeros, the smallest and large numbers."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def __call__(self, *shape: int) -> np.ndarray:
        numbers = self.random.standard_normal(shape, "<f4") * np.float32(0.05)
        if len(shape) > 1 and shape[-2] > 4:
            numbers[..., 0, :] = 0
            numbers[..., 1, :] = 0.75
            numbers[..., 2, 0] = 300
            numbers[..., 3, :] *= np.float32(1e-36)
        return rounded(numbers, "BF16")


def random_qwen(config: dict, seed: int) -> State:
    text, dice = text_of(config), Dice(seed)
    dim, hidden = text["hidden_size"], text["moe_intermediate_size"]
    shared, experts = text["shared_expert_intermediate_size"], text["num_experts"]
    head, heads, kv = text["head_dim"], text["num_attention_heads"], text["num_key_value_heads"]
    keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
    value_heads, value_size = text["linear_num_value_heads"], text["linear_value_head_dim"]
    values, channels = value_heads * value_size, 2 * keys + value_heads * value_size
    state = {"embed_tokens.weight": dice(text["vocab_size"], dim)}
    for i, kind in enumerate(text["layer_types"]):
        shapes = {"input_layernorm.weight": (dim,), "post_attention_layernorm.weight": (dim,)}
        if kind == "linear_attention":
            shapes |= {
                "linear_attn.in_proj_qkv.weight": (channels, dim),
                "linear_attn.in_proj_z.weight": (values, dim),
                "linear_attn.in_proj_a.weight": (value_heads, dim),
                "linear_attn.in_proj_b.weight": (value_heads, dim),
                "linear_attn.conv1d.weight": (channels, 1, text["linear_conv_kernel_dim"]),
                "linear_attn.A_log": (value_heads,),
                "linear_attn.dt_bias": (value_heads,),
                "linear_attn.norm.weight": (value_size,),
                "linear_attn.out_proj.weight": (dim, values),
            }
        else:
            shapes |= {
                "self_attn.q_proj.weight": (2 * heads * head, dim),
                "self_attn.k_proj.weight": (kv * head, dim),
                "self_attn.v_proj.weight": (kv * head, dim),
                "self_attn.o_proj.weight": (dim, heads * head),
                "self_attn.q_norm.weight": (head,),
                "self_attn.k_norm.weight": (head,),
            }
        shapes |= {
            "mlp.gate.weight": (experts, dim),
            "mlp.experts.gate_up_proj": (experts, 2 * hidden, dim),
            "mlp.experts.down_proj": (experts, dim, hidden),
        }
        if shared:
            shapes |= {
                "mlp.shared_expert.gate_proj.weight": (shared, dim),
                "mlp.shared_expert.up_proj.weight": (shared, dim),
                "mlp.shared_expert.down_proj.weight": (dim, shared),
                "mlp.shared_expert_gate.weight": (1, dim),
            }
        state |= {f"layers.{i}.{name}": dice(*shape) for name, shape in shapes.items()}
    return state | {"norm.weight": dice(dim), "lm_head.weight": dice(text["vocab_size"], dim)}


def random_deepseek(config: dict, seed: int) -> State:
    dice = Dice(seed)
    dim, hidden, experts = config["hidden_size"], config["moe_intermediate_size"], config["n_routed_experts"]
    heads, latent, query_latent = (
        config["num_attention_heads"], config["kv_lora_rank"], config["q_lora_rank"])
    nope, rope, value = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]
    state = {"embed_tokens.weight": dice(config["vocab_size"], dim)}

    def swiglu(name: str, width: int) -> dict[str, tuple[int, int]]:
        return {
            f"{name}.gate_proj.weight": (width, dim),
            f"{name}.up_proj.weight": (width, dim),
            f"{name}.down_proj.weight": (dim, width),
        }

    for i in range(config["num_hidden_layers"]):
        shapes: dict[str, tuple[int, ...]] = {
            "input_layernorm.weight": (dim,),
            "post_attention_layernorm.weight": (dim,),
            "self_attn.kv_a_proj_with_mqa.weight": (latent + rope, dim),
            "self_attn.kv_a_layernorm.weight": (latent,),
            "self_attn.kv_b_proj.weight": (heads * (nope + value), latent),
            "self_attn.o_proj.weight": (dim, heads * value),
        }
        if query_latent:
            shapes |= {
                "self_attn.q_a_proj.weight": (query_latent, dim),
                "self_attn.q_a_layernorm.weight": (query_latent,),
                "self_attn.q_b_proj.weight": (heads * (nope + rope), query_latent),
            }
        else:
            shapes |= {"self_attn.q_proj.weight": (heads * (nope + rope), dim)}
        if i < config["first_k_dense_replace"]:
            shapes |= swiglu("mlp", config["intermediate_size"])
        else:
            shapes |= {
                "mlp.gate.weight": (experts, dim),
                "mlp.gate.e_score_correction_bias": (experts,),
                "mlp.experts.gate_up_proj": (experts, 2 * hidden, dim),
                "mlp.experts.down_proj": (experts, dim, hidden),
            }
            if config["n_shared_experts"]:
                shapes |= swiglu("mlp.shared_experts", config["n_shared_experts"] * hidden)
        state |= {f"layers.{i}.{name}": dice(*shape) for name, shape in shapes.items()}
    return state | {"norm.weight": dice(dim), "lm_head.weight": dice(config["vocab_size"], dim)}
