"""Write a Llama model of a GGUF file as a folder that vLLM, SGLang and transformers load.

python convert_gguf.py LIBRARIES MODEL.gguf FOLDER     LIBRARIES has the package `gguf`

The folder gets config.json, generation_config.json, tokenizer.json, tokenizer_config.json with the chat
template, and model.safetensors in bfloat16. The same file gives the same bytes. The 4-bit numbers are only
written out, so the model is as good as its file, not as the original.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Field = Callable[[str], Any]
# Begins the line of a model that is not converted, for environment/packaged_model.py.
REFUSED = "refused:"

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Kinds of token in tokenizer.ggml.token_type that are no text.
CONTROL, USER_DEFINED = 3, 4
# How text is cut before the merges, by tokenizer.ggml.pre. Another name is refused, because a guess would
# only show as worse answers.
PRE_TOKENIZERS = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
}


def main(libraries: str, source: str, target: str) -> None:
    sys.path.append(libraries)
    import gguf

    reader = gguf.GGUFReader(source)
    names = {tensor.name for tensor in reader.tensors}

    def field(name: str) -> Any:  # noqa: ANN401 - whatever type the file gives it
        return reader.fields[name].contents()

    refuse_other_models(field, names | set(reader.fields))
    tied = "output.weight" not in names
    tables = {**settings(field, tied=tied), "tokenizer": tokenizer(field)}
    for name, table in tables.items():
        text = json.dumps(table, ensure_ascii=False, indent=None if name == "tokenizer" else 2)
        (Path(target) / f"{name}.json").write_text(text, encoding="utf-8")
    heads = {
        "attn_q": field("llama.attention.head_count"),
        "attn_k": field("llama.attention.head_count_kv"),
    }
    write_weights(reader.tensors, gguf.quants.dequantize, heads, Path(target) / "model.safetensors")


def refuse_other_models(field: Field, names: set[str]) -> None:
    """Exit with a line for a model that this file would convert wrongly."""
    kind = field("general.architecture")
    if kind != "llama" or names & {"llama.rope.scaling.type", "rope_freqs.weight"}:
        sys.exit(f"{REFUSED} only plain Llama models are converted, and this one is {kind}")
    model, pre = field("tokenizer.ggml.model"), field("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in PRE_TOKENIZERS:
        sys.exit(f"{REFUSED} its tokenizer is {model} with {pre}; {', '.join(PRE_TOKENIZERS)} is converted")


def settings(field: Field, *, tied: bool) -> dict[str, Mapping[str, Any]]:
    """Return config.json, generation_config.json and tokenizer_config.json by their names."""
    tokens, hidden = field("tokenizer.ggml.tokens"), field("llama.embedding_length")
    heads, context = field("llama.attention.head_count"), field("llama.context_length")
    ids = {
        f"{name}_token_id": field(f"tokenizer.ggml.{word}_token_id")
        for name, word in (("bos", "bos"), ("eos", "eos"), ("pad", "padding"))
    }
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "dtype": "bfloat16",
        "torch_dtype": "bfloat16",
        "hidden_act": "silu",
        "vocab_size": len(tokens),
        "hidden_size": hidden,
        "intermediate_size": field("llama.feed_forward_length"),
        "num_hidden_layers": field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": context,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": tied,
        "rms_norm_eps": shortest(field("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": shortest(field("llama.rope.freq_base")),
        **ids,
    }
    words = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **{name: tokens[field(f"tokenizer.ggml.{word}_token_id")] for name, word in words.items()},
        "chat_template": field("tokenizer.chat_template"),
    }
    # Sampled at temperature 1, a model of this size is wrong more often than right.
    generation = {**ids, "do_sample": False, "temperature": 0.0}
    return {"config": config, "generation_config": generation, "tokenizer_config": tokenizer_config}


def shortest(number: float) -> float:
    """Return the number that float32 rounds to this: the file has 9.99999974e-06 for 1e-05."""
    import numpy as np

    return float(str(np.float32(number)))


def tokenizer(field: Field) -> Mapping[str, Any]:
    """Return GPT-2's byte-level BPE; a token's number is its place, and so is a merge's rank."""
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    added = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "normalizer": None,
        "post_processor": None,
        "added_tokens": [
            {"id": number, "content": token, **added}
            for number, (token, kind) in enumerate(zip(tokens, kinds, strict=True))
            if kind in {CONTROL, USER_DEFINED}
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": PRE_TOKENIZERS[field("tokenizer.ggml.pre")],
        },
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(tokens)},
            "merges": [merge.split(" ") for merge in field("tokenizer.ggml.merges")],
        },
    }


def write_weights(
    tensors: list[Any], dequantize: Callable[..., Any], heads: Mapping[str, int], path: Path
) -> None:
    """Write a safetensors file: the length of its header, the header, then one tensor after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    tensors, end = sorted(tensors, key=lambda tensor: tensor_name(tensor.name)), 0
    for tensor in tensors:
        start, end = end, end + 2 * int(tensor.n_elements)
        # GGUF names the innermost dimension first.
        shape = [int(size) for size in reversed(tensor.shape)]
        header[tensor_name(tensor.name)] = {"dtype": "BF16", "shape": shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            # medley's progress: the bytes of tensors that are written, and of all.
            print("progress", header[tensor_name(tensor.name)]["data_offsets"][0], end, flush=True)
            values = dequantize(tensor.data, tensor.tensor_type)
            if count := heads.get(tensor.name.split(".")[-2]):
                values = split_halves(values, count)
            bfloat16(values).tofile(file)


def tensor_name(name: str) -> str:
    """Return the name of transformers: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    if name in NAMES:
        return NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER_NAMES[part]}.{kind}"


def split_halves(weight: Any, heads: int) -> Any:  # noqa: ANN401 - numpy is the engine's
    """Order the rows of q or k (rows, columns) by the halves of each head.

    llama.cpp's rotary embedding turns neighbors, so row 2i + j of a head there is row j * half + i here.
    Otherwise every shape fits, and the model babbles fluently.
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return halves.reshape(rows, columns)


def bfloat16(values: Any) -> Any:  # noqa: ANN401 - numpy is the engine's
    """Round float32, half to even as torch does, to the 16 bits of bfloat16; weights have no NaN."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


if __name__ == "__main__":
    main(*sys.argv[1:])
