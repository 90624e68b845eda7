"""Read from an engine's log which kernels and backends it really runs, each with its line."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from medley.measurement.field_report import Backend
from medley.schema import EngineName

_LONGEST = 300
# vLLM's words as its 0.32.0 logs them: platforms/{cuda,cpu}.py, fused_moe/oracle, kernels/linear, pynccl.py,
# compilation/monitor.py, gpu_model_runner.py. On a CPU it does not log which attention it takes.
_VLLM = (
    (
        "attention",
        r"Using (\S+) attention backend|Using AttentionBackendEnum\.(\S+) backend|Using (\w+MLA) backend",
    ),
    ("MLA prefill", r"Using (\S+) MLA prefill backend"),
    ("experts", r"Using '?([\w.+-]+)'? (?:\w+ )?(?:MoE|MOE) backend"),
    (
        "matrix products",
        r"Selected (\w+) for \w+|Using (\w+) for (?:NVFP4|MXFP4|MXFP8|MXFP6|mixed-precision|Auto\w+)",
    ),
    ("KV cache", r"Using (\S+) data type to store kv cache|Using (\w+ KV cache layout)"),
    ("NCCL", r"vLLM is using nccl==(\S+)"),
    ("CUDA graphs", r"(Graph capturing finished)|(Enforce eager set)"),
    ("compile", r"torch\.compile (took [\d.]+ s)|(Inductor compilation was disabled)"),
    ("collectives", r"distributed_init_method=\S+ backend=(\w+)"),
)
# SGLang's as its 0.5.23 does: arg_groups, pynccl.py, cuda_graph_setup.py; its settings stand in one line.
_SGLANG = (
    (
        "attention",
        r"Use (\S+) backend by default|Using? (\S+) as attention backend|fallback to (\w+) backend",
    ),
    ("attention", r"'attention_backend': '(\w+)'"),
    ("experts", r"'moe_runner_backend': '(\w+)'"),
    ("matrix products", r"'fp[48]_gemm_runner_backend': '(\w+)'"),
    ("KV cache", r"'kv_cache_dtype': '(\w+)'"),
    ("NCCL", r"sglang is using nccl==(\S+)"),
    ("CUDA graphs", r"Capture (\w+ CUDA graph) end|(Disable \w+ CUDA graph)|'(disable_cuda_graph)': True"),
    ("compile", r"'(enable_torch_compile)': True"),
)
# NCCL's own, with NCCL_DEBUG=INFO; the version is also that of a plugin.
_NCCL = (
    ("NCCL", r"NCCL version (\S+)"),
    (
        "NCCL transport",
        r"NCCL INFO Using network (\w+)|NCCL INFO (NET/\w+) : Using|via (P2P|SHM|NET/\w+/\d+(?:/GDRDMA)?)",
    ),
)
_PATTERNS: Mapping[EngineName, tuple[tuple[str, re.Pattern[str]], ...]] = {
    "vllm": tuple((what, re.compile(pattern)) for what, pattern in (*_VLLM, *_NCCL)),
    "sglang": tuple((what, re.compile(pattern)) for what, pattern in (*_SGLANG, *_NCCL)),
}


def backends(engine: EngineName, lines: Iterable[str], redacted: Callable[[str], str]) -> Iterator[Backend]:
    """Yield each once, where it stands first."""
    seen = set()
    for nth, line in enumerate(lines, 1):
        for what, pattern in _PATTERNS[engine]:
            for match in pattern.finditer(line):
                found = next(filter(None, match.groups()))
                if (what, found) not in seen:
                    seen.add((what, found))
                    text = redacted(line[max(0, match.start() - 80) :].strip()[:_LONGEST])
                    yield Backend(what=what, found=redacted(found)[:80], line=nth, text=text)
