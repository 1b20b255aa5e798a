"""The table of hostile inputs: what is wrong, how to make it, the exit code, the facts the message must
state.

A fact is a text that must appear in the message as whole words, or a compiled pattern that must match. Exit
code 0 means that the input is enormous but valid: it must open within the same limits, and the page must
state the facts.
"""

import os
import re
from dataclasses import dataclass
from typing import Union

from forge import (
    DEEPSEEK, FP8, MAX_HEADER, QWEN, QWEN_BF16, Builder, bare, beside, compact, config_text, entry,
    file_bytes, full_index, header, largest_header, linked, manifest_text, many_tensors, metadata,
    model, one_pair, original, place, pointing_at, quant_method, quantization, separate_experts,
    sharded, shards_of, sizes, stacked_experts,
)


Fact = Union[str, re.Pattern]


@dataclass(frozen=True)
class Case:
    name: str
    build: Builder
    exit_code: int
    facts: tuple[Fact, ...]
    check: bool = False  # run with --check


def bad(name: str, build: Builder, *facts: Fact) -> Case:
    return Case(name, build, 3, facts)


def bad_number(name: str, build: Builder, *facts: Fact) -> Case:
    return Case(name, build, 3, facts, check=True)


def valid(name: str, build: Builder, *facts: Fact) -> Case:
    return Case(name, build, 0, facts)


def one_tensor(dtype="U8", shape=(8,), begin=0, end=8, **more) -> dict:
    return {"a": {**entry(dtype, list(shape), begin, end), **more}}


Q0 = "language_model.model.layers.0."
Z = Q0 + "linear_attn.in_proj_z"
EXPERTS = Q0 + "mlp.switch_mlp.gate_proj"
D0 = "model.layers.0."
DEEP = b"[" * 100_000
SECOND_SHARD = "model-00002-of-00002.safetensors"
BF16_NAN, BF16_INF = b"\xc0\x7f", b"\x80\x7f"
F32_NAN, F32_INF = b"\0\0\xc0\x7f", b"\0\0\x80\x7f"


def without_scales(checkpoint):
    """A module of plain floats that the config insists on calling quantized."""
    checkpoint.config["quantization"][Z] = {"bits": 4, "group_size": 64}
    checkpoint.drop(Z + ".scales", Z + ".biases")
    checkpoint.hole(Z + ".weight", "BF16", [128, 128])


