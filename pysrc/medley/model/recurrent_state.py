"""Count the bytes that a recurrent layer keeps of a sequence, whatever its length."""

from medley.model.config_fields import NAMES, Fields

_16_BITS, _32_BITS = 2, 4
# vLLM 0.32 keeps a state in the model's 16 bits unless config.json names a type, except for these: KDA
# (model_executor/layers/mamba/mamba_utils.py, kda_state_dtype) and Nemotron-H (model_executor/models/
# config.py, NemotronHForCausalLMConfig). SGLang takes 32 bits for all unless config.json names a type.
_WIDE_STATES = ("nemotron_h",)
FIRST_MAMBA = {"mamba", "falcon_mamba", "jamba"}


def state_bytes(fields: Fields, kind: str) -> int:
    """Count a layer's state and the last inputs of its convolution in 16 bits."""
    if kind == "conv":
        # LFM2: a convolution is all there is.
        return _convolution(fields.whole("hidden_size"), fields.whole("conv_L_cache"))
    # transformers 5 calls Mamba linear attention too.
    if kind == "linear_attention" and fields.optional("ssm_state_size", "mamba_d_state") is None:
        return _linear(fields)
    return _mamba_1(fields) if fields.word("model_type") in FIRST_MAMBA else _mamba_2(fields)


def _linear(fields: Fields) -> int:
    delta = fields.inner("linear_attn_config")
    if delta is not None:
        return _kimi_delta(delta, delta.whole("num_heads"))
    renamed = fields.optional("linear_num_heads")
    if renamed is not None:
        return _kimi_delta(fields, renamed)
    if fields.optional("layer_group_size") is None:
        return _gated_delta(fields)
    heads, size = fields.whole("num_attention_heads"), fields.whole("head_dim")
    if fields.optional("short_conv_kernel_size") is not None:
        return _kimi_delta(fields, heads)
    return heads * size * size * _16_BITS  # lightning attention has no convolution


def _gated_delta(fields: Fields) -> int:
    heads, size = fields.whole("linear_num_value_heads"), fields.whole("linear_value_head_dim")
    groups, state = fields.whole("linear_num_key_heads"), fields.whole("linear_key_head_dim")
    inputs = _convolution(heads * size + 2 * groups * state, fields.whole("linear_conv_kernel_dim"))
    return inputs + heads * size * state * _width(fields, _16_BITS)


def _kimi_delta(fields: Fields, heads: int) -> int:
    """Under the model's own names, or transformers 5's."""
    size = fields.whole("linear_head_dim", "head_dim")
    kernel = fields.whole("linear_conv_kernel_dim", "short_conv_kernel_size")
    inputs = _convolution(3 * heads * size, kernel)
    return inputs + heads * size * size * _width(fields, _32_BITS)


def _mamba_2(fields: Fields) -> int:
    # Mamba 2's own names are those of attention in models that have both.
    last = None if fields.word("model_type") == "mamba2" else -1
    heads, size = fields.whole(*NAMES["mamba_heads"][:last]), fields.whole(*NAMES["mamba_head_dim"][:last])
    wide = fields.optional("mamba_d_ssm") or heads * size
    state = fields.whole(*NAMES["mamba_state"])
    groups = fields.whole(*NAMES["mamba_groups"])
    kernel = fields.whole("conv_kernel", "mamba_d_conv")
    usual = _32_BITS if (fields.word("model_type") or "").startswith(_WIDE_STATES) else _16_BITS
    return _convolution(wide + 2 * groups * state, kernel) + wide * state * _width(fields, usual)


def _mamba_1(fields: Fields) -> int:
    expanded = fields.optional("mamba_expand")
    wide = expanded * fields.whole("hidden_size") if expanded else fields.whole("intermediate_size")
    state, kernel = fields.whole("mamba_d_state", "state_size"), fields.whole("mamba_d_conv", "conv_kernel")
    return _convolution(wide, kernel) + wide * state * _width(fields, _16_BITS)


def _convolution(wide: int, kernel: int) -> int:
    return wide * (kernel - 1) * _16_BITS


def short_convolutions(fields: Fields, heads: int, size: int) -> int:
    """Count Inkling's convolution inputs (vLLM 0.32, models/inkling/nvidia/sconv_swa_attn.py)."""
    if not (fields.word("model_type") or "").startswith("inkling"):
        return 0
    wide = 2 * size + 2 * (fields.whole("hidden_size") // heads)
    kernel = fields.optional("sconv_kernel_size", "conv_kernel_size") or 4
    return kernel * heads * (1 << (wide - 1).bit_length()) * _16_BITS


def _width(fields: Fields, usual: int) -> int:
    dtype = fields.word("mamba_ssm_cache_dtype") or fields.word("mamba_ssm_dtype")
    return {"float16": _16_BITS, "bfloat16": _16_BITS, "float32": _32_BITS}.get(dtype or "", usual)
