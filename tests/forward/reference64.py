#!/usr/bin/env python3
"""Both families in float64, from the formulas alone: the reference for a forward pass.

It shares nothing with src/: weights come from tests/source/reference_reader.py, as the checkpoint decodes
them to float32, and every operation after that is in double precision. It favors clarity over speed and only
vectorizes over positions.

usage: reference64.py [--full] [CHECKPOINT GOLDEN.safetensors]
       compares itself with the goldens, which transformers computed in float32; without --full only with the
       first PREFIX positions of the long ones
"""

import dataclasses
import json
import pathlib
import struct
import sys
import time
from typing import Callable, Optional, Sequence, Union

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TINY, TERN = ROOT / "tests" / "goldens" / "tiny", ROOT / "tests" / "goldens" / "tern"
sys.path.insert(0, str(ROOT / "tests" / "source"))

import reference_reader  # noqa: E402

Numbers = np.ndarray
Weights = Callable[[str], Numbers]  # common name → [rows, cols] in float64; a vector is one row
ATTENTION_BLOCK = 256  # queries at a time, so that a long prompt's scores fit in memory
PREFIX = 700

# The rounding error of float32. Each layer passes on the error before it and adds its own, and a delta net
# whose output is small before its norm amplifies it: after eight layers, transformers is off by 1.2e-4 in
# hidden states of size 10 and by 1.7e-5 in router weights (qwen35moe-tiny), this script in float32 by 2e-4
# and 6e-5. Twice that is allowed. A wrong formula is off by 1e-2 and more.
HIDDEN_BOUND, ROUTER_BOUND = 4e-4, 1.2e-4


@dataclasses.dataclass
class Routed:
    """The choice of the router of one layer."""

    logits: Numbers  # [T, experts]
    weights: Numbers  # [T, K], of the experts in `ids`
    ids: Numbers  # [T, K]
    margin: Numbers  # [T]: the distance to another choice, in the values that the router sorts by


def sigmoid(x: Numbers) -> Numbers:
    return np.exp(-np.logaddexp(0, -x))


def silu(x: Numbers) -> Numbers:
    return x * sigmoid(x)


def softplus(x: Numbers) -> Numbers:
    return np.logaddexp(0, x)


def softmax(x: Numbers) -> Numbers:
    raised = np.exp(x - x.max(-1, keepdims=True))
    return raised / raised.sum(-1, keepdims=True)


def rms_norm(x: Numbers, weight: Union[Numbers, float], eps: float) -> Numbers:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + eps) * weight


def linear(x: Numbers, weight: Numbers) -> Numbers:
    return x @ weight.T


def swiglu(x: Numbers, weights: Weights, name: str) -> Numbers:
    gate, up = (linear(x, weights(f"{name}.{part}_proj")) for part in ("gate", "up"))
    return linear(silu(gate) * up, weights(f"{name}.down_proj"))


def rotate(x: Numbers, angles: Numbers, interleaved: bool, size: float = 1.0) -> Numbers:
    """Rotates the first channels of [T, heads, channels], two for each of the angles of [T, pairs]."""
    pairs = angles.shape[-1]
    cos, sin = np.cos(angles)[:, None] * size, np.sin(angles)[:, None] * size
    if interleaved:
        first, second = np.arange(0, 2 * pairs, 2), np.arange(1, 2 * pairs, 2)
    else:
        first, second = np.arange(pairs), np.arange(pairs, 2 * pairs)
    out = x.copy()
    out[..., first] = x[..., first] * cos - x[..., second] * sin
    out[..., second] = x[..., first] * sin + x[..., second] * cos
    return out