FILES = [
    bad("an empty file", file_bytes(lambda b: b""), "model.safetensors", "0 bytes"),
    bad("a file of 7 bytes", file_bytes(lambda b: b[:7]), "model.safetensors", "7 bytes"),
    bad(
        "a file that ends in its header", file_bytes(lambda b: b[:1000]),
        "22424", "992", "incomplete",
    ),
    bad(
        "a file that ends in its data", file_bytes(lambda b: b[:-100_000]),
        re.compile("tensor '.*' .* bytes"), "incomplete",
    ),
    bad(
        "a header length of 2^63", file_bytes(lambda b: b"\0" * 7 + b"\x80" + b[8:]),
        "9223372036854775808", str(MAX_HEADER),
    ),
    bad(
        "a header length of 2^64 - 1", file_bytes(lambda b: b"\xff" * 8 + b[8:]),
        "18446744073709551615",
    ),
    bad(
        "a header of 1 GB, and a file that has it",
        file_bytes(lambda b: (10**9).to_bytes(8, "little") + b"{", size=10**9 + 8),
        "1000000000", str(MAX_HEADER),
    ),
    bad(
        "a header of 100 MB, and a file that has it",
        file_bytes(lambda b: (10**8).to_bytes(8, "little") + b"{", size=10**8 + 8),
        "100000000", str(MAX_HEADER),
    ),
    bad(
        "a header that is larger by one byte than is read", header(b"{", MAX_HEADER, MAX_HEADER + 1),
        "33554432",
    ),
    bad("a header of zeros", header(b"", MAX_HEADER, MAX_HEADER), "JSON", "NUL", "byte 0"),
    bad(
        "a header of spaces", header(lambda: b" " * MAX_HEADER),
        "1048576", "byte 0",
    ),
    bad("a header that is not JSON", header(b"hello, world"), "JSON", "byte 1"),
    bad("a header that is an array", header(b"[]"), "array"),
    bad("a header with something after its end", header(b"{}{}"), "JSON", "byte 3"),
    bad("a header with a NUL after its end", header(b"{}\0{"), "JSON", "NUL", "byte 2"),
    bad(
        "100,000 arrays inside each other in a header", header(DEEP),
        "array",
    ),
    bad(
        "100,000 arrays inside each other in the metadata", header(b'{"__metadata__":{"a":' + DEEP),
        "'__metadata__'", "deeply",
    ),
    bad(
        "a name of 32 MiB", header(lambda: b'{"' + b"a" * (MAX_HEADER - 6) + b'":1}'),
        "1048576", "byte 1", "string", "number",
    ),
    bad(
        "a string of 32 MiB without an end", header(lambda: b'{"' + b'\\"' * (MAX_HEADER // 2 - 1)),
        "1048576", "string", "number",
    ),
    bad(
        "a number of 32 MiB", header(lambda: b'{"a":{"shape":[' + b"1" * (MAX_HEADER - 15)),
        "1048576", "string", "number",
    ),
    bad("32 MiB of metadata", header(lambda: metadata(MAX_HEADER)), "qwen3_5_moe"),
]

TENSORS = [
    bad(
        "a tensor that is listed twice",
        header(b'{"a":%b,"b":%b,"a":%b}' % tuple(compact(entry("U8", [4], i, i + 4)) for i in (0, 4, 8)), 12),
        "'a'", "twice",
    ),
    bad(
        "two tensors that overlap", header({"a": entry("U8", [8], 0, 8), "b": entry("U8", [8], 7, 15)}, 15),
        "'a'", "'b'", "byte 7", "overlap",
    ),
    bad(
        "two tensors in the same bytes",
        header({"a": entry("U8", [8], 0, 8), "b": entry("U8", [8], 0, 8)}, 8), "overlap",
    ),
    bad(
        "an offset of 2^64 - 1", header(one_tensor(begin=2**64 - 1, end=2**64 - 1, shape=[0]), 8),
        "'a'", "18446744073709551615", "8",
    ),
    bad("an end of 2^64 - 1", header(one_tensor(end=2**64 - 1), 8), "'a'", "18446744073709551615", "8"),
    bad(
        "an offset of 2^64", header(one_tensor(end=2**64), 8),
        "'a'", "'18446744073709551616'", "number",
    ),
    bad(
        "an offset of 10^400",
        header(b'{"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1%b]}}' % (b"0" * 400), 8),
        "JSON",
    ),
    bad(
        "a tensor that ends before it begins", header(one_tensor(begin=8, end=0), 8),
        "'a'", "byte 0", "8",
    ),
    bad(
        "a tensor with one offset", header({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0]}}, 8),
        "'a'", "data_offsets", "2", "1",
    ),
    bad(
        "a tensor with three offsets",
        header({"a": {"dtype": "U8", "shape": [8], "data_offsets": [0, 8, 8]}}, 8),
        "'a'", "data_offsets", "2",
    ),
    bad(
        "a shape whose product is 2^64", header(one_tensor(shape=[2**32, 2**32], end=0), 8),
        "'a'", "[4294967296, 4294967296]", "0",
    ),
    bad(
        "a shape whose bits are 2^64 times some", header(one_tensor("F64", [2**58 + 1], 0, 8), 8),
        "'a'", "F64", "8",
    ),
    bad(
        "a shape that is not its bytes", header(one_tensor("F32", [3]), 8),
        "'a'", "F32", "[3]", "8",
    ),
    bad("half a byte", header(one_tensor("F4", [3], 0, 1), 1), "'a'", "F4", "[3]", "1"),
    bad("a negative dimension", header(one_tensor(shape=[-8]), 8), "'a'", "-8"),
    bad("a fractional dimension", header(one_tensor(shape=[8.5]), 8), "'a'", "'8.5'"),
    bad(
        "a dimension in quotes", header(one_tensor(shape=["8"]), 8),
        "'a'", "string",
    ),
    bad(
        "a shape inside a shape", header(one_tensor(shape=[[8]]), 8),
        "'a'", "array",
    ),
    bad("nine dimensions", header(one_tensor(shape=[1] * 9, end=1), 8), "'a'", "8 dimensions"),
    bad("an unknown dtype", header(one_tensor("Q4_K"), 8), "'a'", "'Q4_K'", "unknown"),
    bad(
        "a tensor without a dtype", header({"a": {"shape": [8], "data_offsets": [0, 8]}}, 8),
        "'a'", "'dtype'",
    ),
    bad("an unknown key", header(one_tensor(strides=[1]), 8), "'a'", "'strides'", "unknown"),
    bad(
        "a key twice in a tensor", header(b'{"a":{"dtype":"U8","dtype":"F32"}}', 8),
        "'a'", "repeats",
    ),
    bad("200,000 tensors", header(lambda: many_tensors(200_000)), "131072"),
    bad("as many tensors as are read, in 32 MiB", header(largest_header), "qwen3_5_moe"),
    bad("a name that is not UTF-8", header(b'{"\xff\xfe":{}}'), "JSON", "byte 3"),
    bad(
        "control characters in a name", header({"\x1b[31mred\x07\x9b2J\n": {"dtype": "Q\x1b[0m"}}),
        "'?[31mred??2J?'", "'Q?[0m'", "unknown",
    ),
    bad(
        "a name of 1 MB", header(lambda: compact({"a" * 1_000_000: {"dtype": "X"}})),
        "'" + "a" * 120 + "...'", "unknown",
    ),
]

