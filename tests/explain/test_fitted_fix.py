"""A fix leaves out what the log's settings already have, and names the host's own package manager."""

import pytest

from medley.explain.fitted_fix import fit_fix
from tests.explain.test_explain import of

KV = "half the cache: medley serve MODEL --kv-type fp8; or 4 such GPUs: medley serve MODEL --tp 4"
CACHE = """[start.sh] MAX_MODEL_LEN=850000 KV_CACHE_DTYPE=fp8 TENSOR_PARALLEL_SIZE=2
ValueError: To serve at least one request with the model's max seq len (850000), \
(13.46 GiB KV cache is needed, which is larger than the available KV cache memory (12.48 GiB). \
Based on the available memory, the estimated maximum model length is 787968.
"""


@pytest.mark.parametrize(
    ("settings", "fitted"),
    [
        ("", KV),
        ("non-default args: {'kv_cache_dtype': 'fp8_e4m3'}", "4 such GPUs: medley serve MODEL --tp 4"),
        ("vllm serve a/b --kv-cache-dtype fp8", "4 such GPUs: medley serve MODEL --tp 4"),
        ("vllm serve a/b -tp 2 --tensor-parallel-size 4", "half the cache: medley serve MODEL --kv-type fp8"),
        ("vllm serve a/b --kv-cache-dtype auto", KV),
        ("--kv-cache-dtype fp8 --tensor-parallel-size 4", KV),
    ],
)
def test_a_setting_in_effect_is_no_advice(settings: str, fitted: str) -> None:
    assert fit_fix(KV, settings, None) == fitted


@pytest.mark.parametrize(
    "fix",
    [
        "start it without --kv-cache-dtype fp8",
        "another type than --kv-cache-dtype fp8; or a newer engine",
        "--attention-backend TRITON_ATTN, or FLASHINFER",
    ],
)
def test_a_setting_that_a_fix_speaks_against_stays(fix: str) -> None:
    assert fit_fix(fix, "--kv-cache-dtype fp8 --attention-backend TRITON_ATTN", None) == fix


def test_a_variable_in_effect_is_no_advice() -> None:
    fix = "export NCCL_CROSS_NIC=0; or name the devices in NCCL_IB_HCA"
    assert fit_fix(fix, "NCCL_CROSS_NIC set by environment to 0.", None) == "name the devices in NCCL_IB_HCA"
    assert fit_fix(fix, "NCCL_CROSS_NIC=1", None) == fix


def test_the_package_manager_is_that_of_the_host() -> None:
    fix = "install them: sudo apt-get install -y build-essential ninja-build; then start it again"
    assert "sudo dnf install build-essential ninja-build (their names" in fit_fix(fix, "", "dnf")
    assert "add to the packages of the system: build-essential ninja-build" in fit_fix(fix, "", "nixos")
    assert fit_fix(fix, "", None) == fix


def test_a_recipe_s_variables_are_settings() -> None:
    """The advice was a KV cache of fp8 where the recipe had one."""
    [report] = of(CACHE).problems
    assert "--kv-type" not in report.problem().fix
    assert "--kv-type fp8" in of(CACHE.replace("=fp8", "=auto")).problems[0].problem().fix


def test_the_ranks_are_counted_once_for_a_command_and_its_printed_arguments() -> None:
    log = (
        "python3 -m sglang.launch_server --model-path a/b --tp 2\n"
        "[2026-08-19 07:12:05] server_args=ServerArgs(model_path='a/b', tp_size=2, ...)\n"
        "[2026-08-19 07:13:40] Load weight end. type=X, avail mem=2.0 GB, mem usage=70.00 GB.\n"
        "[2026-08-19 07:13:41] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 "
        "has a total capacity of 79.00 GiB of which 1.00 GiB is free.\n"
    )
    text = str(of(log).problems[0].problem())
    assert "on each of 4 GPUs" not in text
    assert "--tp 8" not in text


def test_the_draft_is_read_from_the_command_before_the_printed_arguments() -> None:
    """SGLang prints its arguments shortened in some logs, and its command had the draft."""
    log = (
        "$ python3 -m sglang.launch_server \\\n"
        "  --model-path a/b \\\n"
        "  --speculative-algorithm DFLASH \\\n"
        "  --speculative-draft-model-path a/b-DFlash\n"
        "[2026-08-19 07:12:05] server_args=ServerArgs(model_path='a/b', speculative_algorithm='DFLASH')\n"
        "[2026-08-19 07:14:35] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/s/sglang/srt/speculative/dflash_worker_v2.py", line 812, in forward_batch_generation\n'
        "RuntimeError: the draft is odd\n"
    )
    assert [report.match.failure.name for report in of(log).problems] != ["draft-is-model"]
    [own] = of(log.replace("a/b-DFlash", "a/b")).problems
    assert own.match.failure.name == "draft-is-model"


@pytest.mark.parametrize(
    ("settings", "fitted"),
    [
        ("vllm serve a/b --enforce-eager", "another build: medley plan MODEL"),
        ("vllm serve a/b", None),
    ],
)
def test_a_switch_in_effect_is_no_advice(settings: str, fitted: str | None) -> None:
    """A log with --enforce-eager was told to add it."""
    fix = "without graphs: medley serve MODEL -- --enforce-eager; another build: medley plan MODEL"
    assert fit_fix(fix, settings, None) == (fitted or fix)


def test_a_clause_of_which_half_is_in_effect_stays() -> None:
    fix = "NCCL_P2P_DISABLE=1 medley serve MODEL -- --disable-custom-all-reduce; nvidia-smi topo -p2p r"
    assert fit_fix(fix, "NCCL_P2P_DISABLE=1", None) == fix
    both = "NCCL_P2P_DISABLE=1 vllm serve a/b --disable-custom-all-reduce"
    assert fit_fix(fix, both, None) == "nvidia-smi topo -p2p r"
