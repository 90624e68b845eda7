"""Whether weights fit a GPU is computed from the log's own numbers, and the fix proposes what would fit."""

import pytest

from medley.explain.memory_fit import MemoryFit, explain_fit
from tests.explain.test_explain import names, of

CAPACITY = (
    "CUDA out of memory. Tried to allocate 500.00 MiB. GPU 0 has a total capacity of 23.52 GiB of which "
)
OOM = CAPACITY + "128.06 MiB is free. Including non-PyTorch memory, this process has {} GiB memory in use."
START = "(APIServer pid=1) INFO 01-10 10:11:02 [utils.py:253] non-default args: {}\n"
CHECKPOINT = (
    "(EngineCore pid=9) INFO 01-10 10:11:30 [weight_utils.py:801] Filesystem type for checkpoints: EXT4. "
    "Checkpoint size: {} GiB. Available RAM: 55.10 GiB.\n"
)
LOADS = '  File "/v/site-packages/vllm/model_executor/layers/linear.py", line 431, in create_weights\n'


def fit(said: str = "", arguments: str = "", **facts: str) -> MemoryFit:
    return explain_fit(said, facts, arguments)


def test_weights_that_exceed_a_gpu_need_a_smaller_build_or_more_gpus() -> None:
    log = START.format("{'model': 'Qwen/Qwen3-32B', 'gpu_memory_utilization': 0.95}")
    log += CHECKPOINT.format("61.03") + LOADS + f"torch.OutOfMemoryError: {OOM.format('22.71')}\n"
    (found,) = of(log).problems
    assert found.match.failure.name == "weights-exceed-gpu"
    assert "61.0 GiB, and a GPU has 23.5 GiB" in found.problem().cause
    assert "about 19 GiB instead of 61" in found.problem().fix
    assert "--tp 4" in found.problem().fix
    assert "utilization 0" not in found.problem().fix


def test_the_weights_are_shared_by_ranks() -> None:
    args = "{'model': 'm', 'tensor_parallel_size': 4}"
    log = START.format(args) + CHECKPOINT.format("61.03") + LOADS
    assert names(of(log + f"torch.OutOfMemoryError: {OOM.format('11.2')}\n")) == ["gpu-memory-held"]


@pytest.mark.parametrize(
    ("own", "name"),
    [("22.71", "weights-fill-gpu"), ("11.02", "gpu-memory-held"), ("19.00", "gpu-memory-held")],
)
def test_who_holds_the_memory_is_computed(own: str, name: str) -> None:
    (found,) = of(f"{LOADS}torch.OutOfMemoryError: {OOM.format(own)}\n").problems
    assert found.match.failure.name == name


def test_processes_that_the_error_lists_are_counted() -> None:
    each = "Process 12 has 15.01 GiB memory in use. Process 99 has 8.20 GiB memory in use."
    (found,) = of(f"torch.OutOfMemoryError: {CAPACITY}38.69 MiB is free. {each}\n").problems
    assert found.match.failure.name == "gpu-memory-held"
    assert "2 processes hold 15.01 and 8.20 GiB" in found.problem().cause


def test_the_host_s_own_programs_are_not_others_on_unified_memory() -> None:
    said = "GPU 0 has a total capacity of {} GiB of which 1.10 GiB is free. Including non-PyTorch memory, "
    said += "this process has {} GiB memory in use."
    assert fit(said.format("119.70", "101.22")).others is None
    assert fit(said.format("119.70", "51.22")).others
    assert fit(said.format("79.10", "66.90")).others


def test_a_4_bit_build_is_not_told_to_become_one() -> None:
    smaller = fit(arguments="'model': 'x/y-AWQ'", weights="30", gpu="23.5").smaller
    assert smaller
    assert "4-bit" not in smaller
    assert "about 17 GiB" in (fit(arguments="'model': 'x/y-FP8'", weights="30", gpu="23.5").smaller or "")


def test_an_engine_that_quantizes_or_offloads_places_less_than_the_files_have() -> None:
    assert fit(arguments="'quantization': 'fp8'", checkpoint="61", gpu="40").exceeds is None
    assert fit(arguments="vllm serve m --cpu-offload-gb 30", checkpoint="61", gpu="40").exceeds is None
    assert fit(checkpoint="61", gpu="40").exceeds


def test_offloading_is_for_a_small_rest() -> None:
    assert "--cpu-offload-gb 8" in (fit(weights="25.4", gpu="23.5").smaller or "")
    assert "offload" not in (fit(weights="61", gpu="23.5").smaller or "")


def test_without_numbers_nothing_is_said() -> None:
    assert fit("CUDA out of memory", weights="x") == MemoryFit()


def test_sglang_s_share_is_computed() -> None:
    log = (
        "[2026-08-26 08:11:20] Load weight begin. avail mem=31.10 GB\n"
        "[2026-08-26 08:11:28] Load weight end. type=Qwen3, avail mem=5.6 GB, mem usage=25.52 GB.\n"
        "RuntimeError: Not enough memory. Please try to increase --mem-fraction-static.\n"
    )
    (found,) = of(log).problems
    assert found.match.failure.name == "sglang-static-memory"
    assert "25.5 GiB, and a GPU has 31.1 GiB" in found.problem().cause
    assert "need 0.89" in found.problem().fix