NUMBERS = [
    bad_number(
        "a scale that is NaN", model(QWEN, lambda c: c.poke(Z + ".scales", 10, BF16_NAN)),
        "linear_attn.in_proj_z", "row 2", "scale", "group 1", "nan",
    ),
    bad_number(
        "a scale that is infinite", model(QWEN, lambda c: c.poke(Z + ".scales", 0, BF16_INF)),
        "linear_attn.in_proj_z", "row 0", "scale", "group 0", "inf",
    ),
    bad_number(
        "a bias that is NaN", model(QWEN, lambda c: c.poke(Z + ".biases", 4, BF16_NAN)),
        "row 1", "bias", "group 0", "nan",
    ),
    bad_number(
        "a NaN scale of one expert", model(QWEN, lambda c: c.poke(EXPERTS + ".scales", 3 * 256, BF16_NAN)),
        "0.mlp.experts", "3.gate_proj", "scale", "row 0", "group 0", "nan",
    ),
    bad_number(
        "a scale so large that weights overflow",
        model(QWEN, lambda c: c.poke(Z + ".scales", 0, b"\x7f\x7f")),
        "row 0", re.compile("column [0-9]+ "), "inf",
    ),
    bad_number(
        "a norm weight that is NaN",
        model(QWEN, lambda c: c.poke(Q0 + "input_layernorm.weight", 6, BF16_NAN)),
        "0.input_layernorm", "row 0", "column 3", "nan",
    ),
    bad_number(
        "an A_log that is infinite", model(QWEN, lambda c: c.poke(Q0 + "linear_attn.A_log", 4, F32_INF)),
        "A_log", "row 0", "column 1", "inf",
    ),
    bad_number(
        "a BF16 weight that is NaN",
        model(QWEN_BF16, lambda c: c.poke("model.language_model.embed_tokens.weight", 2 * 128 * 5, BF16_NAN)),
        "embed_tokens", "row 5", "column 0", "nan",
    ),
    bad_number(
        "an fp8 code that is NaN", model(FP8, lambda c: c.poke(D0 + "mlp.gate_proj.weight", 129, b"\x7f")),
        "mlp.gate_proj", "row 1", "column 1", re.compile("-?nan"),
    ),
    bad_number(
        "an fp8 scale that is infinite",
        model(FP8, lambda c: c.poke(D0 + "mlp.gate_proj.weight_scale_inv", 4, F32_INF)),
        "mlp.gate_proj", "row 128", "scale", "(1, 0)", "inf",
    ),
    bad_number(
        "an fp8 scale that is NaN",
        model(FP8, lambda c: c.poke(D0 + "mlp.gate_proj.weight_scale_inv", 0, F32_NAN)),
        "mlp.gate_proj", "row 0", "scale", "(0, 0)", "nan",
    ),
]

