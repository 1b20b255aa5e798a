"""The keys of configs, family by family: which are needed, and which may be missing without a change.

A table of needed keys maps the name that a message must hold to the paths that are removed together; paths
are tuples, ("rope_parameters", "rope_theta"). docs/formats/checkpoints.md has the same lists in words.
"""

Paths = list[tuple[str, ...]]


def each(*names: str) -> dict[str, Paths]:
    return {name: [(name,)] for name in names}


QWEN_SHAPE = (
    "hidden_size", "vocab_size", "num_hidden_layers", "rms_norm_eps", "num_attention_heads",
    "num_key_value_heads", "head_dim", "linear_num_key_heads", "linear_num_value_heads",
    "linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim", "num_experts",
    "num_experts_per_tok", "moe_intermediate_size", "shared_expert_intermediate_size")
QWEN_NEEDED: dict[str, Paths] = each(*QWEN_SHAPE, "max_position_embeddings", "layer_types") | {
    "rope_theta": [("rope_parameters",)],
    "partial_rotary_factor": [("rope_parameters", "partial_rotary_factor"), ("partial_rotary_factor",)],
    "rope_type": [("rope_parameters", "rope_type")],
}
BYSTANDERS = (
    "transformers_version", "architectures", "output_hidden_states", "return_dict", "dtype",
    "chunk_size_feed_forward", "is_encoder_decoder", "id2label", "label2id", "problem_type", "hidden_act",
    "initializer_range", "use_cache", "tie_word_embeddings", "attention_bias", "attention_dropout",
    "pad_token_id", "bos_token_id", "eos_token_id", "output_attentions", "torch_dtype")
QWEN_NOT_NEEDED: Paths = [(name,) for name in (
    *BYSTANDERS, "output_router_logits", "router_aux_loss_coef", "partial_rotary_factor")] + [
    ("rope_parameters", "mrope_interleaved"), ("rope_parameters", "mrope_section"),
    ("rope_parameters", "partial_rotary_factor")]
TOP_NOT_NEEDED: Paths = [
    ("architectures",), ("tie_word_embeddings",), ("transformers_version",), ("text_config", "model_type")]

YARN = ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim", "original_max_position_embeddings")
DEEPSEEK_SHAPE = (
    "hidden_size", "vocab_size", "num_hidden_layers", "rms_norm_eps", "num_attention_heads", "q_lora_rank",
    "kv_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim", "n_routed_experts",
    "num_experts_per_tok", "moe_intermediate_size", "n_shared_experts", "n_group", "topk_group",
    "routed_scaling_factor", "first_k_dense_replace", "intermediate_size")
DEEPSEEK_NEEDED: dict[str, Paths] = each(
    *DEEPSEEK_SHAPE, "model_type", "max_position_embeddings", "norm_topk_prob") | {
    "rope_theta": [("rope_parameters",)], "rope_type": [("rope_parameters", "rope_type")]} | {
    key: [("rope_parameters", key)] for key in YARN}
DEEPSEEK_NOT_NEEDED: Paths = [(name,) for name in (
    *BYSTANDERS, "num_key_value_heads", "num_nextn_predict_layers", "pretraining_tp", "qk_head_dim",
    "head_dim", "rope_interleave")]

ORIGINAL_NOT_NEEDED: Paths = [("default_bits",), ("default_group_size",)]
ORIGINAL_QWEN_NEEDED: dict[str, Paths] = each(*QWEN_SHAPE, "rope_theta", "partial_rotary_factor") | {
    "layer_types": [("layer_types",), ("full_attention_interval",)]}
ORIGINAL_QWEN_NOT_NEEDED: Paths = ORIGINAL_NOT_NEEDED + [("layer_types",), ("full_attention_interval",)]
ORIGINAL_DEEPSEEK_NEEDED: dict[str, Paths] = each(*DEEPSEEK_SHAPE, "rope_theta") | {
    "rope_type": [("rope_scaling", "type")]} | {key: [("rope_scaling", key)] for key in YARN}


def nested(needed: dict[str, Paths]) -> dict[str, Paths]:
    """The same keys in text_config."""
    return {name: nested_paths(paths) for name, paths in needed.items()}


def nested_paths(paths: Paths) -> Paths:
    return [("text_config", *path) for path in paths]


def quantization_of(config: dict) -> dict[str, Paths]:
    """Needed keys of a quantized checkpoint; of the two copies that MLX writes, both are removed."""
    copies = [key for key in ("quantization", "quantization_config") if key in config]
    if not copies:
        return {}
    inner = config[copies[0]]
    if "quant_method" in inner:
        inside = ["quant_method", "fmt", "weight_block_size"]
    else:
        inside = [key for key in inner if key != "mode"]  # bits, group_size, and overrides by module
    needed: dict[str, Paths] = {key: [(copy, key) for copy in copies] for key in inside}
    return needed | {copies[0]: [(copy,) for copy in copies]}
