"""What layers keep: the numbers that vLLM 0.32 was seen to answer (tests/engine/test_kv_cache.py asks it)."""

from typing import Any

import pytest

from medley.model.config_fields import ConfigFields
from medley.model.kv_cache import build_cache_fields

PLAIN: dict[str, Any] = {
    "hidden_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 4096,
}
MIMO = {
    "head_dim": 192,
    "v_head_dim": 128,
    "swa_num_key_value_heads": 4,
    "sliding_window": 128,
    "hybrid_layer_pattern": [0, 1, 1, 0],
}
BLOCKS = {"sparse_attention_freq": [0, 1, 1, 1], "sparse_index_dim": 128}
COMPRESSED = {
    "model_type": "deepseek_v4",
    "head_dim": 512,
    "index_head_dim": 128,
    "sliding_window": 128,
    "compress_ratios": [0, 4, 128, 4],
}
KINDS = [
    "sliding_attention",
    *("compressed_sparse_attention", "heavily_compressed_attention", "compressed_sparse_attention"),
]
SOURCES = {
    "model_type": "deepseek_v41",
    "compress_ratios": [2, 2, 1, 1],
    "kv_source_layer_ids": [0, 0, 2, 2],
    "index_source_layer_ids": [0, 0, 2, 2],
}
INKLING = {
    "model_type": "inkling_model",
    "head_dim": 32,
    "swa_num_key_value_heads": 4,
    "swa_head_dim": 16,
    "sliding_window_size": 64,
    "local_layer_ids": [0, 1, 2],
    "sconv_kernel_size": 4,
}
LATENT = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128}
SHARED = {"index_head_dim": 128, "indexer_types": ["full", "shared", "shared", "full"]}


def totals(**entries: Any) -> tuple[float, float, int]:
    """Bytes of a token in four layers that grow and in their windows, and of a sequence's state."""
    found = build_cache_fields(ConfigFields(PLAIN | entries, "x"), 4)
    usual = 4 * found["head_dim"]

    def token(heads: str, each: str, shared: str) -> float:
        bare = 0 if found.get(shared) is not None else usual
        kept = found[heads] * (bare if found.get(each) is None else found[each]) + (found.get(shared) or 0)
        return float(kept * found["kv_bits"] / 16)

    growing = token("kv_heads", "kv_head_bytes", "kv_bytes_per_token")
    other = ("windowed_kv_heads", "windowed_head_bytes", "windowed_bytes_per_token")
    windowed = token(*other) if "windowed_kv_heads" in found else growing
    count = found["attention_layers"]
    layers = 4 if count is None else count
    return layers * growing, found["windowed_layers"] * windowed, found["state_bytes"]


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        pytest.param({}, (4 * 256, 0, 0), id="keys and values"),
        pytest.param({"multi_query": True}, (4 * 128, 0, 0), id="one head for all"),
        pytest.param(MIMO, (2560, 5120, 0), id="other heads in windows, and values narrower than keys"),
        pytest.param(LATENT, (4 * 1152, 0, 0), id="MLA"),
        pytest.param(LATENT | SHARED, (4 * 1152 + 2 * 132, 0, 0), id="an index that layers share"),
        pytest.param(LATENT | {"model_type": "minicpm3"}, (4 * 3072, 0, 0), id="MLA that is expanded"),
        pytest.param(
            {"head_dim": 128, "sparse_attention_config": BLOCKS}, (4 * 1024 + 3 * 256, 0, 0), id="block index"
        ),
        pytest.param({"loop_num": 3, "loop_window_size": 64}, (1024, 2048, 0), id="layers that run again"),
        pytest.param(
            {"sliding_window": 128, "num_kv_shared_layers": 2}, (0, 512, 0), id="layers that read another's"
        ),
        pytest.param(
            # Pages of 256 tokens: 37 440 and 8 640 bytes where 4 are one entry, 1 728 where 128 are.
            # Windowed pages: 37 440 of 64 tokens, 32 832 of 8. Open groups: two pages of 32 832 and of 8 640.
            COMPRESSED,
            (2 * (146.25 + 33.75) + 6.75, 4 * 585 + 4104, 2 * 2 * (32832 + 8640)),
            id="compressed",
        ),
        pytest.param(
            COMPRESSED | {"compress_ratios": None, "layer_types": KINDS},
            (2 * (146.25 + 33.75) + 6.75, 4 * 585 + 4104, 2 * 2 * (32832 + 8640)),
            id="compressed, as transformers writes it",
        ),
        pytest.param(
            # Pages of 256 tokens: 74 880 and 17 280 bytes where 2 are one entry, 149 760 and 33 984 where one
            # is; of 32 windowed tokens 19 008.
            COMPRESSED | SOURCES,
            (360 + 717.75, 4 * 594, 8 * 1024 * 4),
            id="compressed for layers behind",
        ),
        pytest.param(
            INKLING,
            (2 * 32 * 4, 3 * 4 * 16 * 4, 3 * 4 * 4 * 128 * 2 + 4 * 2 * 256 * 2),
            id="convolutions beside an attention",
        ),
        pytest.param(
            {"layer_group_size": 2, "head_dim": 32} | LATENT,
            (2 * 1152, 0, 2 * 4 * 32 * 32 * 2),
            id="lightning attention",
        ),
        pytest.param(
            {"layer_types": ["conv", "conv", "full_attention", "conv"], "conv_L_cache": 3},
            (256, 0, 3 * 128 * 2 * 2),
            id="short convolutions",
        ),
    ],
)
def test_bytes(entries: dict[str, Any], expected: tuple[float, float, int]) -> None:
    assert totals(**entries) == pytest.approx(expected, rel=1e-12)