QUANTIZATION = [
    bad(
        "scales of another shape", model(QWEN, lambda c: c.hole(Z + ".scales", "BF16", [128, 3])),
        "in_proj_z.scales", "3 scales", "128 columns",
    ),
    bad(
        "no scales per row", model(QWEN, lambda c: c.hole(Z + ".scales", "BF16", [128, 0])),
        "in_proj_z.scales", "0 scales",
    ),
    bad(
        "biases of another shape than the scales",
        model(QWEN, lambda c: c.hole(Z + ".biases", "BF16", [128, 4])),
        "in_proj_z.biases", "BF16", "[128, 4]", "[128, 2]",
    ),
    bad("no biases", model(QWEN, lambda c: c.drop(Z + ".biases")), "in_proj_z.biases", "missing"),
    bad("no scales", model(QWEN, lambda c: c.drop(Z + ".scales")), "in_proj_z.scales", "missing"),
    bad(
        "scales of integers",
        model(QWEN, lambda c: [c.hole(Z + part, "U32", [128, 2]) for part in (".scales", ".biases")]),
        "in_proj_z.scales", "U32", "BF16", "F16", "F32",
    ),
    bad(
        "codes that are not whole bits", model(QWEN, lambda c: c.hole(Z + ".weight", "U32", [128, 17])),
        "in_proj_z.weight", "17 words", "128 columns", "2", "3", "4", "5", "6", "8",
    ),
    bad(
        "codes of 7 bits", model(QWEN, lambda c: c.hole(Z + ".weight", "U32", [128, 28])),
        "in_proj_z.weight", "28 words",
    ),
    bad(
        "codes that are floats", model(QWEN, lambda c: c.hole(Z + ".weight", "BF16", [128, 16])),
        "in_proj_z.weight", "U32", "BF16",
    ),
    bad(
        "an override with other bits than the tensors", quantization(**{Z: {"bits": 8, "group_size": 64}}),
        re.compile("in_proj_z.* 8 bits .* 64 .* 4 bits .* 64|8 bits .* 64 .*in_proj_z.* 4 bits .* 64"),
    ),
    bad(
        "an override that says 'not quantized' of a module that is", quantization(**{Z: False}),
        re.compile("in_proj_z' is not quantized"), re.compile("in_proj_z.scales"),
    ),
    bad(
        "an override that says 'quantized' of a module that is not",
        model(QWEN, without_scales),
        re.compile("in_proj_z' is quantized"), re.compile("in_proj_z.scales"), "missing",
    ),
    bad(
        "an override that is a number", quantization(**{"a\x1b[2J" + "b" * 1000: 4}),
        re.compile(r"'a\?\[2Jb+\.\.\.'"), "4", "object",
    ),
    bad("default bits that no tensor has", quantization(bits=8), "8", "4 bits"),
    bad("quantization of 7 bits", quantization(bits=7), "'bits'", "2", "3", "4", "5", "6", "8", "7"),
    bad("groups of 48", quantization(group_size=48), "'group_size'", "32", "64", "128", "48"),
    bad("quantization mode mxfp4", quantization(mode="mxfp4"), "'mxfp4'"),
    bad(
        "quantized tensors without a word in the config",
        model(QWEN, lambda c: (c.config.pop("quantization"), c.config.pop("quantization_config", None))),
        "'quantization'",
    ),
    bad(
        "fp8 scales of another grid",
        model(FP8, lambda c: c.hole(D0 + "mlp.gate_proj.weight_scale_inv", "F32", [1, 2])),
        "gate_proj.weight_scale_inv", "128=2", "128=1", "F32", "[1, 2]",
    ),
    bad(
        "an fp8 tensor without scales", model(FP8, lambda c: c.drop(D0 + "mlp.gate_proj.weight_scale_inv")),
        "gate_proj.weight_scale_inv", "missing",
    ),
    bad(
        "fp8 tensors that the config does not announce",
        model(FP8, lambda c: c.config.pop("quantization_config")),
        "F8_E4M3", "'quantization_config'",
    ),
    bad(
        "fp8 blocks of 64",
        model(FP8, lambda c: c.config["quantization_config"].update(weight_block_size=[64, 64])),
        "'weight_block_size'", "[64,64]", "[128,128]",
    ),
    *(
        bad(
            f"a {method} checkpoint", quant_method(quant_method=method, bits=4),
            method,
        )
        for method in ("gptq", "awq", "mxfp4", "compressed-tensors", "bitsandbytes")
    ),
    valid(
        "300,000 overrides of modules that do not exist",
        model(QWEN, lambda c: c.config["quantization"].update({f"{i:x}": False for i in range(300_000)})),
        re.compile(r"(?m)^experts +8 .* 3 "),
    ),
]