def attend(queries: Numbers, keys: Numbers, values: Numbers, scale: float) -> Numbers:
    """Causal attention, head by head: [T, heads, a], [T, heads, a], [T, heads, b] → [T, heads, b]."""
    count, heads = queries.shape[:2]
    out = np.empty((count, heads, values.shape[-1]))
    for head in range(heads):
        for begin in range(0, count, ATTENTION_BLOCK):
            end = min(begin + ATTENTION_BLOCK, count)
            scores = queries[begin:end, head] @ keys[:end, head].T * scale
            ahead = np.arange(end) > np.arange(begin, end)[:, None]
            out[begin:end, head] = softmax(np.where(ahead, -np.inf, scores)) @ values[:end, head]
    return out


def largest(scores: Numbers, count: int) -> tuple[Numbers, Numbers]:
    """The columns of the `count` largest of each row, the earlier of equals, and their margin."""
    order = np.argsort(-scores, axis=-1, kind="stable")
    if count == scores.shape[-1]:
        return order, np.full(len(scores), np.inf)
    ranked = np.take_along_axis(scores, order[:, count - 1 : count + 1], -1)
    with np.errstate(invalid="ignore"):
        return order[:, :count], ranked[:, 0] - ranked[:, 1]


def mix_experts(x: Numbers, routed: Routed, weights: Weights, name: str) -> Numbers:
    out = np.zeros_like(x)
    for expert in np.unique(routed.ids):
        rows, slots = np.nonzero(routed.ids == expert)
        out[rows] += routed.weights[rows, slots, None] * swiglu(x[rows], weights, f"{name}.{expert}")
    return out


def plain_frequencies(theta: float, dims: int) -> Numbers:
    return theta ** (-np.arange(0, dims, 2) / dims)


def yarn_magnitude(factor: float, scale: float) -> float:
    return 0.1 * scale * np.log(factor) + 1 if factor > 1 else 1.0


