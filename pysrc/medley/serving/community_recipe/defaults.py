"""Convert a recipe's defaults to flags as sparkrun does, and list the unused ones."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from medley.schema import EngineName
from medley.serving.community_recipe import Entry
from medley.serving.community_recipe.document import Value
from medley.serving.community_recipe.engine_flags import flag_entries
from medley.serving.community_recipe.shell_command import EngineCommand, EngineFlag

# src/sparkrun/runtimes/_vllm_common.py and sglang.py: what sparkrun passes where a recipe has no command.
_SHARED: Mapping[str, str] = {
    "port": "--port",
    "host": "--host",
    "served_model_name": "--served-model-name",
    "dtype": "--dtype",
    "quantization": "--quantization",
    "trust_remote_code": "--trust-remote-code",
    "kv_cache_dtype": "--kv-cache-dtype",
    "api_key": "--api-key",
}
_FLAGS: Mapping[EngineName, Mapping[str, str]] = {
    "vllm": {
        **_SHARED,
        "tensor_parallel": "--tensor-parallel-size",
        "pipeline_parallel": "--pipeline-parallel-size",
        "data_parallel": "--data-parallel-size",
        "gpu_memory_utilization": "--gpu-memory-utilization",
        "max_model_len": "--max-model-len",
        "max_num_batched_tokens": "--max-num-batched-tokens",
        "max_num_seqs": "--max-num-seqs",
        "enforce_eager": "--enforce-eager",
        "enable_prefix_caching": "--enable-prefix-caching",
        "distributed_executor_backend": "--distributed-executor-backend",
        "otlp_traces_endpoint": "--otlp-traces-endpoint",
    },
    "sglang": {
        **_SHARED,
        "tensor_parallel": "--tp-size",
        "pipeline_parallel": "--pp-size",
        "gpu_memory_utilization": "--mem-fraction-static",
        "max_model_len": "--context-length",
        "max_num_seqs": "--max-running-requests",
        "chunked_prefill": "--chunked-prefill-size",
        "tokenizer_path": "--tokenizer-path",
        "speculative_draft_model_path": "--speculative-draft-model-path",
    },
}
_SWITCHES = {"enforce_eager", "enable_prefix_caching", "trust_remote_code"}
# Added to a recipe's command that has no such flag: generate_node_command and _augment_served_model_name.
_ADDED: Mapping[str, str] = {
    "data_parallel": "--data-parallel-size",
    "served_model_name": "--served-model-name",
}


def generated(engine: EngineName, defaults: Mapping[str, Value]) -> Iterator[EngineFlag]:
    for key, flag in _FLAGS[engine].items():
        value = defaults.get(key)
        if key in _SWITCHES:
            if value:
                yield EngineFlag(flag)
        elif value is not None:
            yield EngineFlag(flag, (str(value),))


def without_flag(engine: EngineName, defaults: Mapping[str, Value]) -> Iterator[Entry]:
    for key in defaults:
        if key not in _FLAGS[engine]:
            why = "sparkrun has no flag for it where a recipe has no command"
            yield Entry(f"defaults.{key}", "unused", why)


def without_placeholder(
    command: EngineCommand, defaults: Mapping[str, Value], named: frozenset[str]
) -> Iterator[Entry]:
    has = {flag.name for flag in command.flags}
    for key, value in defaults.items():
        if key in named:
            continue
        added = _ADDED.get(key)
        if added and added not in has and value is not None:
            alone = replace(command, flags=(EngineFlag(added, (str(value),)),))
            yield from (replace(each, key=f"defaults.{key}") for each in flag_entries(alone, ""))
        else:
            yield Entry(f"defaults.{key}", "unused", "the recipe's command has no placeholder for it")
