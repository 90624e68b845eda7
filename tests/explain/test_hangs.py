"""The owner's words and the use of the GPUs show that a step hangs."""

import pytest

from medley.explain.hangs import find_hang
from tests.explain.test_explain import names, of

SGLANG = "$ python3 -m sglang.launch_server --model-path /models/x --tp 2 --nnodes 2 --node-rank 0\n"
CAPTURE = "Capturing batches (bs=256 avail_mem=18.04 GB):   0%|          | 0/36 [00:00<?, ?it/s]\n"
WAITED = "# ... 34 minutes later still 0/36, on both nodes\n"
BUSY = "$ nvidia-smi dmon -s u\n# gpu     sm    mem    enc    dec\n    0     96      0      0      0\n"


def test_ranks_without_progress_hang_in_the_capture() -> None:
    (report,) = of(SGLANG + CAPTURE + WAITED + BUSY).problems
    assert (report.match.failure.name, report.confidence) == ("hang-in-capture", "medium")
    problem = report.problem()
    assert "34 minutes later" in problem.cause
    assert "SM 96 %, memory 0 %" in problem.cause
    assert problem.fix.startswith("without graphs: medley serve MODEL -- --disable-cuda-graph")
    assert "dmesg" not in problem.fix


@pytest.mark.parametrize(
    "log",
    [SGLANG + CAPTURE, SGLANG + CAPTURE + BUSY, CAPTURE + WAITED + BUSY],
    ids=["no time", "only a busy GPU", "one rank"],
)
def test_without_time_or_ranks_it_may_also_be_a_kill(log: str) -> None:
    assert names(of(log)) == ["ended-while-capturing"]


def test_the_owner_s_words_are_in_other_phases_too() -> None:
    loading = "Loading safetensors checkpoint shards:  33% Completed | 1/3 [00:04<00:09,  4.51s/it]\n"
    (report,) = of(f"{loading}(after 45 min still the same line)\n").problems
    assert "a hang is likelier than a kill" in report.problem().cause


@pytest.mark.parametrize(
    "line",
    ["stuck like this for 2 hours on both Sparks", "no progress for 20 min", "10 minutes later: same line"],
)
def test_words_for_a_hang(line: str) -> None:
    assert line in (find_hang([line]) or "")


@pytest.mark.parametrize(
    "line",
    [
        "INFO 11-21 08:01:33 [x.py:1] still compiling after 10 minutes",
        "This can take up to several minutes",
        "still there after 2 minutes",
        "it took 34 minutes",
    ],
)
def test_words_for_no_hang(line: str) -> None:
    assert find_hang([line]) is None


def test_a_gpu_that_reads_memory_computes() -> None:
    use = find_hang([WAITED, "96 %, 54 %"]) or ""
    assert "SM" not in use
    assert "SM 96 %, memory 0 %" in (find_hang([WAITED, "96 %, 0 %"]) or "")
