"""Count the bytes that a recurrent layer keeps of a sequence, whatever its length."""

from medley.model.config_fields import Fields

_16_BITS, _32_BITS = 2, 4
# vLLM 0.32 keeps a state in the model's 16 bits unless config.json names a type, except for these: KDA
# (model_executor/layers/mamba/mamba_utils.py, kda_state_dtype) and Nemotron-H (model_executor/models/
# config.py, NemotronHForCausalLMConfig). SGLang takes 32 bits for all unless config.json names a type.
_WIDE_STATES = ("nemotron_h",)
_FIRST_MAMBA = {"mamba", "falcon_mamba", "jamba"}


def state_bytes(fields: Fields, kind: str) -> int:
    """What one layer keeps: the last inputs of its convolution in 16 bits, and its state."""
    if kind == "conv":
        # LFM2: a convolution is all there is.
        return _convolution(fields.whole("hidden_size"), fields.whole("conv_L_cache"))
    if kind == "linear_attention":
        delta = fields.inner("linear_attn_config")
        return _gated_delta(fields) if delta is None else _kimi_delta(delta)
    return _mamba_1(fields) if fields.word("model_type") in _FIRST_MAMBA else _mamba_2(fields)


def _gated_delta(fields: Fields) -> int:
    heads, size = fields.whole("linear_num_value_heads"), fields.whole("linear_value_head_dim")
    groups, state = fields.whole("linear_num_key_heads"), fields.whole("linear_key_head_dim")
    inputs = _convolution(heads * size + 2 * groups * state, fields.whole("linear_conv_kernel_dim"))
    return inputs + heads * size * state * _width(fields, _16_BITS)


def _kimi_delta(fields: Fields) -> int:
    heads, size = fields.whole("num_heads"), fields.whole("head_dim")
    inputs = _convolution(3 * heads * size, fields.whole("short_conv_kernel_size"))
    return inputs + heads * size * size * _width(fields, _32_BITS)


def _mamba_2(fields: Fields) -> int:
    own = ("num_heads", "head_dim") if fields.word("model_type") == "mamba2" else ()
    heads = fields.whole("mamba_num_heads", "mamba_n_heads", "n_mamba_heads", *own[:1])
    size = fields.whole("mamba_head_dim", "mamba_d_head", "mamba_headdim", *own[1:])
    wide = fields.optional("mamba_d_ssm") or heads * size
    state = fields.whole("ssm_state_size", "mamba_d_state", "state_size")
    groups = fields.whole("n_groups", "mamba_n_groups", "mamba_ngroups")
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


def _width(fields: Fields, usual: int) -> int:
    dtype = fields.word("mamba_ssm_cache_dtype") or fields.word("mamba_ssm_dtype")
    return {"float16": _16_BITS, "bfloat16": _16_BITS, "float32": _32_BITS}.get(dtype or "", usual)
