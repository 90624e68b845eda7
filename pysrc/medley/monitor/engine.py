"""What an engine tells of itself in its own metrics, under the same names for each engine.

vLLM 0.32.0 (v1/metrics/loggers.py) and SGLang 0.5.23 (srt/observability/metrics_collector.py).
"""

from collections.abc import Mapping

from medley.monitor.exposition import Family, Labels

# By figure, the samples that give it: of each the first that is there.
_NAMES: Mapping[str, tuple[str, ...]] = {
    "running": ("vllm:num_requests_running", "sglang:num_running_reqs"),
    "waiting": ("vllm:num_requests_waiting", "sglang:num_queue_reqs"),
    "preempted_total": ("vllm:num_preemptions_total", "sglang:num_retracted_requests_total"),
    "kv_cache": ("vllm:kv_cache_usage_perc", "sglang:token_usage"),
    "generated_tokens_total": ("vllm:generation_tokens_total", "sglang:generation_tokens_total"),
    "prompt_tokens_total": ("vllm:prompt_tokens_total", "sglang:prompt_tokens_total"),
    "first_token_s_total": ("vllm:time_to_first_token_seconds_sum", "sglang:time_to_first_token_seconds_sum"),
    "first_token_total": (
        "vllm:time_to_first_token_seconds_count",
        "sglang:time_to_first_token_seconds_count",
    ),
}
_SHARES = {"kv_cache"}
# Ranks of one model tell the same queue, each for itself.
_ONE = {"tp_rank", "pp_rank", "moe_ep_rank", "pid"}


def figures(said: Mapping[str, Family]) -> dict[str, float]:
    """Sums over engines side by side, and of a share the highest."""
    values: dict[str, dict[Labels, float]] = {}
    for family in said.values():
        if family.name.startswith(("vllm:", "sglang:")):
            for point in family.points:
                apart = tuple(label for label in point.labels if label[0] not in _ONE)
                of = values.setdefault(point.name, {})
                of[apart] = max(of.get(apart, point.value), point.value)
    found = {}
    for figure, names in _NAMES.items():
        told = next((values[name].values() for name in names if name in values), None)
        if told:
            found[figure] = max(told) if figure in _SHARES else sum(told)
    return found
