"""Which flags of the engine a log shows, and whose flags a fix names."""

import pytest

from medley.explain import patterns
from medley.explain.engine_advice import keep_engine_parts
from medley.explain.flags import read_flags
from tests.explain.test_context import traced
from tests.explain.test_explain import names, of

NAMES = frozenset({"--attention-backend", "--speculative-config", "--kv-cache-dtype", "--enable-lora"})
VLLM = "(APIServer pid=1) INFO 08-12 08:01:33 [utils.py:286] non-default args: "
SGLANG = "[2026-08-12 08:01:33] server_args=ServerArgs(model_path='m', attention_backend='fa3', port=1)\n"


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (
            "non-default args: {'kv_cache_dtype': 'fp8', 'speculative_config': {'method': 'mtp'}}",
            ["--kv-cache-dtype fp8", "--speculative-config"],
        ),
        ("server_args=ServerArgs(attention_backend='fa3', enable_lora=None)", ["--attention-backend fa3"]),
        ("server_args=ServerArgs(kv_cache_dtype='auto', enable_lora=False)", []),
        ("ServerArgs(prefill_attention_backend='fa3')", []),
        (
            "vllm serve m --enable-lora --attention-backend=FLASHINFER",
            ["--enable-lora", "--attention-backend FLASHINFER"],
        ),
        ("vllm serve m --kv-cache-dtype $(reboot)", ["--kv-cache-dtype"]),
        ("non-default args: {'enable_lora': True}", ["--enable-lora"]),
    ],
)
def test_the_flags_of_a_line_are_read(text: str, read: list[str]) -> None:
    found = read_flags(text, NAMES)
    assert list(found.values()) == read


def test_the_flag_that_selects_the_code_of_an_unknown_error_is_named() -> None:
    args = VLLM + "{'model_tag': 'm', 'kv_cache_dtype': 'fp8', 'decode_context_parallel_size': 8}\n"
    text = "AttributeError: 'OddSparseImpl' object has no attribute 'dcp_world_size'"
    (found,) = of(args + traced("vllm/v1/attention/backends/mla/odd_sparse.py", error=text)).problems
    problem = found.problem()
    assert found.confidence == "low"
    assert "the log shows" in problem.cause
    assert "--decode-context-parallel-size 8" in problem.fix
    assert "defect of this version" in problem.what
    assert problem.fix.startswith("a newer version, or the one before")


def test_a_command_over_several_lines_has_its_flags() -> None:
    command = "$ docker run vllm serve m \\\n  --enable-lora \\\n  --tensor-parallel-size 2\n"
    (found,) = of(command + traced("vllm/lora/layers.py")).problems
    assert "--enable-lora" in found.problem().cause


def test_an_error_of_a_library_is_no_defect_of_the_engine() -> None:
    (found,) = of(traced("torch/x.py", error="AttributeError: odd")).problems
    assert "defect" not in found.problem().what
    assert "newer version" not in found.problem().fix


def test_a_fix_in_a_log_of_sglang_has_no_flag_of_vllm() -> None:
    error = "CUDA error: an illegal memory access was encountered"
    text = SGLANG + traced("sglang/srt/layers/moe/fused_moe.py", error=f"RuntimeError: {error}")
    (found,) = of(text).problems
    fix = found.problem().fix
    assert "--moe-runner-backend" in fix
    assert "--disable-cuda-graph" in fix
    assert "--moe-backend" not in fix
    assert "--enforce-eager" not in fix
    (other,) = of(text.replace("sglang/srt", "vllm/v1").replace(SGLANG, VLLM + "{}\n")).problems
    assert "SGLang" not in other.problem().fix
    assert "--enforce-eager" in other.problem().fix


def test_an_environment_that_is_named_like_an_engine_is_not_that_engine() -> None:
    text = traced("sglang/srt/x.py").replace("/opt/", "/home/u/envs/vllm/")
    (found,) = of(text).problems
    assert found.match.engine == "SGLang"


def test_a_traceback_of_one_call_shows_the_engine() -> None:
    (found,) = of(traced("vllm/lora/x.py")).problems
    assert "SGLang" not in found.problem().fix


def test_a_part_of_a_text_for_an_engine_is_left_out_for_the_other() -> None:
    text = "try [vLLM: -- --a][SGLang: -- --b]; [SGLang: c]"
    assert keep_engine_parts(text, "vLLM") == "try -- --a"
    assert keep_engine_parts(text, "SGLang") == "try -- --b; c"
    assert keep_engine_parts(text, None) == "try -- --a (SGLang: -- --b); SGLang: c"


def test_no_fix_has_a_flag_of_the_other_engine() -> None:
    """Where SGLang has a flag for the same, data in engine-flags.toml names it."""
    known = patterns.load(user=False)
    rows = [(each.name, each.fix) for each in (*known.failures, *known.phases)]
    rows += [(each.name, each.instead or "") for each in known.components]
    for name, fix in rows:
        text = keep_engine_parts(fix, "SGLang")
        assert "--enforce-eager" not in text, name
        assert "TRITON_ATTN" not in text, name
        assert "--moe-backend" not in text or "--engine vllm" in text, name


