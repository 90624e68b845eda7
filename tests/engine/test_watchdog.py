"""A stopped rank is named within the limit, with the stacks of the others, and nothing is left."""

import os
import platform
import re
import sys
import time
from pathlib import Path

import pytest

from medley.command import Command
from medley.process_identity import list_descendants
from tests.servers import Start

pytestmark = pytest.mark.engine

LIMIT_S = 12


def test_a_stopped_rank_of_two_is_named_and_all_end(
    start: Start, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VLLM_CPU_OMP_THREADS_BIND", "0|1")
    words = ("--port", str(free_port), "--stall-limit", str(LIMIT_S), "--", "--tensor-parallel-size", "2")
    served = start(Command((sys.executable, "-m", "medley", "serve", "demo", *words)))
    served.ready()
    family = list_descendants(served.process.pid)
    (rank,) = [each for each in family if "TP1" in _words(each.pid)]
    os.kill(rank.pid, 19)
    stopped = time.monotonic()
    finished = served.process.wait(5 * LIMIT_S)
    assert finished is not None, served.tail()
    assert finished.status == 1
    assert "is stuck: a request for one token is unanswered" in served.tail()
    assert f"(process {rank.pid}) on {platform.node()} (this host) is stopped" in served.tail()
    named = tmp_path / "state" / "logs" / f"stuck-{free_port}.log"
    assert named.stat().st_mtime - (time.time() - (time.monotonic() - stopped)) < LIMIT_S + 10
    report = named.read_text()
    assert re.search(r"Worker_TP0 .*\n(?:.*\n)*.* in all_reduce", report), "what the other rank waits in"
    assert [each for each in family if each.is_alive] == []


def test_a_stopped_scheduler_of_sglang_is_named_and_all_end(
    start: Start, free_port: int, tmp_path: Path
) -> None:
    words = ("--engine", "sglang", "--port", str(free_port), "--stall-limit", str(LIMIT_S))
    served = start(Command((sys.executable, "-m", "medley", "serve", "demo", *words)))
    served.ready()
    family = list_descendants(served.process.pid)
    (rank,) = [each for each in family if "sglang::scheduler" in _words(each.pid)]
    os.kill(rank.pid, 19)
    finished = served.process.wait(5 * LIMIT_S)
    assert finished is not None, served.tail()
    assert f"(process {rank.pid}) on {platform.node()} (this host) is stopped" in served.tail()
    report = (tmp_path / "state" / "logs" / f"stuck-{free_port}.log").read_text()
    assert re.search(r"sglang::deto.* state S", report), "the detokenizer's stack"
    assert [each for each in family if each.is_alive] == []


def _words(pid: int) -> str:
    return Path(f"/proc/{pid}/cmdline").read_text(encoding="utf-8")
