"""A script of a user's over two hosts, typed as a user types it: the text of one host, and nothing left."""

import json
import os
from collections.abc import Iterator, Sequence

import pytest

from medley import process
from tests.rack.cluster import cluster, token_of, typed
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Spec
from tests.waiting import wait_for
from tools.documents import programs

pytestmark = [pytest.mark.rack, pytest.mark.slow]

SCRIPT = "/tmp/home/answers.py"
LIMIT_S = 300
Texts = dict[str, str]


@pytest.fixture(scope="module")
def pair() -> Iterator[Rack]:
    """Two hosts; only the first has the script of docs/how-to/python-scripts.md."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    text = programs("how-to/python-scripts.md")[0]
    with up(Spec(2, name=f"pytest-{os.getpid()}-run")) as rack:
        rack.hosts[0].path(SCRIPT).write_text(text)
        yield rack


@pytest.fixture(scope="module")
def alone(pair: Rack) -> Texts:
    head = pair.hosts[0]
    return texts(head.run(typed("run", "demo", SCRIPT), limit_s=LIMIT_S))


def texts(finished: process.ProcessResult) -> Texts:
    assert finished.status == 0, "\n".join(finished.lines[-40:])
    return answers(finished.lines)


def answers(lines: Sequence[str]) -> Texts:
    said = [json.loads(line) for line in lines if line.startswith('{"prompt"')]
    return {each["prompt"]: each["text"] for each in said}


def left(hosts: Sequence[Host]) -> list[str]:
    marks = ("VLLM::", "answers", "torchrun", "RayWorkerProc", "replicas.py")
    return [
        line
        for host in hosts
        for line in host.says("ps", "-eo", "args").splitlines()
        if any(mark in line for mark in marks)
    ]


def together(rack: Rack, *words: str) -> tuple[process.ProcessResult, process.ProcessResult]:
    """Without Ray: how the head ended, and the host that joined it."""
    head, worker = rack.hosts
    lines: list[str] = []
    command = typed("run", "--hosts", "2", "--launcher", "mp", *words, "demo", SCRIPT)
    process = head.start(command, lines.append)
    wait_for(
        "run prints the command to join",
        lambda: any("medley join" in line for line in lines),
        60,
        state=lambda: lines,
    )
    worker.path("/tmp/home/brought").write_text(token_of(head))
    joined = worker.start(typed("join", head.name, "--token-file", "/tmp/home/brought"))
    ended = process.wait(LIMIT_S), joined.wait(30)
    process.stop()
    joined.stop()
    assert ended[0], "\n".join(lines[-40:])
    assert ended[1], "the host that joined goes on"
    return ended[0], ended[1]


def test_torchrun_has_a_rank_on_each_host(pair: Rack, alone: Texts) -> None:
    assert len(alone) == 4
    head, worker = together(pair, "--tp", "2")
    assert texts(head) == alone
    assert any("torchrun --nnodes 2 --node-rank 0" in line for line in head.lines)
    assert worker.status == 0, worker.lines[-20:]
    assert not answers(worker.lines), "one rank writes"
    assert left(pair.hosts) == []


def test_replicas_share_the_prompts(pair: Rack, alone: Texts) -> None:
    head, worker = together(pair, "--dp", "2")
    mine, others = texts(head), texts(worker)
    assert len(mine) == len(others) == 2
    assert mine | others == alone
    assert left(pair.hosts) == []


def test_a_pipeline_over_ray(pair: Rack, alone: Texts) -> None:
    head = pair.hosts[0]
    cluster(pair.hosts)
    spread = head.run(typed("run", "--hosts", "2", "--pp", "2", "demo", SCRIPT), limit_s=LIMIT_S)
    assert texts(spread) == alone
    places = [line for line in spread.lines if line.startswith("medley: stage ")]
    assert len(places) == 2, spread.lines[-40:]
    wait_for(
        "no process of the script is left",
        lambda: left(pair.hosts) == [],
        state=lambda: left(pair.hosts),
    )