CONFIG = [
    bad("a config of no bytes", config_text(b""), "config.json:1:1", "end"),
    bad("a config that is an array", config_text(b"[]"), "0", "object", "array"),
    bad(
        "100,000 arrays inside each other in config.json", config_text(b'{"a":' + DEEP),
        re.compile("config.json:1:[0-9]+"), "64",
    ),
    bad(
        "a key twice in config.json",
        config_text(b'{"model_type":"deepseek_v3",\n "model_type":"qwen3_5_moe"}'),
        "config.json:2:2", "'model_type'", "duplicate",
    ),
    bad("a config.json of 5 MB", config_text(lambda: b" " * 5_000_000), "config.json", "too large"),
    bad(
        "a config of a million values", config_text(lambda: b'{"a":[' + b"0," * 1_000_000 + b"0]}"),
        "524,288",
    ),
    bad(
        "a key of 1 MB in config.json",
        config_text(lambda: b'{"quantization":{"bits":4,"group_size":64,"%b":3}}' % (b"a" * 1_000_000)),
        "'" + "a" * 120 + "...'", "object",
    ),
    bad(
        "4,000,000,000 experts", sizes(QWEN, num_experts=4_000_000_000),
        "'num_experts'", "1", "65536", "4000000000", "number",
    ),
    bad("no experts", sizes(QWEN, num_experts=0), "'num_experts'", "0"),
    bad("-1 experts", sizes(QWEN, num_experts=-1), "'num_experts'", "-1"),
    bad("\"8\" experts", sizes(QWEN, num_experts="8"), "'num_experts'", '"8"'),
    bad("8.5 experts", sizes(QWEN, num_experts=8.5), "'num_experts'", "8.5"),
    bad("8.0 experts", sizes(QWEN, num_experts=8.0), "'num_experts'", "8.0"),
    bad(
        "a million digits of experts",
        config_text(lambda: b'{"model_type":"qwen3_5_moe","num_experts":' + b"9" * 1_000_000 + b"}"),
        "config.json", "out of range",
    ),
    bad(
        "9 experts where tensors have 8", sizes(QWEN, num_experts=9),
        "mlp.gate.weight", "num_experts=9", "hidden_size=128",
    ),
    bad(
        "more experts per token than there are", sizes(QWEN, num_experts_per_tok=9),
        "'num_experts_per_tok'", "1", "8", "number",
    ),
    bad(
        "1,000,000,000 layers", sizes(QWEN, num_hidden_layers=10**9),
        "'num_hidden_layers'", "1", "1024", "number",
    ),
    bad(
        "1,024 layers where four are there",
        model(QWEN, lambda c: c.text.update(num_hidden_layers=1024, layer_types=["linear_attention"] * 1024)),
        "3.linear_attn.in_proj_qkv.weight", "missing",
    ),
    bad(
        "another hidden_size than the tensors",
        sizes(QWEN, hidden_size=256),
        re.compile("4 bits .* 64 .*embed_tokens.* 2 bits .* 128"),
    ),
    bad(
        "another vocab_size than the tensors", sizes(QWEN, vocab_size=1024),
        "vocab_size=1024", "hidden_size=128",
    ),
    bad(
        "heads whose total width overflows", sizes(QWEN, num_attention_heads=65536, head_dim=65536),
        "'num_attention_heads'", "4194304",
    ),
    bad(
        "heads that do not divide", sizes(QWEN, num_attention_heads=5),
        "'num_attention_heads'", "num_key_value_heads", "2",
    ),
    bad(
        "layer_types of another length", sizes(QWEN, layer_types=["linear_attention"]),
        "'layer_types'", "4 layers", "1", "array",
    ),
    bad(
        "an unknown kind of layer", sizes(QWEN, layer_types=["mamba\x1b"] * 4),
        "'mamba?'",
    ),
    bad(
        "an unknown kind of rope",
        model(DEEPSEEK, lambda c: c.text["rope_parameters"].update(rope_type="longrope")),
        "'longrope'",
    ),
    bad(
        "a YaRN factor of 0", model(DEEPSEEK, lambda c: c.text["rope_parameters"].update(factor=0)),
        "'factor'", "1", re.compile(r"1e\+06"), "0", "number",
    ),
    bad(
        "an epsilon of 0", sizes(QWEN, rms_norm_eps=0),
        "'rms_norm_eps'", "1e-12", "1", "0", "number",
    ),
    bad(
        "an end token outside the vocabulary", sizes(QWEN, eos_token_id=512),
        "'eos_token_id'", "vocab_size", "512",
    ),
    bad(
        "generation settings that are cut off",
        beside(sizes(QWEN), "generation_config.json", b'{"eos_token_id": ['),
        "generation_config.json:1:19", "end",
    ),
    bad(
        "100,000 arrays inside each other in the generation settings",
        beside(sizes(QWEN), "generation_config.json", b'{"eos_token_id":' + DEEP),
        "generation_config.json", "64",
    ),
    bad(
        "a text as end token in the generation settings",
        beside(sizes(QWEN), "generation_config.json", b'{"eos_token_id": "</s>"}'),
        "generation_config.json", "'eos_token_id'", '"</s>"',
    ),
    bad(
        "65 end tokens in the generation settings",
        beside(sizes(QWEN), "generation_config.json", b'{"eos_token_id": [%s0]}' % (b"0," * 64)),
        "generation_config.json", "'eos_token_id'",
    ),
    valid(
        "an end token of the generation settings outside the vocabulary",
        beside(sizes(QWEN), "generation_config.json", b'{"eos_token_id": [512, 511]}'),
        "'eos_token_id'", "512",
    ),
    bad(
        "groups that do not divide the experts", sizes(DEEPSEEK, n_group=3),
        "'n_group'", "n_routed_experts", "16",
    ),
    bad(
        "another activation", sizes(QWEN, hidden_act="gelu"),
        "'hidden_act'", '"gelu"', '"silu"',
    ),
    bad("no model_type", model(QWEN, lambda c: c.config.pop("model_type")), "'model_type'", "missing"),
    *(
        bad(
            f"a {family} model", model(QWEN, lambda c, family=family: c.config.update(model_type=family)),
            f"'{family}'", "model_type",
        )
        for family in ("qwen3_next", "qwen3_moe", "deepseek_v2", "gpt_oss", "llama")
    ),
]

