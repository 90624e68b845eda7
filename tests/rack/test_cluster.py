"""A model over a cluster of hosts, started as a user starts it: ray-head, ray-worker, serve."""

import json
import sys
import time

import pytest

from medley import machine
from medley.command import Command
from tests.rack.conftest import Up
from tests.rack.host import Host

pytestmark = pytest.mark.rack

MEDLEY = (sys.executable, "-m", "medley")
TOKEN = "/tmp/home/.local/state/medley/token"
READY_LIMIT_S = 240
ASK = """
import json, urllib.request
body = {"model": "demo", "prompt": "Hello", "max_tokens": 32, "temperature": 0}
request = urllib.request.Request("http://127.0.0.1:8000/v1/completions", json.dumps(body).encode(),
                                 {"Content-Type": "application/json"})
print(json.load(urllib.request.urlopen(request, timeout=120))["choices"][0]["text"])
"""


def medley(host: Host, *words: str, stdin: str | None = None) -> machine.Finished:
    """One short command of medley's on a host, with standard input from a file of its own."""
    command = Command((*MEDLEY, *words))
    if stdin is not None:
        host.path("/tmp/home/brought").write_text(stdin)
        command = Command((*MEDLEY, *words, "--token-file", "/tmp/home/brought"))
    began = time.monotonic()
    finished = host.run(command, limit_s=120)
    assert finished.status == 0 or time.monotonic() - began < 25, "a Problem takes seconds"
    return finished


def cluster(hosts: tuple[Host, ...]) -> str:
    """Ray on all of them; returns the token."""
    head, *others = hosts
    assert medley(head, "ray-head").status == 0
    token = head.path(TOKEN).read_text()
    for host in others:
        joined = medley(host, "ray-worker", head.name, stdin=token)
        assert joined.status == 0, joined.lines
    return token


def served(host: Host, *words: str) -> tuple[machine.Process, list[str]]:
    lines: list[str] = []
    process = host.start(Command((*MEDLEY, "serve", "demo", *words)), lines.append)
    deadline = time.monotonic() + READY_LIMIT_S
    while not any(line.startswith("ready after") for line in lines):
        assert process.wait(0.2) is None, "\n".join(lines[-20:])
        assert time.monotonic() < deadline, "\n".join(lines[-20:])
    return process, lines


def test_two_hosts_give_the_tokens_of_one_and_the_loss_of_one_is_named(rack: Up) -> None:
    hosts = rack(2).hosts
    head, worker = hosts
    alone, _ = served(head)
    one = head.says(sys.executable, "-c", ASK)
    alone.stop()

    cluster(hosts)
    process, lines = served(head, "--hosts", "2")
    assert head.says(sys.executable, "-c", ASK) == one
    placed = [line for line in lines if line.startswith("medley: stage ")]
    assert placed == [
        f"medley: stage 0, tensor rank 0: {head.address}",
        f"medley: stage 1, tensor rank 0: {worker.address}",
    ]

    worker.kill()
    finished = process.wait(60)
    assert finished is not None, "serve ends by itself"
    assert finished.status != 0
    named = f"medley: {worker.name} ({worker.address}) is gone"
    assert any(line.startswith(named) for line in finished.lines), "\n".join(finished.lines[-40:])
    assert medley(head, "ray-stop").status == 0
    assert "raylet" not in head.says("ps", "-eo", "comm")


def test_what_cannot_join_says_why(rack: Up) -> None:
    hosts = rack(2).hosts
    head, worker = hosts
    nobody = medley(worker, "ray-worker", head.name, stdin="a-token-of-no-cluster")
    assert_problem(nobody, f"no Ray head answers at {head.name}")

    assert medley(head, "ray-head").status == 0
    assert_problem(medley(head, "ray-head"), "in a cluster already")
    assert_problem(medley(worker, "ray-worker", head.name), "has no token")
    wrong = medley(worker, "ray-worker", head.name, stdin="a-token-of-no-cluster")
    assert_problem(wrong, "does not take this token")

    worker.path("/etc/hosts").write_text(f"127.0.0.1 localhost\n127.0.1.1 {head.name}\n")
    token = head.path(TOKEN).read_text()
    assert_problem(medley(worker, "ray-worker", head.name, stdin=token), "means this host itself")
    assert medley(worker, "ray-worker", head.address, stdin=token).status == 0
    nodes = json.loads(medley(head, "status", "--json").lines[-1])["nodes"]
    assert sorted(node["address"] for node in nodes if node["alive"]) == [head.address, worker.address]
    assert_problem(medley(worker, "serve", "demo"), "is a worker of a cluster")
    assert_problem(medley(head, "serve", "demo", "--hosts", "3"), "3 hosts are needed, and 2 are here")


def assert_problem(finished: machine.Finished, what: str) -> None:
    assert finished.status == 1, finished.lines
    assert any(what in line for line in finished.lines), finished.lines
