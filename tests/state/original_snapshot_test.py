#!/usr/bin/env python3
"""original_snapshot_test.py MOEFLUX LIBRARY: a snapshot of the original continues as a session of ours.

Writes version 2 snapshots of models with latent attention in numpy: latents and keys before their rotation
come from the float64 reference (tests/forward/reference64.py), the rotation from the original's own
arithmetic, which is written out below. LIBRARY loads them, and must hold the keys and give the logits of a
context that ran the same tokens.
"""

import ctypes
import pathlib
import struct
import subprocess
import sys
import tempfile

import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "source"), str(ROOT / "tests" / "forward")]

import reference64 as reference  # noqa: E402
import reference_reader  # noqa: E402

F = np.float32
TINY = ROOT / "tests" / "goldens" / "tiny"
AHEAD = 4  # tokens that both sessions run after the snapshot
# The positions of the second snapshot cross a block of 256 rows.
CASES = (("deepseekv3-tiny-mlx4", 60), ("deepseekv3-long-mlx4", 300))
# Derived in reference64.py for the rounding errors of float32. Keys and logits have about size 1 to 10.
BOUND = reference.HIDDEN_BOUND


# ---- The original ----


def original_frequencies(dims: int, base: F, yarn: dict) -> np.ndarray:
    """In float32 and with the factor of YaRN inside the power, which is its mistake."""
    factor = F(yarn["factor"])
    exponents = np.arange(0, dims, 2, dtype=F) / F(dims)
    extra = F(1) / np.power(base, exponents)
    inter = F(1) / np.power(factor * base, exponents)

    def correction(rotations: float) -> F:
        turns = F(yarn["original_max_position_embeddings"]) / (F(rotations) * F(2 * np.pi))
        return F(dims) * np.log(turns) / (F(2) * np.log(base))

    low, high = (np.clip(edge, F(0), F(dims - 1)) for edge in
                 (np.floor(correction(yarn["beta_fast"])), np.ceil(correction(yarn["beta_slow"]))))
    ramp = np.clip((np.arange(dims // 2, dtype=F) - low) / (high - low), F(0), F(1))
    return inter * ramp + extra * (F(1) - ramp)


def rotated_by_the_original(keys: np.ndarray, yarn: dict) -> np.ndarray:
    """[positions, dims]: channels i and i + dims/2 rotate together."""
    dims = keys.shape[1]
    frequencies = original_frequencies(dims, F(yarn["rope_theta"]), yarn)
    angles = np.arange(len(keys), dtype=F)[:, None] * frequencies
    assert yarn["mscale"] == yarn["mscale_all_dim"], "cosines and sines have no other factor"
    cos, sin = np.cos(angles), np.sin(angles)
    first, second = keys[:, : dims // 2].astype(F), keys[:, dims // 2 :].astype(F)
    return np.concatenate([first * cos - second * sin, first * sin + second * cos], axis=1)


def snapshot(config: dict, latents: list[np.ndarray], keys: list[np.ndarray]) -> bytes:
    heads, head_dim = config["num_attention_heads"], config["qk_nope_head_dim"] + config["qk_rope_head_dim"]
    body = struct.pack("<10I", 0x4D464C58, 2, len(keys), 1, heads, head_dim, 0, 0, config["kv_lora_rank"],
                       config["qk_rope_head_dim"])
    for latent, key in zip(latents, keys):
        body += struct.pack("<i", len(key)) + latent.astype("<f4").tobytes() + key.astype("<f4").tobytes()
    return body


# ---- The model ----


def states_of(checkpoint: pathlib.Path, ids: list[int]) -> tuple[dict, list[np.ndarray], list[np.ndarray]]:
    """The config, and per layer the normed latents and the keys before their rotation, in float64."""
    model = reference_reader.read_checkpoint(checkpoint)
    numbers = reference.Decoded(model.matrices)
    config = model.config
    inputs = reference.forward_of(config, numbers, ids)[1]
    latents, keys = [], []
    for layer in range(config["num_hidden_layers"]):
        name, eps = f"layers.{layer}", config["rms_norm_eps"]
        normed = reference.rms_norm(inputs[layer], numbers[f"{name}.input_layernorm"].astype("f8"), eps)
        joint = reference.linear(normed, numbers[f"{name}.self_attn.kv_a_proj_with_mqa"].astype("f8"))
        size = config["kv_lora_rank"]
        norm = numbers[f"{name}.self_attn.kv_a_layernorm"].astype("f8")
        latents.append(reference.rms_norm(joint[:, :size], norm, eps))
        keys.append(joint[:, size:])
    return config, latents, keys


def rotated_as_in_training(keys: np.ndarray, yarn: dict) -> np.ndarray:
    frequencies = reference.yarn_frequencies(yarn["rope_theta"], keys.shape[1], yarn)
    angles = np.arange(len(keys))[:, None] * frequencies
    return reference.rotate(keys[:, None], angles, interleaved=True)[:, 0]


# ---- The library ----


class Context:
    """The functions of the original, in float32 (mf_init_model computes with --precision exact)."""

    def __init__(self, library: str, model: pathlib.Path) -> None:
        self.c = ctypes.CDLL(library)
        self.c.mf_init_model.restype = ctypes.c_void_p
        for name in ("mf_last_error", "mf_n_vocab", "mf_state_size", "mf_state_save", "mf_state_load"):
            getattr(self.c, name).argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t][
                : 3 if name in ("mf_state_save", "mf_state_load") else 1]
        self.c.mf_last_error.restype = ctypes.c_char_p
        self.c.mf_n_vocab.restype = self.c.mf_state_size.restype = ctypes.c_size_t
        self.c.mf_state_save.restype = ctypes.c_longlong
        self.c.mf_eval_prompt.argtypes = [
            ctypes.c_void_p, ctypes.POINTER(ctypes.c_int32), ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int,
            ctypes.POINTER(ctypes.c_float)]
        self.handle = self.c.mf_init_model(str(model).encode(), None, None, None, 0, 0)
        assert self.handle, self.c.mf_last_error(None).decode()

    def eval(self, ids: list[int], position: int) -> np.ndarray:
        logits = (ctypes.c_float * self.c.mf_n_vocab(self.handle))()
        tokens = (ctypes.c_int32 * len(ids))(*ids)
        status = self.c.mf_eval_prompt(self.handle, tokens, len(ids), position, 0, logits)
        assert status == 0, self.c.mf_last_error(self.handle).decode()
        return np.array(logits[:])

    def load(self, file: bytes) -> None:
        status = self.c.mf_state_load(self.handle, file, len(file))
        assert status == 0, self.c.mf_last_error(self.handle).decode()

    def keys(self, config: dict, position: int) -> np.ndarray:
        """[layers, position, latent and key], from a snapshot file of version 4
        (docs/formats/snapshot.md)."""
        buffer = ctypes.create_string_buffer(self.c.mf_state_size(self.handle))
        size = self.c.mf_state_save(self.handle, buffer, len(buffer))
        assert size == len(buffer)
        assert struct.unpack_from("<I", buffer, 4)[0] == 4
        rows = config["kv_lora_rank"] + config["qk_rope_head_dim"]
        count = config["num_hidden_layers"] * position * rows
        first = size - 8 - 4 * count
        return np.frombuffer(buffer, "<f4", count, first).reshape(-1, position, rows).copy()


def largest(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.abs(a - b).max())


def check(moeflux: str, library: str, name: str, position: int, folder: pathlib.Path) -> None:
    packed = folder / name
    subprocess.run([moeflux, "pack", TINY / name, packed], check=True, capture_output=True)
    ids = [(i * 37 + 11) % 509 for i in range(position + AHEAD)]
    ids, ahead = ids[:position], ids[position:]
    config, latents, keys = states_of(TINY / name, ids)
    yarn = config["rope_parameters"]
    originals = [rotated_by_the_original(key, yarn) for key in keys]
    trained = [rotated_as_in_training(key, yarn) for key in keys]
    assert min(largest(a, b) for a, b in zip(originals, trained)) > 0.1, "the original rotates differently"

    own = Context(library, packed)
    own.eval(ids, 0)
    expected_keys, expected = own.keys(config, position), own.eval(ahead, position)
    imported = Context(library, packed)
    imported.load(snapshot(config, latents, originals))
    found_keys, found = imported.keys(config, position), imported.eval(ahead, position)
    print(f"{name}: keys differ by {largest(found_keys, expected_keys):.2e}, logits of up to "
          f"{np.abs(expected).max():.1f} by {largest(found, expected):.2e}")
    assert largest(found_keys, expected_keys) < BOUND and largest(found, expected) < BOUND

    # Keys that need no conversion would get a wrong one, and this test would notice.
    imported.load(snapshot(config, latents, trained))
    unlike = largest(imported.eval(ahead, position), expected)
    assert unlike > 20 * BOUND, f"{unlike:.2e}: these tokens do not depend on the rotation"


def main() -> None:
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory(prefix="original-snapshot-") as folder:
        for name, position in CASES:
            check(sys.argv[1], sys.argv[2], name, position, pathlib.Path(folder))


if __name__ == "__main__":
    main()