SHARDS = [
    bad(
        "an index that reaches out of its folder",
        sharded(index=compact({"weight_map": {"a": "../escape.safetensors"}})),
        "'../escape.safetensors'", "beside",
    ),
    bad(
        "an index with an absolute path", sharded(index=compact({"weight_map": {"a": "/etc/passwd"}})),
        "'/etc/passwd'", "beside",
    ),
    bad(
        "an index with control characters in a file name",
        sharded(index=compact({"weight_map": {"a": "\x1b[2J.safetensors"}})),
        "'?[2J.safetensors'", "beside",
    ),
    bad(
        "an index with a file name of 300 bytes", sharded(index=compact({"weight_map": {"a": "b" * 300}})),
        "'" + "b" * 120 + "...'", "beside",
    ),
    bad(
        "an index that is not JSON", sharded(index=b"<html>404</html>"),
        "index.json", "JSON", "byte 1",
    ),
    bad("an index without a weight_map", sharded(index=b'{"metadata":{}}'), "'weight_map'", "missing"),
    bad("an index that is an array", sharded(index=b"[]"), "index.json", "array"),
    bad(
        "100,000 arrays inside each other in the index", sharded(index=b'{"metadata":' + DEEP),
        "index.json", "deeply",
    ),
    bad(
        "an index with a string of 24 MiB", sharded(index=lambda: b'{"' + b"a" * ((24 << 20) - 2)),
        "1048576", "byte 1",
    ),
    bad("an index of 25 MiB", sharded(index=lambda: b" " * (25 << 20)), "index.json", "too large"),
    bad(
        "an index of 23 MB that says one thing 500,000 times",
        sharded(index=lambda: one_pair("lm_head.w", 500_000)), "'lm_head.w'",
    ),
    bad(
        "an index that lists a tensor 350,000 times",
        sharded(index=lambda: one_pair("language_model.lm_head.biases", 350_000)), "twice",
    ),
    bad(
        "an index of 5,000 shards",
        sharded(index=lambda: compact({"weight_map": {str(i): f"{i}.safetensors" for i in range(5000)}})),
        "4096",
    ),
    bad(
        "an index that names a shard that is not there",
        sharded(lambda c, m, folder: (folder / SECOND_SHARD).unlink()),
        "model-00002-of-00002.safetensors", "No such file",
    ),
    bad(
        "a tensor in another shard than the index says",
        sharded(lambda c, m, _: m.update({Z + ".scales": SECOND_SHARD})),
        "in_proj_z.scales", "model-00002-of-00002.safetensors", "model-00001-of-00002.safetensors",
    ),
    bad(
        "a tensor in the index that is in no shard",
        sharded(lambda c, m, _: m.update(extra="model-00001-of-00002.safetensors")),
        "'extra'", "model-00001-of-00002.safetensors",
    ),
    bad(
        "a tensor in two shards",
        sharded(lambda c, m, folder: c.write_tensors(folder / SECOND_SHARD, sorted(c.tensors)[90:])),
        "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors",
    ),
    bad(
        "a shard that is a directory",
        sharded(lambda c, m, folder: ((folder / SECOND_SHARD).unlink(), (folder / SECOND_SHARD).mkdir())),
        SECOND_SHARD, "regular file", "directory",
    ),
    bad("as many tensors and as large an index as are read", full_index, "qwen3_5_moe"),
    bad(
        "headers of 50 MiB in five shards", shards_of(lambda: [metadata(10 << 20)] * 5),
        "headers", "41943040",
    ),
    bad(
        "300,000 tensors in three shards",
        shards_of(lambda: [many_tensors(100_000, 1, i * 100_000) for i in range(3)]),
        "200000",
    ),
]

