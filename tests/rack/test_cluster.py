"""A model over a cluster of hosts, started as a user starts it: ray-head, ray-worker, serve."""

import json
import sys
from typing import Any

import pytest

from medley.command import Command
from tests.rack.cluster import MEDLEY, Served, cluster, medley, served
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.tokens import MODEL, PROMPTS, Answer, asked, bring, recorded, spoil
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

LOAD = """
import json, urllib.request
body = {"model": "demo", "prompt": "Hello", "max_tokens": 1900, "temperature": 0, "stream": True}
while True:
    request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    answer = urllib.request.urlopen(request, timeout=120)
    answer.readline()
    print("an answer has begun", flush=True)
    answer.read()
"""


def answer(host: Host, *words: str) -> tuple[Answer, dict[str, str]]:
    """Serve in float32, ask the prompts, and end it; with the place of each rank."""
    flags = ("--dtype=float32", "--kv-cache-memory-bytes=268435456", "-cc.mode=2", "-cc.backend=eager")
    name = ("--served-model-name", MODEL)
    run = served(host, *words, *name, "--", *flags, model=MODEL, env={"TORCHDYNAMO_DISABLE": "1"})
    try:
        return asked(host), run.places
    finally:
        run.process.stop()


@pytest.mark.slow
def test_a_cluster_gives_the_tokens_of_one_host(rack: Up) -> None:
    """A pipeline over four; over two, and for SGLang, it is the matrix that says so."""
    one = recorded()
    assert [len(each) for each in one] == [32] * len(PROMPTS)
    assert len({token for each in one for token in each}) >= 8

    hosts = rack(4).hosts
    head = hosts[0]
    for host in hosts:
        bring(host)
    cluster(hosts)
    spread, places = answer(head, "--hosts", "4", "--pp", "4")
    assert spread.tokens == one
    assert list(places) == ["0.0", "1.0", "2.0", "3.0"]
    assert len(set(places.values())) == len(hosts), "a rank on each host"
    assert places["0.0"] == head.address

    for host in hosts[1:]:
        spoil(host)
    assert answer(head, "--hosts", "2", "--pp", "2")[0].tokens != one, (
        "the second host's own weights are what counts"
    )


@pytest.mark.slow
def test_serve_does_what_plan_says(rack: Up) -> None:
    """The same command, whichever of both prints it; small as the model is, it is best off alone."""
    hosts = rack(3).hosts
    head = hosts[0]
    cluster(hosts)
    for words in (("--pp", "3"), ("--pp", "2", "--tp", "1"), ("--tp", "2", "--pp", "1")):
        (step,) = printed(head, "plan", "demo", "--json", *words)["steps"]
        does = printed(head, "serve", "demo", "--dry-run", "--json", *words)
        assert step["argv"] == does["argv"]
        ours = {"PATH", "PYTHONPATH"}
        assert step["env"] == {name: value for name, value in does["env"].items() if name not in ours}
        assert step["host"].startswith(f"{head.name} ")
    (alone,) = printed(head, "plan", "demo", "--json")["steps"]
    assert "RAY_ADDRESS" not in alone["env"]
    run = served(head)
    try:
        assert run.places == {}
        told = medley(hosts[1], "serve", "demo")
        assert told.status == 1
        busy = medley(head, "plan", "demo")
        assert any("this host has no free slot" in line for line in busy.lines), busy.lines
    finally:
        run.process.stop()


def printed(host: Host, *words: str) -> Any:
    """The object that a verb prints, after what it tells people."""
    return json.loads(host.says(*MEDLEY, *words).splitlines()[-1])


@pytest.mark.slow  # CI reboots a worker in test_up, and ends a rank in test_matrix
def test_the_loss_of_a_host_is_named_and_ends_it(rack: Up) -> None:
    """Its power is cut: its kernel still says that the connections are gone."""
    hosts = rack(2).hosts
    head, worker = hosts
    cluster(hosts)
    run = served(head, "--hosts", "2", "--pp", "2")
    worker.kill()
    ended_for_loss_of(worker, run, limit_s=30)
    assert medley(head, "ray-stop").status == 0
    assert "raylet" not in head.says("ps", "-eo", "comm")


@pytest.mark.slow  # CI cuts a link under load in test_chaos
def test_a_cut_link_is_named_and_ends_it_under_load(rack: Up) -> None:
    """Nothing says that the host is gone, and the engine waits for its answer to a request."""
    made = rack(2)
    head, worker = made.hosts
    cluster(made.hosts)
    run = served(head, "--hosts", "2", "--pp", "2")
    asking = head.start(Command((sys.executable, "-c", LOAD)))
    wait_for(
        "the engine answers",
        lambda: "an answer has begun" in list(asking.last_lines),
        60,
        state=lambda: list(asking.last_lines),
    )
    made.cut("lan", worker.name)
    ended_for_loss_of(worker, run, limit_s=60)
    asking.stop()
    wait_for(
        f"no process of the engine is left on {worker.name}",
        lambda: not of_engine(worker),
        60,
        state=lambda: worker.says("ps", "-eo", "pid,args"),
    )
    assert medley(worker, "ray-stop").status == 0


def ended_for_loss_of(lost: Host, run: Served, limit_s: float) -> None:
    finished = run.process.wait(limit_s)
    assert finished is not None, "it ends by itself"
    assert finished.status not in {0, 130}
    host = f"medley: {lost.name} ({lost.address})"
    assert any(line.startswith((f"{host}, rank 1, is lost", f"{host} is gone")) for line in finished.lines), (
        "\n".join(finished.lines[-40:])
    )
    wait_for(
        f"no process of the engine is left on {run.host.name}",
        lambda: not of_engine(run.host),
        state=lambda: run.host.says("ps", "-eo", "pid,args"),
    )


def of_engine(host: Host) -> list[str]:
    """What still runs there of a served model: the engine, and its ranks under Ray."""
    lines = host.says("ps", "-eo", "args").splitlines()
    return [line for line in lines if "RayWorkerProc" in line or "vllm" in line.lower().split("/")[-1]]
