"""A warning of the log names the remedy of a later error, if both are about one package."""

import pytest

from medley.explain.remedies import find_remedy
from medley.explain.scanned_log import shorten_message
from tests.explain.test_explain import of

FLASH = "xformers is used here. You can run `pip install flash-attn` instead."
TORCH = "this build is slow: pip install torch"


@pytest.mark.parametrize(
    ("said", "calls", "expected"),
    [
        ("CUDA error (/src/xformers/x.h:1): invalid argument", [], FLASH),
        ("CUDA error: invalid argument", ["flash_attn/interface.py, forward"], FLASH),
        ("flash_attn_2_cuda failed", [], FLASH),
        ("CUDA error: invalid argument", ["vllm/v1/worker.py, run"], None),
    ],
)
def test_the_package_is_compared(said: str, calls: list[str], expected: str | None) -> None:
    assert find_remedy(said, calls, [FLASH, TORCH]) == expected


def test_a_warning_far_above_the_error_is_quoted() -> None:
    start = f"(EngineCore_0 pid=9) WARNING 11-21 08:01:31 [cuda.py:211] {FLASH}\n"
    between = "(EngineCore_0 pid=9) INFO 11-21 08:01:32 [x.py:1] goes on\n" * 200
    error = "CUDA error (/src/xformers/csrc/x.cu:80): misaligned address\n"
    (found,) = of(start + between + error).problems
    assert f"a warning before it says: '{FLASH}'" in found.problem().fix
    (other,) = of(start + between + error.replace("xformers", "marlin")).problems
    assert "flash-attn" not in other.problem().fix


def test_advice_that_its_message_warns_of_is_not_given() -> None:
    advice = "OddError: no value. Set `allow_odd` to `True` on the config. "
    (safe,) = of(f"{advice}It is then read.\n").problems
    assert "allow_odd" in safe.problem().fix
    (warned,) = of(f"{advice}Warning: only do this if the caller can handle it.\n").problems
    assert "allow_odd" not in warned.problem().fix


def test_a_long_message_is_cut_after_a_word() -> None:
    text = "word " * 100
    assert shorten_message(text) == text.strip()
    assert shorten_message(text * 3).endswith("word …")


def test_an_end_after_nccl_in_the_log_of_one_rank_counts_for_the_other() -> None:
    begun = "[2026-11-21 08:11:05 TP0] sglang is using nccl==2.30.7\n"
    last = (
        "[2026-11-21 08:11:07 TP0] CustomAllreduce is disabled because this process group spans across nodes."
    )
    done = "b:8:9 [0] NCCL INFO ncclCommInitRank comm 0x5a1 rank 1 nranks 2 cudaDev 0 - Init COMPLETE\n"
    assert of(begun + last).problems[0].match.failure.name == "ended-while-connecting"
    (found,) = of(begun + last, begun + done + last).problems
    assert found.match.failure.name == "ended-after-nccl"
    assert "SGLANG_HOST_IP" in found.problem().fix


@pytest.mark.parametrize(("head", "is_named"), [("10.20.0.1", True), ("192.0.2.25", False)])
def test_the_address_of_the_cluster_is_named_if_it_differs(head: str, *, is_named: bool) -> None:
    log = (
        f"INFO worker.py:1821 -- Connecting to existing Ray cluster at address: {head}:6379...\n"
        "[autoscaler] Error: No available node types can fulfill resource request\n"
        "     {'GPU': 1.0, 'node:192.0.2.25': 0.001}. Add suitable node types to this cluster.\n"
    )
    (found,) = of(log).problems
    assert found.match.failure.name == "ray-address-asked"
    assert (f"--node-ip-address={head}" in found.problem().fix) is is_named