PLACES = [
    bad("nothing at the path", lambda folder: folder / "nothing", re.compile("nothing.*No such file")),
    bad("an empty folder", lambda folder: None, "no model", "config.json", "model.safetensors"),
    bad(
        "a folder with a config only", bare(config__json=b'{"model_type":"qwen3_5_moe"}'),
        "'hidden_size'", "missing",
    ),
    bad(
        "safetensors without a config", bare(model__safetensors=b""),
        "safetensors", "config.json",
    ),
    bad("a file that is not a model", pointing_at("letter.txt", b"Dear reader"), "letter.txt"),
    bad(
        "a GGUF file", pointing_at("model.gguf", b"GGUF\3\0\0\0"),
        "GGUF",
    ),
    bad(
        "a GGUF file under another name", pointing_at("model.safetensors", b"GGUF\3\0\0\0"),
        "GGUF",
    ),
    bad("a folder with a GGUF file", bare(config__json=b"{}", model__gguf=b"GGUF"), "GGUF"),
    bad(
        "a PyTorch checkpoint", bare(config__json=b"{}", pytorch_model__bin=b"PK"),
        "PyTorch",
    ),
    bad(
        "a PyTorch checkpoint in shards",
        bare(**{"config__json": b"{}", "pytorch_model-00001-of-00002__bin": b"PK"}),
        "PyTorch",
    ),
    bad(
        "a pipe in place of model.safetensors", place("model.safetensors", os.mkfifo),
        "model.safetensors", "regular file", "pipe",
    ),
    bad(
        "a pipe in place of config.json", lambda folder: os.mkfifo(folder / "config.json"),
        "config.json", "regular file", "pipe",
    ),
    bad(
        "a pipe as the path", lambda folder: (os.mkfifo(folder / "pipe"), folder / "pipe")[1],
        "pipe",
    ),
    bad(
        "a directory in place of model.safetensors", place("model.safetensors", os.mkdir),
        "model.safetensors", "regular file", "directory",
    ),
    bad(
        "a device in place of model.safetensors", linked("/dev/zero", "model.safetensors"),
        "model.safetensors", "regular file", "device",
    ),
    Case(
        "a link that leads to itself", linked("model.safetensors", "model.safetensors"),
        5, (re.compile("model.safetensors.*symbolic links"),),
    ),
    bad(
        "a link that leads nowhere", linked("nowhere", "model.safetensors"),
        "model.safetensors", "No such file",
    ),
    bad(
        "a folder whose name has control characters",
        lambda folder: ((folder / "a\x1b[2J\nb").mkdir(), folder / "a\x1b[2J\nb")[1],
        "a?[2J?b", "no model", "no model",
    ),
]

