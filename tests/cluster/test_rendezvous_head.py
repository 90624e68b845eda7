"""Hosts that come together for a model: the head's end and theirs, in one process, over real sockets."""

import contextlib
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from medley.cluster import rendezvous_head, rendezvous_worker
from medley.cluster.rendezvous_head import Rendezvous
from medley.command import AnnotatedCommand, Command, Flag, Variable
from medley.engine.vllm import find_last_error
from medley.errors import Problem
from medley.model import extra_files
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused, connect_to_head
from tests.odd_input import COUNTS, hold, values
from tests.problems import assert_problem, raises_problem
from tests.waiting import NewThreads, wait_for

TOKEN = "0123456789abcdef"
ORDER: dict[str, object] = {"words": ["x"], "flags": [], "variables": [], "extra": [], "files": {}}
FACTS = (Path(__file__).parents[1] / "host" / "recorded" / "spark.txt").read_text(encoding="utf-8")
Come = Callable[[str], Channel]


class Notes:
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
def met(monkeypatch: pytest.MonkeyPatch, notes: Notes) -> Iterator[Rendezvous]:
    monkeypatch.setattr(rendezvous_head, "ALIVE_INTERVAL_S", 0.2)
    monkeypatch.setattr(rendezvous_worker, "ALIVE_INTERVAL_S", 0.2)
    found = Rendezvous(0, TOKEN, {"engine": "vLLM 0.32.0"}, notes)  # type: ignore[arg-type]
    try:
        yield found
    finally:
        found.end_hosts()


@pytest.fixture
def come(met: Rendezvous, tmp_path: Path) -> Iterator[Come]:
    came = []
    token = tmp_path / "token"
    token.write_text(TOKEN)

    def joined(name: str) -> Channel:
        channel = connect_to_head("127.0.0.1", met.port, token, 20)
        assert channel.receive(10) == {"terms": {"engine": "vLLM 0.32.0"}}
        channel.send({"host": name, "facts": FACTS})
        channel.send({"ready": True})
        came.append(channel)
        return channel

    yield joined
    for each in came:
        each.close()


def run(channel: Channel, script: str, folder: Path, *, ends: bool = False) -> "Future[Problem | None]":
    """What `medley join` does with its order, on a thread: the Problem it ends with, if it does."""

    def attend() -> Problem | None:
        order = rendezvous_worker.receive_command_table(channel)
        assert order is not None
        try:
            command = Command((sys.executable, "-c", script))
            rendezvous_worker.run_node(
                channel, command, folder / "log", lambda _: None, find_last_error, may_end=ends
            )
        except Problem as problem:
            return problem
        return None

    return ThreadPoolExecutor(1).submit(attend)


def test_all_who_are_needed_come_and_are_told_when_it_ends(
    met: Rendezvous, come: Come, tmp_path: Path
) -> None:
    channels = [come("one"), come("one")]
    members = met.wait_for_hosts(2, 30)
    assert len({each.name for each in members}) == 2
    assert all(each.name.startswith("one") and "(127.0.0.1)" in each.name for each in members)
    assert "GB10" in members[0].facts.gpus[0].name
    ends = [run(channel, "import time; time.sleep(60)", tmp_path) for channel in channels]
    for each in members:
        each.send({"order": ORDER})
    time.sleep(1)  # five signs of life, with which nobody is lost
    met.check()
    met.end_hosts()
    assert [end.result(20) for end in ends] == [None, None]


def test_a_part_that_ends_well_waits_for_the_others(met: Rendezvous, come: Come, tmp_path: Path) -> None:
    well, badly = come("one"), come("two")
    first, second = sorted(
        met.wait_for_hosts(2, 30), key=lambda each: each.name
    )  # who is in first is anybody's guess
    ends = [run(well, "", tmp_path, ends=True), run(badly, "raise SystemExit(3)", tmp_path, ends=True)]
    first.send({"order": ORDER})
    wait_for("the first part has ended well", lambda: first.is_done)
    met.check()
    second.send({"order": ORDER})
    wait_for("the second part has ended", lambda: second.end_reason is not None)
    assert not second.is_done
    with raises_problem("two (127.0.0.1), rank 0", cause="code 3", fix=("medley serve", "medley join")):
        met.check()
    met.end_hosts()
    assert ends[0].result(20) is None


