"""Count the weights of DeepSeek V4's attention: low-rank queries and outputs, compressors and an index.

For DeepSeek-V4-Flash they come to what the headers of its weights have (models/deepseek-v4-flash.toml):
4599.1 MB of attention in FP8, and with its router 0.9 GB of compressors and index.
"""

from medley.model.config_fields import NAMES, Fields
from medley.model.kv_cache import OVERLAPPING, head_dim, query_heads

ATTENTION_BYTES = 1.0
"""Of a weight of attention and shared experts: the builds of DeepSeek, NVIDIA and Red Hat keep them in FP8
(ai-dynamo/aiconfigurator, model_configs)."""


def attention_weights(fields: Fields, ratio: int) -> int:
    """Count a layer's queries, keys and outputs, and the queries of an index."""
    hidden, wide = fields.whole(*NAMES["hidden"]), query_heads(fields) * head_dim(fields)
    rank, out, groups = fields.whole("q_lora_rank"), fields.whole("o_lora_rank"), fields.whole("o_groups")
    found = rank * (hidden + wide) + hidden * head_dim(fields) + out * (wide + groups * hidden)
    if ratio == OVERLAPPING:
        found += rank * fields.whole("index_n_heads") * fields.whole("index_head_dim")
    return found


def compressor_weights(fields: Fields, ratio: int) -> int:
    """Count what makes an entry of `ratio` tokens, in 16 bits: keys and scores, twice if groups overlap."""
    hidden = fields.whole(*NAMES["hidden"])
    if ratio == OVERLAPPING:
        index = 4 * fields.whole("index_head_dim") + fields.whole("index_n_heads")
        return hidden * (4 * head_dim(fields) + index)
    return 2 * hidden * head_dim(fields) if ratio else 0