ORIGINAL = [
    bad("a manifest that is not JSON", manifest_text(b"{"), "model_weights.json:1:2", "end"),
    bad(
        "100,000 arrays inside each other in the manifest", manifest_text(b'{"tensors":' + DEEP),
        "model_weights.json", "64",
    ),
    bad("a manifest without tensors", original(lambda o: o.manifest.pop("tensors")), "'tensors'", "missing"),
    bad("a manifest without a config", original(lambda o: o.manifest.pop("config")), "'config'", "missing"),
    bad(
        "a manifest whose count is wrong", original(lambda o: o.manifest.update(num_tensors=7)),
        "'num_tensors'", "7",
    ),
    bad(
        "a tensor beyond the end of the weights",
        original(lambda o: o.tensors["model.norm.weight"].update(offset=10**9)),
        "'model.norm.weight'", "256", "1000000000",
    ),
    bad(
        "a tensor at an offset that wraps",
        original(lambda o: o.tensors["model.norm.weight"].update(offset=2**64 - 128)),
        "'model.norm.weight'", "256", "18446744073709551488",
    ),
    bad(
        "a tensor at offset -64", original(lambda o: o.tensors["model.norm.weight"].update(offset=-64)),
        "'offset'", "-64", "number",
    ),
    bad(
        "a tensor whose shape wraps",
        original(lambda o: o.tensors["model.norm.weight"].update(shape=[2**32, 2**32], size=0)),
        "'model.norm.weight'", "[4294967296, 4294967296]", "0",
    ),
    bad(
        "a tensor without its scales", original(lambda o: o.tensors.pop("lm_head.scales")),
        "'lm_head.scales'", "missing",
    ),
    bad(
        "a tensor with other bits than its shape",
        original(lambda o: o.tensors["lm_head.weight"].update(bits=8)), "lm_head", "8 bits", "4 bits",
    ),
    bad(
        "weights cut short", original(lambda o: setattr(o, "weights", o.weights[:1000])),
        "model_weights.bin", "1000",
    ),
    bad(
        "an expert file that is too short", original(lambda o: o.layers.__setitem__(2, o.layers[2][:-1])),
        "layer_02.bin", "8", "4-bit", "110592", "110591",
    ),
    bad(
        "2-bit experts in the folder of the 4-bit ones",
        original(lambda o: setattr(o, "layers", [b"\0" * 8 * 3 * 2560] * 4)),
        "8", "4-bit", "13824", "110592", "61440",
    ),
    bad(
        "an expert file that is not there", original(lambda o: o.layers.pop()),
        "layer_03.bin", "No such file",
    ),
    bad(
        "experts compressed by LZ4 only", original(lambda o: setattr(o, "folder", "packed_experts_lz4")),
        "LZ4",
    ),
    bad(
        "an MLX config that is not an object", beside(original(lambda o: None), "mlx/config.json", b"[]"),
        "mlx/config.json", "object",
    ),
    bad(
        "an end token of the MLX config outside the vocabulary",
        beside(original(lambda o: None), "mlx/config.json", b'{"text_config": {"eos_token_id": 512}}'),
        "mlx/config.json", "'eos_token_id'", "512",
    ),
    bad(
        "no experts folder", original(lambda o: setattr(o, "folder", "experts")),
        "packed_experts", "packed_experts_2bit",
    ),
]

LARGE = [
    valid(
        "65,536 experts per layer in a sparse file of 3.7 GB", stacked_experts(65536),
        re.compile(r"(?m)^experts +65536 .* 3 "),
    ),
    valid(
        "65,536 experts in 196,608 separate tensors", separate_experts(65536),
        re.compile(r"(?m)^experts +65536 .* 4 "),
    ),
]

TABLE = {
    "Files and headers": FILES,
    "Tensor tables": TENSORS,
    "Numbers (with `--check`)": NUMBERS,
    "Quantization": QUANTIZATION,
    "Configs": CONFIG,
    "Shards": SHARDS,
    "What is at the path": PLACES,
    "The original's artifacts": ORIGINAL,
    "Right, and enormous": LARGE,
}
