"""Which share of GPU memory a log sets, and in which step of a start memory ran out."""

import pytest

from medley.explain.gpu_share import read_share
from tests.explain.test_explain import names, of

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 136.00 MiB. GPU 0 is full."
VLLM = "(EngineCore pid=9) INFO 09-17 22:42:36 "
ARGS = "(APIServer pid=1) INFO 09-17 22:41:06 [api_utils.py:273] non-default args: "


@pytest.mark.parametrize(
    ("arguments", "engine", "said", "less"),
    [
        ("{'gpu_memory_utilization': 0.98}", "vLLM", "is 0.98", "--gpu-memory-utilization 0.95"),
        ("{'gpu_memory_utilization': 0.8}", "vLLM", "is 0.8", "--gpu-memory-utilization 0.75"),
        ("non-default args: {'model_tag': 'm'}", "vLLM", "default", "--gpu-memory-utilization 0.85"),
        ("", "vLLM", "does not show", "--gpu-memory-utilization 0.85 (it must"),
        ("KV=fp8 GPU_UTIL=0.972 MAX_LEN=9", "vLLM", "GPU_UTIL is 0.972", "--gpu-memory-utilization 0.94"),
        ("VLLM_GPU_MEMORY_UTILIZATION=.8", "vLLM", "is 0.8", "--gpu-memory-utilization 0.75"),
        ("MEM_FRACTION_STATIC=0.93", "SGLang", "is 0.93", "--mem-fraction-static 0.90"),
        ("ServerArgs(mem_fraction_static=0.83)", "SGLang", "is 0.83", "--mem-fraction-static 0.78"),
        ("ServerArgs(mem_fraction_static=None)", "SGLang", "itself", "--mem-fraction-static 0.05 lower"),
        ("{'gpu_memory_utilization': 'x'}", "vLLM", "does not show", "--gpu-memory-utilization 0.85"),
    ],
)
def test_the_share_of_a_log_and_a_smaller_one(arguments: str, engine: str, said: str, less: str) -> None:
    share = read_share(OOM, arguments, engine)
    assert said in share.description
    assert share.smaller.startswith(less)


def test_a_smaller_share_fits_into_the_memory_that_is_free() -> None:
    error = "ValueError: Free memory on device cuda:0 (101.3/121.69 GiB) on startup is less than desired"
    assert read_share(error, "{'gpu_memory_utilization': 0.87}", "vLLM").smaller.endswith(" 0.82")


@pytest.mark.parametrize(
    ("file", "function", "name"),
    [
        ("v1/worker/gpu_model_runner.py", "capture_model", "cuda-graph-out-of-memory"),
        ("model_executor/layers/linear.py", "create_weights", "weights-out-of-memory"),
        ("v1/worker/gpu_worker.py", "determine_available_memory", "profile-out-of-memory"),
        ("v1/worker/gpu_worker.py", "initialize_from_config", "warm-up-out-of-memory"),
        ("v1/engine/core.py", "run_busy_loop", "serving-out-of-memory"),
        ("odd.py", "odd", "cuda-out-of-memory"),
    ],
)
def test_the_calls_show_in_which_step_memory_ran_out(file: str, function: str, name: str) -> None:
    call = f'  File "/v/site-packages/vllm/{file}", line 7, in {function}\n'
    assert names(of(f"{call}{OOM}\n")) == [name]


def test_without_calls_the_last_step_shows_it() -> None:
    args = ARGS + "{'model_tag': 'm', 'gpu_memory_utilization': 0.95}\n"
    step = f"{VLLM}Capturing CUDA graphs (PIECEWISE):   0%|          | 0/1 [00:00<?, ?it/s]\n"
    (found,) = of(f"{args}{step}{OOM}\n").problems
    assert found.match.failure.name == "cuda-graph-out-of-memory"
    assert "--gpu-memory-utilization is 0.95" in found.problem().cause
    assert "--gpu-memory-utilization 0.92" in found.problem().fix


FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 96.00 MiB. GPU 0 has a total capacity of "
    "23.54 GiB of which 63.62 MiB is free. Including non-PyTorch memory, this process has {used} GiB memory "
    "in use.\n"
)
WARM_UP = '  File "/v/site-packages/vllm/v1/worker/gpu_worker.py", line 7, in compile_or_warm_up_model\n'


def test_a_launcher_s_variable_and_the_use_of_the_process_decide() -> None:
    log = (
        "$ GPU_UTIL=0.972 MAX_LEN=150000 ./start.sh\n"
        f"{VLLM}Available KV cache memory: 7.66 GiB\n"
        f"{VLLM}GPU KV cache size: 238,976 tokens\n"
    )
    (report,) = of(log + WARM_UP + FULL.format(used="23.34")).problems
    problem = report.problem()
    assert "GPU_UTIL is 0.972" in problem.cause
    assert "default" not in problem.cause
    assert "another program took" not in f"{problem.cause} {problem.fix}"
    assert "--gpu-memory-utilization 0.94" in problem.fix
    assert "215,000 tokens" in problem.cause


def test_without_a_command_no_value_is_stated() -> None:
    (report,) = of(WARM_UP + OOM + "\n").problems
    assert "does not show --gpu-memory-utilization" in report.problem().cause
    assert "another program took" in report.problem().cause
