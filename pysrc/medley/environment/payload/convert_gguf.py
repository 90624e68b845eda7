"""Write a Llama model of a GGUF file as a folder that vLLM, SGLang and transformers load.

python convert_gguf.py READER MODEL.gguf FOLDER

READER has the package `gguf`, and no file of the model's author: Python imports from it.

The folder gets config.json, generation_config.json, tokenizer.json, tokenizer_config.json with the chat
template, and model.safetensors in bfloat16. The same file gives the same bytes. The 4-bit numbers are only
written out, so the model is as good as its file, not as the original.
"""

import json
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ReadField = Callable[[str], Any]
# The first word of the output for a model that is not converted; environment/packaged_model.py reads it.
REFUSED_PREFIX = "refused:"

TENSOR_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
LAYER_TENSOR_NAMES = {
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
# Types of token in tokenizer.ggml.token_type that are not text.
CONTROL_TOKEN, USER_DEFINED_TOKEN = 3, 4
# The steps that split text before the merges, by tokenizer.ggml.pre. Another name is refused, because a wrong
# guess would show only as worse answers.
PRE_TOKENIZERS = {
    "smollm": [
        {"type": "Digits", "individual_digits": True},
        {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
    ]
}


def main(reader_folder: str, source: str, target: str) -> None:
    sys.path.append(reader_folder)
    import gguf

    reader = gguf.GGUFReader(source)
    names = {tensor.name for tensor in reader.tensors}

    def read_field(name: str) -> Any:  # noqa: ANN401 - whatever type the file gives it
        return reader.fields[name].contents()

    refuse_other_models(read_field, names | set(reader.fields))
    has_tied_embeddings = "output.weight" not in names
    tables = {
        **build_settings(read_field, has_tied_embeddings=has_tied_embeddings),
        "tokenizer": build_tokenizer(read_field),
    }
    for name, table in tables.items():
        text = json.dumps(table, ensure_ascii=False, indent=None if name == "tokenizer" else 2)
        (Path(target) / f"{name}.json").write_text(text, encoding="utf-8")
    heads = {
        "attn_q": read_field("llama.attention.head_count"),
        "attn_k": read_field("llama.attention.head_count_kv"),
    }
    write_weights(reader.tensors, gguf.quants.dequantize, heads, Path(target) / "model.safetensors")


def refuse_other_models(read_field: ReadField, names: set[str]) -> None:
    """Print a line and exit for a model that this program would convert wrongly."""
    kind = read_field("general.architecture")
    if kind != "llama" or names & {"llama.rope.scaling.type", "rope_freqs.weight"}:
        sys.exit(f"{REFUSED_PREFIX} only plain Llama models are converted, and this one is {kind}")
    model, pre = read_field("tokenizer.ggml.model"), read_field("tokenizer.ggml.pre")
    if model != "gpt2" or pre not in PRE_TOKENIZERS:
        sys.exit(
            f"{REFUSED_PREFIX} its tokenizer is {model} with {pre}; {', '.join(PRE_TOKENIZERS)} is converted"
        )


def build_settings(read_field: ReadField, *, has_tied_embeddings: bool) -> dict[str, Mapping[str, Any]]:
    """Return the tables of config.json, generation_config.json and tokenizer_config.json by name."""
    tokens, hidden = read_field("tokenizer.ggml.tokens"), read_field("llama.embedding_length")
    heads, context = read_field("llama.attention.head_count"), read_field("llama.context_length")
    ids = {
        f"{name}_token_id": read_field(f"tokenizer.ggml.{word}_token_id")
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
        "intermediate_size": read_field("llama.feed_forward_length"),
        "num_hidden_layers": read_field("llama.block_count"),
        "num_attention_heads": heads,
        "num_key_value_heads": read_field("llama.attention.head_count_kv"),
        "head_dim": hidden // heads,
        "max_position_embeddings": context,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": has_tied_embeddings,
        "rms_norm_eps": find_shortest_number(read_field("llama.attention.layer_norm_rms_epsilon")),
        "rope_theta": find_shortest_number(read_field("llama.rope.freq_base")),
        **ids,
    }
    words = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
        **{name: tokens[read_field(f"tokenizer.ggml.{word}_token_id")] for name, word in words.items()},
        "chat_template": read_field("tokenizer.chat_template"),
    }
    # Sampled at temperature 1, a model of this size is wrong more often than right.
    generation = {**ids, "do_sample": False, "temperature": 0.0}
    return {"config": config, "generation_config": generation, "tokenizer_config": tokenizer_config}


def find_shortest_number(number: float) -> float:
    """Return the shortest number that float32 rounds to this: the file has 9.99999974e-06 for 1e-05."""
    import numpy as np

    return float(str(np.float32(number)))


def build_tokenizer(read_field: ReadField) -> Mapping[str, Any]:
    """Return tokenizer.json, GPT-2's byte-level BPE; the order gives a token's number, a merge's rank."""
    tokens, kinds = read_field("tokenizer.ggml.tokens"), read_field("tokenizer.ggml.token_type")
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
            if kind in {CONTROL_TOKEN, USER_DEFINED_TOKEN}
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": PRE_TOKENIZERS[read_field("tokenizer.ggml.pre")],
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
            "merges": [merge.split(" ") for merge in read_field("tokenizer.ggml.merges")],
        },
    }


def write_weights(
    tensors: list[Any], dequantize: Callable[..., Any], heads: Mapping[str, int], path: Path
) -> None:
    """Write a safetensors file: the length of its header, the header, then one tensor after the other."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    tensors, end = sorted(tensors, key=lambda tensor: translate_tensor_name(tensor.name)), 0
    for tensor in tensors:
        start, end = end, end + 2 * int(tensor.n_elements)
        # GGUF names the innermost dimension first.
        shape = [int(size) for size in reversed(tensor.shape)]
        header[translate_tensor_name(tensor.name)] = {
            "dtype": "BF16",
            "shape": shape,
            "data_offsets": [start, end],
        }
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for tensor in tensors:
            # medley's progress: the bytes of tensors that are written, and of all.
            print("progress", header[translate_tensor_name(tensor.name)]["data_offsets"][0], end, flush=True)
            values = dequantize(tensor.data, tensor.tensor_type)
            if count := heads.get(tensor.name.split(".")[-2]):
                values = split_halves(values, count)
            round_to_bfloat16(values).tofile(file)


def translate_tensor_name(name: str) -> str:
    """Return transformers' name: `blk.3.attn_q.weight` is `model.layers.3.self_attn.q_proj.weight`."""
    if name in TENSOR_NAMES:
        return TENSOR_NAMES[name]
    _, layer, part, kind = name.split(".")
    return f"model.layers.{layer}.{LAYER_TENSOR_NAMES[part]}.{kind}"


def split_halves(weight: Any, heads: int) -> Any:  # noqa: ANN401 - numpy is the engine's
    """Return q or k (rows, columns) with its rows ordered by the halves of each head.

    llama.cpp's rotary embedding turns neighbors, so row 2i + j of a head there is row j * half + i here.
    Otherwise every shape fits, and the model babbles fluently.
    """
    rows, columns = weight.shape
    halves = weight.reshape(heads, rows // heads // 2, 2, columns).swapaxes(1, 2)
    return halves.reshape(rows, columns)


def round_to_bfloat16(values: Any) -> Any:  # noqa: ANN401 - numpy is the engine's
    """Return float32 rounded to the 16 bits of bfloat16, half to even as torch does; weights have no NaN."""
    import numpy as np

    bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


if __name__ == "__main__":
    main(*sys.argv[1:])