def test_a_rank_that_ends_is_named_with_its_reason(met: Rendezvous, come: Come, tmp_path: Path) -> None:
    channel = come("spark-2")
    (member,) = met.wait_for_hosts(1, 30)
    member.rank = 1
    end = run(channel, "raise ValueError('no available memory')", tmp_path)
    member.send({"order": ORDER})
    problem = end.result(20)
    assert problem is not None
    assert "no available memory" in problem.cause
    wait_for("the head knows that the part has ended", lambda: member.end_reason is not None)
    with raises_problem("spark-2 (127.0.0.1), rank 1,", cause="ValueError: no available memory"):
        met.check()


def test_the_heads_own_end_is_blamed_on_who_caused_it(met: Rendezvous, come: Come, tmp_path: Path) -> None:
    channel = come("spark-2")
    (member,) = met.wait_for_hosts(1, 30)
    end = run(channel, "import time; time.sleep(0.5); raise RuntimeError('lost')", tmp_path)
    member.send({"order": ORDER})
    with raises_problem("spark-2 (127.0.0.1), rank 0", cause="RuntimeError: lost"), met.blame_first_host():
        raise Problem("the engine ended", cause="Connection closed by peer [10.0.0.2]:1", fix="look")
    end.result(20)
    with raises_problem("spark-2 (127.0.0.1), rank 0", cause="RuntimeError: lost"), met.blame_first_host():
        raise Problem("the engine ended", cause="it was the other that ended first", fix="look")


def test_the_heads_own_reason_stays(met: Rendezvous, come: Come, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendezvous_head, "SILENT_LIMIT_S", 3.0)
    channel = come("spark-2")
    met.wait_for_hosts(1, 30)
    with (
        rendezvous_worker.send_signs_of_life(channel),
        raises_problem("the engine ended here", cause="ValueError: a flag", fix="look"),
        met.blame_first_host(),
    ):
        raise Problem("the engine ended here", cause="ValueError: a flag", fix="look")


def test_a_head_that_is_gone_ends_the_part_of_others(come: Come, met: Rendezvous, tmp_path: Path) -> None:
    channel = come("spark-2")
    (member,) = met.wait_for_hosts(1, 30)
    begun = tmp_path / "begun"
    script = f"import pathlib, time; pathlib.Path({str(begun)!r}).touch(); time.sleep(60)"
    end = run(channel, script, tmp_path)
    member.send({"order": ORDER})
    wait_for("the part has begun", begun.exists)
    member.channel.close()
    problem = end.result(20)
    assert problem is not None
    assert_problem(problem, "the head")


