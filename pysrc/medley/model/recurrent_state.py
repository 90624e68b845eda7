"""Count the bytes of a recurrent layer's state for a sequence, whatever its length."""

from medley.model.config_fields import FIELD_NAMES, ConfigFields

_16_BITS_BYTES, _32_BITS_BYTES = 2, 4
# vLLM 0.32 keeps a state in the model's 16 bits unless config.json names a type, except for these: KDA
# (model_executor/layers/mamba/mamba_utils.py, kda_state_dtype) and Nemotron-H (model_executor/models/
# config.py, NemotronHForCausalLMConfig). SGLang takes 32 bits for all unless config.json names a type.
_32_BIT_STATE_MODELS = ("nemotron_h",)
MAMBA_1_MODELS = {"mamba", "falcon_mamba", "jamba"}


def compute_state_bytes(fields: ConfigFields, kind: str) -> int:
    """Return the bytes of a layer's state and of the last inputs of its convolution in 16 bits."""
    if kind == "conv":
        # LFM2 has only a convolution.
        return _compute_convolution_bytes(
            fields.require_number("hidden_size"), fields.require_number("conv_L_cache")
        )
    # transformers 5 calls Mamba linear attention too.
    if kind == "linear_attention" and fields.find_number("ssm_state_size", "mamba_d_state") is None:
        return _compute_linear_bytes(fields)
    return (
        _compute_mamba_1_bytes(fields)
        if fields.find_word("model_type") in MAMBA_1_MODELS
        else _compute_mamba_2_bytes(fields)
    )


def _compute_linear_bytes(fields: ConfigFields) -> int:
    linear_config = fields.find_table("linear_attn_config")
    if linear_config is not None:
        return _compute_kimi_delta_bytes(linear_config, linear_config.require_number("num_heads"))
    heads_number = fields.find_number("linear_num_heads")
    if heads_number is not None:
        return _compute_kimi_delta_bytes(fields, heads_number)
    if fields.find_number("layer_group_size") is None:
        return _compute_gated_delta_bytes(fields)
    heads, size = fields.require_number("num_attention_heads"), fields.require_number("head_dim")
    if fields.find_number("short_conv_kernel_size") is not None:
        return _compute_kimi_delta_bytes(fields, heads)
    return heads * size * size * _16_BITS_BYTES  # lightning attention has no convolution


def _compute_gated_delta_bytes(fields: ConfigFields) -> int:
    heads = fields.require_number("linear_num_value_heads")
    size = fields.require_number("linear_value_head_dim")
    groups = fields.require_number("linear_num_key_heads")
    state = fields.require_number("linear_key_head_dim")
    inputs = _compute_convolution_bytes(
        heads * size + 2 * groups * state, fields.require_number("linear_conv_kernel_dim")
    )
    return inputs + heads * size * state * _find_element_bytes(fields, _16_BITS_BYTES)


def _compute_kimi_delta_bytes(fields: ConfigFields, heads: int) -> int:
    """Return the bytes of Kimi's delta attention, under the model's own names or transformers 5's."""
    size = fields.require_number("linear_head_dim", "head_dim")
    kernel = fields.require_number("linear_conv_kernel_dim", "short_conv_kernel_size")
    inputs = _compute_convolution_bytes(3 * heads * size, kernel)
    return inputs + heads * size * size * _find_element_bytes(fields, _32_BITS_BYTES)


def _compute_mamba_2_bytes(fields: ConfigFields) -> int:
    # Mamba 2's own names are those of attention in models that have both.
    name_end = None if fields.find_word("model_type") == "mamba2" else -1
    heads = fields.require_number(*FIELD_NAMES["mamba_heads"][:name_end])
    size = fields.require_number(*FIELD_NAMES["mamba_head_dim"][:name_end])
    inner_size = fields.find_number("mamba_d_ssm") or heads * size
    state = fields.require_number(*FIELD_NAMES["mamba_state"])
    groups = fields.require_number(*FIELD_NAMES["mamba_groups"])
    kernel = fields.require_number("conv_kernel", "mamba_d_conv")
    default_bytes = (
        _32_BITS_BYTES
        if (fields.find_word("model_type") or "").startswith(_32_BIT_STATE_MODELS)
        else _16_BITS_BYTES
    )
    return _compute_convolution_bytes(
        inner_size + 2 * groups * state, kernel
    ) + inner_size * state * _find_element_bytes(fields, default_bytes)


def _compute_mamba_1_bytes(fields: ConfigFields) -> int:
    expansion = fields.find_number("mamba_expand")
    inner_size = (
        expansion * fields.require_number("hidden_size")
        if expansion
        else fields.require_number("intermediate_size")
    )
    state = fields.require_number("mamba_d_state", "state_size")
    kernel = fields.require_number("mamba_d_conv", "conv_kernel")
    return _compute_convolution_bytes(inner_size, kernel) + inner_size * state * _find_element_bytes(
        fields, _16_BITS_BYTES
    )


def _compute_convolution_bytes(channels: int, kernel: int) -> int:
    return channels * (kernel - 1) * _16_BITS_BYTES


def compute_short_convolution_bytes(fields: ConfigFields, heads: int, size: int) -> int:
    """Return the bytes of Inkling's convolution inputs.

    See models/inkling/nvidia/sconv_swa_attn.py of vLLM 0.32.
    """
    if not (fields.find_word("model_type") or "").startswith("inkling"):
        return 0
    width = 2 * size + 2 * (fields.require_number("hidden_size") // heads)
    kernel = fields.find_number("sconv_kernel_size", "conv_kernel_size") or 4
    return kernel * heads * (1 << (width - 1).bit_length()) * _16_BITS_BYTES


def _find_element_bytes(fields: ConfigFields, default_bytes: int) -> int:
    dtype = fields.find_word("mamba_ssm_cache_dtype") or fields.find_word("mamba_ssm_dtype")
    return {"float16": _16_BITS_BYTES, "bfloat16": _16_BITS_BYTES, "float32": _32_BITS_BYTES}.get(
        dtype or "", default_bytes
    )