def yarn_frequencies(theta: float, dims: int, yarn: dict) -> Numbers:
    """Keeps high frequencies, divides low ones by the factor, with a ramp between two channels."""

    def channel_of(rotations: float) -> float:  # the one with this many rotations in the original context
        positions = yarn["original_max_position_embeddings"]
        return dims * np.log(positions / (rotations * 2 * np.pi)) / (2 * np.log(theta))

    low = max(np.floor(channel_of(yarn["beta_fast"])), 0)
    high = min(np.ceil(channel_of(yarn["beta_slow"])), dims - 1)
    high += 0.001 if high == low else 0
    ramp = np.clip((np.arange(dims // 2) - low) / (high - low), 0, 1)
    plain = plain_frequencies(theta, dims)
    return plain / yarn["factor"] * ramp + plain * (1 - ramp)


def gated_delta_net(x: Numbers, config: dict, weights: Weights, name: str) -> Numbers:
    count, eps = len(x), config["rms_norm_eps"]
    key_heads, value_heads = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key_size, value_size = config["linear_key_head_dim"], config["linear_value_head_dim"]

    # Each channel is a weighted sum of its last few values: the newest has the last weight.
    projected, taps = linear(x, weights(f"{name}.in_proj_qkv")), weights(f"{name}.conv1d")
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, projected.shape[1])), projected])
    mixed = silu(sum(padded[tap : tap + count] * taps[:, tap] for tap in range(width)))

    keys_width = key_heads * key_size
    queries, keys, values = np.split(mixed, [keys_width, 2 * keys_width], axis=-1)

    def unit(heads: Numbers) -> Numbers:
        heads = heads.reshape(count, key_heads, key_size)
        heads = heads / np.sqrt((heads * heads).sum(-1, keepdims=True) + 1e-6)
        return heads.repeat(value_heads // key_heads, axis=1)  # neighbors share a key head

    queries, keys = unit(queries) / np.sqrt(key_size), unit(keys)
    values = values.reshape(count, value_heads, value_size)
    steps = softplus(linear(x, weights(f"{name}.in_proj_a")) + weights(f"{name}.dt_bias"))
    decay = np.exp(-np.exp(weights(f"{name}.A_log")) * steps)
    beta = sigmoid(linear(x, weights(f"{name}.in_proj_b")))

    state = np.zeros((value_heads, key_size, value_size))
    out = np.empty((count, value_heads, value_size))
    for t in range(count):
        state = state * decay[t, :, None, None]
        remembered = (state * keys[t, :, :, None]).sum(1)
        change = (values[t] - remembered) * beta[t, :, None]
        state = state + keys[t, :, :, None] * change[:, None, :]
        out[t] = (state * queries[t, :, :, None]).sum(1)

    gate = linear(x, weights(f"{name}.in_proj_z")).reshape(out.shape)
    out = rms_norm(out, weights(f"{name}.norm"), eps) * silu(gate)
    return linear(out.reshape(count, -1), weights(f"{name}.out_proj"))


def gated_attention(x: Numbers, config: dict, weights: Weights, name: str) -> Numbers:
    count, eps = len(x), config["rms_norm_eps"]
    heads, kv_heads, size = config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]

    both = linear(x, weights(f"{name}.q_proj")).reshape(count, heads, 2, size)
    queries, gate = both[:, :, 0], both[:, :, 1]
    keys = linear(x, weights(f"{name}.k_proj")).reshape(count, kv_heads, size)
    values = linear(x, weights(f"{name}.v_proj")).reshape(count, kv_heads, size)
    queries = rms_norm(queries, weights(f"{name}.q_norm"), eps)
    keys = rms_norm(keys, weights(f"{name}.k_norm"), eps)

    rope = {**config, **config.get("rope_parameters", {})}
    dims = int(size * rope["partial_rotary_factor"])
    angles = np.arange(count)[:, None] * plain_frequencies(rope["rope_theta"], dims)
    queries, keys = (rotate(part, angles, interleaved=False) for part in (queries, keys))

    keys, values = (part.repeat(heads // kv_heads, axis=1) for part in (keys, values))
    out = attend(queries, keys, values, size**-0.5) * sigmoid(gate)
    return linear(out.reshape(count, -1), weights(f"{name}.o_proj"))


def softmax_router(x: Numbers, weights: Weights, name: str, experts_per_token: int) -> Routed:
    logits = linear(x, weights(name))
    ids, margin = largest(logits, experts_per_token)
    chosen = np.take_along_axis(softmax(logits), ids, -1)
    return Routed(logits, chosen / chosen.sum(-1, keepdims=True), ids, margin)


def qwen_layer(x: Numbers, layer: int, config: dict, weights: Weights,
               experts_per_token: int) -> tuple[Numbers, Routed]:
    name, eps = f"layers.{layer}", config["rms_norm_eps"]
    interval = config.get("full_attention_interval", 1)
    kinds = config.get("layer_types")
    full = kinds[layer] == "full_attention" if kinds else (layer + 1) % interval == 0
    normed = rms_norm(x, weights(f"{name}.input_layernorm"), eps)
    if full:
        x = x + gated_attention(normed, config, weights, f"{name}.self_attn")
    else:
        x = x + gated_delta_net(normed, config, weights, f"{name}.linear_attn")
    normed = rms_norm(x, weights(f"{name}.post_attention_layernorm"), eps)
    routed = softmax_router(normed, weights, f"{name}.mlp.gate", experts_per_token)
    out = mix_experts(normed, routed, weights, f"{name}.mlp.experts")
    if config["shared_expert_intermediate_size"]:
        gate = sigmoid(linear(normed, weights(f"{name}.mlp.shared_expert_gate")))
        out += gate * swiglu(normed, weights, f"{name}.mlp.shared_expert")
    return x + out, routed


def latent_attention(x: Numbers, config: dict, weights: Weights, has: Callable[[str], bool],
                     name: str) -> Numbers:
    count, eps = len(x), config["rms_norm_eps"]
    heads, latent_size = config["num_attention_heads"], config["kv_lora_rank"]
    nope, dims, value_size = config["qk_nope_head_dim"], config["qk_rope_head_dim"], config["v_head_dim"]

    if config["q_lora_rank"]:
        compressed = linear(x, weights(f"{name}.q_a_proj"))
        compressed = rms_norm(compressed, weights(f"{name}.q_a_layernorm"), eps)
        queries = linear(compressed, weights(f"{name}.q_b_proj"))
    else:
        queries = linear(x, weights(f"{name}.q_proj"))
    queries = queries.reshape(count, heads, nope + dims)

    joint = linear(x, weights(f"{name}.kv_a_proj_with_mqa"))
    latent = rms_norm(joint[:, :latent_size], weights(f"{name}.kv_a_layernorm"), eps)
    shared_key = joint[:, None, latent_size:]  # one for all heads, and not normalized
    if has(f"{name}.kv_b_proj"):
        expanded = linear(latent, weights(f"{name}.kv_b_proj")).reshape(count, heads, nope + value_size)
        keys, values = expanded[..., :nope], expanded[..., nope:]
    else:  # the same matrix in two parts: the keys of a head [latent, nope], its values [value, latent]
        embed = weights(f"{name}.embed_q").reshape(heads, latent_size, nope)
        keys = (latent @ embed).swapaxes(0, 1)
        values = linear(latent, weights(f"{name}.unembed_out")).reshape(count, heads, value_size)

    rope = config.get("rope_parameters") or {**config, **(config.get("rope_scaling") or {})}
    theta, scale, magnitude = rope["rope_theta"], (nope + dims) ** -0.5, 1.0
    if rope.get("rope_type", rope.get("type", "default")) == "yarn":
        frequencies = yarn_frequencies(theta, dims, rope)
        factor, mscale, all_dims = rope["factor"], rope["mscale"], rope["mscale_all_dim"]
        scale *= yarn_magnitude(factor, all_dims) ** 2 if all_dims else 1.0
        if mscale and all_dims:
            magnitude = yarn_magnitude(factor, mscale) / yarn_magnitude(factor, all_dims)
        else:
            magnitude = yarn_magnitude(factor, 1.0)
    else:
        frequencies = plain_frequencies(theta, dims)
    angles, interleaved = np.arange(count)[:, None] * frequencies, config.get("rope_interleave", True)
    turned = rotate(queries[..., nope:], angles, interleaved, magnitude)
    shared_key = rotate(shared_key, angles, interleaved, magnitude).repeat(heads, axis=1)

    queries = np.concatenate([queries[..., :nope], turned], axis=-1)
    keys = np.concatenate([keys, shared_key], axis=-1)
    out = attend(queries, keys, values, scale)
    return linear(out.reshape(count, -1), weights(f"{name}.o_proj"))


def grouped_router(x: Numbers, config: dict, weights: Weights, name: str, experts_per_token: int) -> Routed:
    """Sigmoid scores; the bias and the groups decide which experts are chosen, but not their weights."""
    logits = linear(x, weights(name))
    scores = sigmoid(logits)
    biased = scores + weights(f"{name}.e_score_correction_bias")
    groups = biased.reshape(len(x), config["n_group"], -1)
    group_scores = np.sort(groups, axis=-1)[..., -2:].sum(-1)
    kept, group_margin = largest(group_scores, config["topk_group"])
    is_kept = np.zeros(group_scores.shape, bool)
    np.put_along_axis(is_kept, kept, True, axis=-1)
    choice = np.where(is_kept[..., None], groups, -np.inf).reshape(biased.shape)
    ids, margin = largest(choice, experts_per_token)
    chosen = np.take_along_axis(scores, ids, -1)
    if config["norm_topk_prob"]:
        chosen = chosen / (chosen.sum(-1, keepdims=True) + 1e-20)
    return Routed(logits, chosen * config["routed_scaling_factor"], ids, np.minimum(margin, group_margin))


def deepseek_layer(x: Numbers, layer: int, config: dict, weights: Weights, has: Callable[[str], bool],
                   experts_per_token: int) -> tuple[Numbers, Optional[Routed]]:
    name, eps = f"layers.{layer}", config["rms_norm_eps"]
    normed = rms_norm(x, weights(f"{name}.input_layernorm"), eps)
    x = x + latent_attention(normed, config, weights, has, f"{name}.self_attn")
    normed = rms_norm(x, weights(f"{name}.post_attention_layernorm"), eps)
    if layer < config["first_k_dense_replace"]:
        return x + swiglu(normed, weights, f"{name}.mlp"), None
    routed = grouped_router(normed, config, weights, f"{name}.mlp.gate", experts_per_token)
    out = mix_experts(normed, routed, weights, f"{name}.mlp.experts")
    if config["n_shared_experts"]:
        out += swiglu(normed, weights, f"{name}.mlp.shared_experts")
    return x + out, routed


def forward_of(config: dict, numbers: dict[str, Numbers], ids: Sequence[int],
               experts_per_token: Optional[int] = None
               ) -> tuple[Numbers, list[Numbers], list[Optional[Routed]]]:
    """`config`: the keys of the text model. `numbers`: [rows, cols] by common name."""

    def weights(name: str) -> Numbers:
        return np.asarray(numbers[name], np.float64)

    deepseek = config["model_type"].startswith("deepseek")
    count = experts_per_token or config["num_experts_per_tok"]
    x = weights("embed_tokens")[np.asarray(ids)]
    hidden_states, routers = [x], []
    for layer in range(config["num_hidden_layers"]):
        if deepseek:
            x, routed = deepseek_layer(x, layer, config, weights, numbers.__contains__, count)
        else:
            x, routed = qwen_layer(x, layer, config, weights, count)
        hidden_states.append(x)
        routers.append(routed)
    hidden_states[-1] = x = rms_norm(x, weights("norm"), config["rms_norm_eps"])
    tied = config.get("tie_word_embeddings")
    return linear(x, weights("embed_tokens" if tied else "lm_head")), hidden_states, routers


class Decoded(dict):
    """The matrices of a checkpoint, decoded on demand."""

    def __init__(self, matrices: dict[str, reference_reader.Matrix]) -> None:
        super().__init__()
        self.matrices = matrices

    def __contains__(self, name: object) -> bool:
        return name in self.matrices

    def __missing__(self, name: str) -> Numbers:
        self[name] = self.matrices[name].decode()
        return self[name]


def forward(checkpoint_dir: Union[pathlib.Path, str], ids: Sequence[int],
            experts_per_token: Optional[int] = None
            ) -> tuple[Numbers, list[Numbers], list[Optional[Routed]]]:
    """Logits [T, vocabulary]; the embedding and the output of each layer, the last replaced by the normed
    input of the head; the choice of each layer's router, None for dense layers."""
    model = reference_reader.read_checkpoint(pathlib.Path(checkpoint_dir))
    return forward_of(model.config, Decoded(model.matrices), ids, experts_per_token)


def read_golden(path: pathlib.Path) -> dict[str, Numbers]:
    """The tensors of a golden: F32 and I32."""
    data = path.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        if name != "__metadata__":
            begin, end = entry["data_offsets"]
            kind = {"F32": "<f4", "I32": "<i4"}[entry["dtype"]]
            tensors[name] = np.frombuffer(data, kind, (end - begin) // 4, 8 + length + begin)
            tensors[name] = tensors[name].reshape(entry["shape"])
    return tensors


def goldens() -> list[tuple[pathlib.Path, pathlib.Path]]:
    """(checkpoint, golden) of every golden by transformers."""
    found = [(folder, folder / "golden.safetensors") for folder in sorted(TINY.iterdir())]
    return [*found, (ROOT / "models" / "tern", TERN / "golden_text.safetensors")]


def largest_difference(found: Numbers, expected: Numbers) -> float:
    return float(np.abs(found - expected).max(initial=0))


def router_differences(routed: Routed, golden: dict[str, Numbers], layer: int) -> tuple[float, float]:
    """Errors of logits and of weights; the order of the chosen experts does not matter."""
    logits, weights, ids = (golden[f"layer.{layer}.router.{part}"] for part in range(3))
    ours, theirs = routed.ids.argsort(-1), ids.argsort(-1)
    same = np.array_equal(np.take_along_axis(routed.ids, ours, -1), np.take_along_axis(ids, theirs, -1))
    assert same, f"layer {layer}: other experts"
    found = np.take_along_axis(routed.weights, ours, -1)
    return (largest_difference(routed.logits, logits),
            largest_difference(found, np.take_along_axis(weights, theirs, -1)))


def compare(checkpoint: pathlib.Path, golden_path: pathlib.Path, full: bool) -> str:
    """Prompt and greedy continuation in one pass, against all values of the golden."""
    golden = read_golden(golden_path)
    prompt, greedy = golden["input_ids"], golden.get("greedy_ids", np.zeros(0, "<i4"))
    is_long = "logit_positions" in golden
    positions = golden.get("logit_positions", np.arange(len(prompt)))
    expected, ids = golden["logits"], np.concatenate([prompt, greedy])
    if is_long and not full:
        kept = positions < PREFIX
        positions, expected, ids, greedy = positions[kept], expected[kept], ids[:PREFIX], greedy[:0]
    logits, hidden_states, routers = forward(checkpoint, ids)

    error = largest_difference(logits[positions], expected)
    said = [f"{len(positions)} rows of {len(ids)} positions", f"logits {error:.1e}"]
    bound = 1e-3 if is_long else 5e-4  # of transformers' own rounding, tests/goldens/README.md
    assert error < bound, f"logits differ by {error:.1e}"
    assert (logits[positions].argmax(-1) == expected.argmax(-1)).all(), "another most likely token"
    if len(greedy):
        error = largest_difference(logits[len(prompt) :], golden["greedy_logits"])
        chosen = logits[len(prompt) - 1 : -1].argmax(-1)
        assert error < bound and (chosen == greedy).all(), f"greedy logits differ by {error:.1e}, or ids"
        said.append(f"greedy logits {error:.1e}")
    if "hidden_states" in golden:
        rows = zip(hidden_states, golden["hidden_states"], strict=True)
        error = max(largest_difference(found[: len(prompt)], state) for found, state in rows)
        assert error < HIDDEN_BOUND, f"hidden states differ by {error:.1e}"
        said.append(f"hidden {error:.1e}")
    errors = []
    for layer, routed in enumerate(routers):
        if f"layer.{layer}.router.0" in golden:
            cut = Routed(*(part[: len(prompt)] for part in dataclasses.astuple(routed)))
            errors.append(router_differences(cut, golden, layer))
    if errors:
        logit_error, weight_error = np.max(errors, axis=0)
        assert weight_error < ROUTER_BOUND, f"router weights differ by {weight_error:.1e}"
        said.append(f"router logits {logit_error:.1e}, weights {weight_error:.1e}")
    return ", ".join(said)


def main() -> int:
    arguments = [argument for argument in sys.argv[1:] if argument != "--full"]
    if len(arguments) not in (0, 2):
        print(__doc__, file=sys.stderr)
        return 2
    pairs = [tuple(map(pathlib.Path, arguments))] if arguments else goldens()
    failed = 0
    for checkpoint, golden in pairs:
        began = time.monotonic()
        try:
            said = compare(checkpoint, golden, full="--full" in sys.argv)
            print(f"ok      {checkpoint.name}: {said}, {time.monotonic() - began:.1f} s", flush=True)
        except AssertionError as problem:
            failed += 1
            print(f"FAILED  {checkpoint.name}: {problem}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