def test_an_error_before_its_traceback_has_its_calls() -> None:
    text = (
        'ERROR [core.py:1] AssertionError\nERROR [core.py:1]   File ".../vllm/lora/x.py", line 1, in load\n'
    )
    (found,) = of(f"{text}ERROR [core.py:1]     assert odd\n").problems
    assert "LoRA" in found.problem().what
    assert "assert odd" in found.problem().cause


def test_memory_that_a_failed_start_still_holds_is_not_its_reason() -> None:
    taken = "ValueError: Free memory on device cuda:0 (5.1/119.7 GiB) on startup is less than desired GPU "
    taken = (
        f"(EngineCore pid=3) ERROR 11-12 08:03:03 [core.py:1] {taken}memory utilization (0.9, 107.7 GiB).\n"
    )
    start = VLLM + "{'model_tag': 'm'}\n"
    (found,) = of(start + traced("vllm/x.py") + start + taken).problems
    assert found.match.line.text == "FooError: odd"
    assert names(of(start + taken + start + taken)) == ["gpu-memory-taken"]


@pytest.mark.parametrize(
    ("calls", "error"),
    [
        (
            ["vllm/v1/attention/backends/mamba_attn.py"],
            "RuntimeError: The size of tensor a (11) must match the size of tensor b (2)",
        ),
        (["vllm/v1/core/x.py"], "TypeError: unsupported operand type(s) for |: 'dict' and 'NoneType'"),
    ],
)
def test_words_that_many_parts_print_are_not_certain(calls: list[str], error: str) -> None:
    (found,) = of(traced(*calls, error=error)).problems
    assert found.match.failure.name == "unknown-error"


def test_a_warning_of_nccl_is_no_step_of_a_start() -> None:
    warning = "spark-1:1:2 [0] x.cc:88 NCCL WARN NET/IB : an odd thing\n"
    start = "spark-1:1:2 [0] NCCL INFO ncclCommInitRank comm 0x5 rank 0 nranks 2 - Init START\n"
    assert names(of(start + warning)) == ["ended-while-connecting"]
    (found,) = of(start + warning).problems
    assert "an odd thing" in found.problem().cause
    assert names(of(start + warning * 2)) == ["nccl-warns"]


def test_a_variable_that_an_error_advises_is_no_setting() -> None:
    """The advice of an error was left out of the fix, as if it were in effect."""
    advised = (
        "INFO 03-17 02:39:50 [x.py:1] No platform detected, vLLM is running on UnspecifiedPlatform\n"
        "RuntimeError: Failed to infer device type, please set the environment variable "
        "`VLLM_LOGGING_LEVEL=DEBUG` to turn on verbose logging.\n"
    )
    assert "VLLM_LOGGING_LEVEL=DEBUG" in of(advised).problems[0].problem().fix
    set_before = "export VLLM_LOGGING_LEVEL=DEBUG\n" + advised
    assert "VLLM_LOGGING_LEVEL" not in of(set_before).problems[0].problem().fix


KV_CACHE = (
    "(EngineCore pid=12) INFO 10-01 10:00:00 [x.py:400] Available KV cache memory: -3.42 GiB\n"
    "(EngineCore pid=12) ERROR 10-01 10:00:00 [core.py:1] ValueError: No available memory for the cache "
    "blocks. Try increasing `gpu_memory_utilization` when initializing the engine.\n"
)


@pytest.mark.parametrize(
    "start",
    [
        "docker run --gpus all vllm/vllm-openai:v0.20.0 --model a/b --gpu-memory-utilization 0.95 --port 80",
        "docker run \\\n  --gpus all vllm/vllm-openai \\\n  --gpu-memory-utilization=0.95 \\\n  --port 80",
        "    command:\n      - --model=a/b\n      - --gpu-memory-utilization=0.95",
        '    command: ["--model", "a/b", "--gpu-memory-utilization", "0.95"]',
        "vllm serve a/b \\\n  --gpu-memory-utilization 0.95",
        "  vllm serve a/b --gpu-memory-utilization {gpu_memory_utilization}\ngpu_memory_utilization: 0.95",
        "python3 -m vllm.entrypoints.openai.api_server --model a/b --gpu-memory-utilization=0.95",
        "llm = LLM(model='a/b', gpu_memory_utilization=0.95, max_model_len=4096)",
        "ExecStart=/usr/bin/docker run vllm/vllm-openai --model a/b --gpu-memory-utilization 0.95",
    ],
)
def test_a_flag_that_the_log_sets_is_not_called_unset(start: str) -> None:
    """Only vllm serve and printed arguments counted; docker run, compose and recipes had "the default"."""
    cause = of(f"{start}\n{KV_CACHE}").problems[0].problem().cause
    assert "--gpu-memory-utilization is 0.95" in cause


def test_a_flag_that_an_error_advises_is_not_set() -> None:
    advised = "ValueError: it does not fit. Consider running with --gpu-memory-utilization 0.95\n"
    assert "is 0.95" not in of(advised + KV_CACHE).problems[-1].problem().cause