def test_a_silent_host_is_lost(met: Rendezvous, come: Come, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cut link: nothing comes, and nothing says that the other is gone."""
    channel = come("spark-2")
    (member,) = met.wait_for_hosts(1, 30)
    monkeypatch.setattr(rendezvous_head, "SILENT_LIMIT_S", 1.0)
    wait_for("it is lost", lambda: member.end_reason is not None)
    assert "nothing came" in (member.end_reason or "")
    channel.close()


def test_who_is_not_needed_is_sent_away(met: Rendezvous, come: Come) -> None:
    channel = come("spark-2")
    met.wait_for_hosts(1, 30)
    with ThreadPoolExecutor() as pool:
        order = pool.submit(rendezvous_worker.receive_command_table, channel)
        met.members[0].send({"end": True})
        assert order.result(30) is None
    channel.close()


def test_too_few(met: Rendezvous, come: Come) -> None:
    channel = come("spark-2")
    wait_for("it has joined", lambda: not met._ready.empty())  # noqa: SLF001 - before the limit of its wait begins
    with (
        rendezvous_worker.send_signs_of_life(channel),
        raises_problem("2 ", "1 ", cause="spark-2 (127.0.0.1)"),
    ):
        met.wait_for_hosts(2, 1.5)


def test_strangers_and_the_unready_do_not_join(
    met: Rendezvous, notes: Notes, come: Come, tmp_path: Path
) -> None:
    other = tmp_path / "other"
    other.write_text("another-token-of-some-cluster")
    with raises_problem(f"127.0.0.1:{met.port}", cause="/other", fix="medley join HEAD --token-file FILE"):
        connect_to_head("127.0.0.1", met.port, other, 20)
    silent = socket.create_connection(("127.0.0.1", met.port))
    token = tmp_path / "own"
    token.write_text(TOKEN)
    channel = connect_to_head("127.0.0.1", met.port, token, 20)
    channel.send({"host": "thor-1", "facts": FACTS})
    channel.send({"problem": "Ray is 2.1 here"})
    wait_for("its problem is noted", lambda: any("Ray is 2.1 here" in each for each in notes.said))
    channel.close()
    ready = come("spark-2")
    with rendezvous_worker.send_signs_of_life(ready):
        assert [each.name for each in met.wait_for_hosts(1, 30)] == ["spark-2 (127.0.0.1)"]
    silent.close()


def test_a_port_that_is_taken(met: Rendezvous) -> None:
    with raises_problem(
        f"port {met.port}", fix=(f"--join-port {met.port + 1}", f"medley join HEAD:{met.port + 1}")
    ):
        Rendezvous(met.port, TOKEN, {}, Notes())  # type: ignore[arg-type]


def test_an_order_is_the_same_command_elsewhere() -> None:
    reasoned = AnnotatedCommand(
        ("/head/bin/vllm", "serve", "/m"),
        (Flag(("--node-rank", "-r"), "1", "its place"), Flag(("--headless",), None, "no API")),
        (Variable("GLOO_SOCKET_IFNAME", "eth1", "the wire"), Variable("PATH", "/head/bin", "programs")),
        ("--dtype", "float32"),
    )
    ours = (Variable("PATH", "/own/bin", "programs"),)
    found = rendezvous_worker.parse_command_table(
        rendezvous_worker.build_command_table(reasoned), Path("/own/bin"), ours
    )
    assert found.command.argv == (
        *("/own/bin/vllm", "serve", "/m", "--node-rank", "1", "--headless", "--dtype", "float32"),
    )
    assert found.command.env == {"GLOO_SOCKET_IFNAME": "eth1", "PATH": "/own/bin"}
    assert found.list_reasons()[0] == ("GLOO_SOCKET_IFNAME=eth1", "the wire")


def test_no_secret_goes_with_an_order() -> None:
    reasoned = AnnotatedCommand(("vllm",), (), (Variable("VLLM_API_KEY", "/k", "a key", secret=True),))
    assert rendezvous_worker.build_command_table(reasoned)["variables"] == []


INTRODUCTION = {"host": "one", "facts": FACTS, "alive": True, "ended": "so", "problem": "x", "ready": True}


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_a_host_with_the_token(met: Rendezvous, tmp_path: Path, count: int) -> None:
    """Its introduction, and what it says after: whatever it is, the meeting place goes on (a thread that
    ends in a traceback fails the test)."""
    (tmp_path / "token").write_text(TOKEN)

    def come(said: object) -> None:
        channel = connect_to_head("127.0.0.1", met.port, tmp_path / "token", 20)
        with contextlib.suppress(ChannelClosed, ChannelRefused):
            channel.receive(20)
            for text in (said, {"ready": True}, said):
                channel.send(text)  # type: ignore[arg-type] # odd input
        channel.close()

    new_threads = NewThreads()
    hold(come, values([INTRODUCTION]), count)
    new_threads.wait_until_ended()
    channel = connect_to_head("127.0.0.1", met.port, tmp_path / "token", 20)
    assert channel.receive(10) == {"terms": {"engine": "vLLM 0.32.0"}}
    channel.close()


NEED = {"kind": "tiktoken", "what": "x", "name": "a.tiktoken", "sha256": "ab" * 32, "url": "https://a/b"}


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_terms(count: int) -> None:
    """What a head says first: what passes can be read by all that comes after."""
    sample = {
        "host": "spark-1",
        "engine": "vLLM 0.32.0",
        "engine_name": "vllm",
        "model": "demo",
        "target": "/m",
        "script": None,
        "fetch": {"repository": "org/one", "revision": None},
        "beside": {"needs": [NEED], "code": {"where": "/m", "files": {"a.py": "ab"}}, "cache": "/c"},
    }

    def read(terms: object) -> None:
        extra_files.read_extras(rendezvous_worker.require_terms(terms)["beside"])

    hold(read, values([sample]), count)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_orders(count: int, tmp_path: Path) -> None:
    """What passes for an order can be run: every later step takes it."""
    sample = {
        "words": ["bin/vllm", "serve", "/m"],
        "flags": [[["--port"], "8000", "why"]],
        "variables": [["A", "b", "why"]],
        "extra": ["-x"],
        "files": {"/a/b.json": "{}"},
    }

    def run(order: object) -> None:
        rendezvous_worker.require_command_table(order)
        found = rendezvous_worker.localize_command_table(order, tmp_path, {"/x": "/y"})  # type: ignore[arg-type] # it was looked at
        assert rendezvous_worker.parse_command_table(found, Path("/own/bin"), ()).command.argv

    hold(run, values([sample]), count)


def test_an_order_with_a_flag_without_a_name_is_refused() -> None:
    order = {"words": ["vllm"], "flags": [[[], "8000", "why"]], "variables": [], "extra": [], "files": {}}
    with raises_problem("sent an order"):
        rendezvous_worker.require_command_table(order)
