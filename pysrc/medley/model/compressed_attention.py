"""Count the weights of DeepSeek V4's attention: low-rank queries and outputs, compressors and an index.

For DeepSeek-V4-Flash they come to what the headers of its weights have (models/deepseek-v4-flash.toml):
4599.1 MB of attention in FP8, and with its router 0.9 GB of compressors and index.
"""

from medley.model.config_fields import FIELD_NAMES, ConfigFields
from medley.model.kv_cache import OVERLAPPING_RATIO, count_query_heads, find_head_dim

BYTES_PER_ATTENTION_WEIGHT = 1.0
"""The bytes of a weight of attention and shared experts.

The builds of DeepSeek, NVIDIA and Red Hat keep them in FP8 (ai-dynamo/aiconfigurator, model_configs).
"""


def count_attention_weights(fields: ConfigFields, ratio: int) -> int:
    """Count a layer's queries, keys and outputs, and the queries of an index."""
    hidden = fields.require_number(*FIELD_NAMES["hidden"])
    wide = count_query_heads(fields) * find_head_dim(fields)
    rank = fields.require_number("q_lora_rank")
    out = fields.require_number("o_lora_rank")
    groups = fields.require_number("o_groups")
    count = rank * (hidden + wide) + hidden * find_head_dim(fields) + out * (wide + groups * hidden)
    if ratio == OVERLAPPING_RATIO:
        count += rank * fields.require_number("index_n_heads") * fields.require_number("index_head_dim")
    return count


def count_compressor_weights(fields: ConfigFields, ratio: int) -> int:
    """Count the 16-bit weights that make an entry of `ratio` tokens: keys and scores, twice in overlaps."""
    hidden = fields.require_number(*FIELD_NAMES["hidden"])
    if ratio == OVERLAPPING_RATIO:
        index = 4 * fields.require_number("index_head_dim") + fields.require_number("index_n_heads")
        return hidden * (4 * find_head_dim(fields) + index)
    return 2 * hidden * find_head_dim(fields) if ratio else 0
