"""A server is ended while it answers: the answer is whole, new requests wait elsewhere, nothing is left."""

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Container
from http import HTTPStatus
from pathlib import Path

import pytest

from medley.command import Command
from medley.process_identity import list_descendants
from tests.servers import Served, Start, chat
from tests.waiting import wait_for

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("small_engine")]

TOKENS = 200
STOP = (sys.executable, "-m", "medley", "stop")


def serve(*words: str) -> Command:
    return Command((sys.executable, "-m", "medley", "serve", "demo", *words))


class Stream:
    """A streamed answer of several seconds, read by a thread of its own."""

    def __init__(self, url: str, tokens: int = TOKENS) -> None:
        self.lines: list[str] = []
        self._ask = urllib.request.Request(
            f"{url}/completions",
            json.dumps(
                {
                    "model": "demo",
                    "prompt": "Count",
                    "max_tokens": tokens,
                    "temperature": 0,
                    "stream": True,
                    "ignore_eos": True,
                }
            ).encode(),
            {"Content-Type": "application/json"},
        )
        self.thread = threading.Thread(target=self._read)
        self.thread.start()

    def _read(self) -> None:
        with (
            contextlib.suppress(OSError, http.client.HTTPException),  # it was cut off
            urllib.request.urlopen(self._ask, timeout=120) as answer,
        ):
            for line in answer:
                if text := line.decode().strip():
                    self.lines.append(text)

    def begun(self) -> "Stream":
        wait_for("the answer has begun", lambda: len(self.lines) >= 5, 60, state=lambda: self.lines)
        return self

    def text(self) -> str:
        """All of it; empty where it was cut off, after which vLLM may still say [DONE]."""
        self.thread.join(120)
        told = (line.removeprefix("data: ") for line in self.lines)
        events = [json.loads(each) for each in told if each.startswith("{")]
        choices = [choice for each in events for choice in each.get("choices", ())]
        if not any(choice["finish_reason"] == "length" for choice in choices):
            return ""
        return "".join(choice["text"] for choice in choices)


def refused(url: str) -> tuple[int, str | None, str]:
    """The status of a new request, when to retry, and the reason."""
    try:
        chat(url)
    except urllib.error.HTTPError as error:
        return error.code, error.headers["Retry-After"], json.load(error)["error"]["message"]
    return 200, None, ""


def until(statuses: Container[int], served: Served, url: str) -> tuple[int, str | None, str]:
    """What a new request is told once its status is one of these."""
    told: list[tuple[int, str | None, str]] = []

    def is_one() -> bool:
        told.append(refused(url))
        return told[-1][0] in statuses

    wait_for(f"a request is answered with {statuses}", is_one, 60, state=lambda: (told[-1], served.tail()))
    return told[-1]


def health(url: str) -> int:
    with urllib.request.urlopen(f"{url.removesuffix('/v1')}/health", timeout=20) as answer:
        return int(answer.status)


def state(folder: Path) -> dict[str, str]:
    return {**os.environ, "MEDLEY_STATE": str(folder / "state")}


def ended(served: Served, limit_s: float) -> int:
    finished = served.process.wait(limit_s)
    assert finished is not None, served.tail()
    return finished.status


def test_stop_lets_a_running_answer_end_whole(start: Start, free_port: int, tmp_path: Path) -> None:
    served = start(serve("--port", str(free_port), "--", "--max-num-seqs", "4"))
    url = served.ready()
    whole = Stream(url, 4 * TOKENS).text()
    assert whole

    running = Stream(url, 4 * TOKENS).begun()
    family = list_descendants(served.process.pid)
    stop = subprocess.Popen(STOP, env=state(tmp_path), stderr=subprocess.PIPE, text=True)
    found = until({HTTPStatus.SERVICE_UNAVAILABLE}, served, url)
    assert found[1] == "30"
    assert "the server is ending" in found[2]
    assert health(url) == HTTPStatus.OK
    assert running.thread.is_alive(), "the answer was over before the server took its signal"
    assert running.text() == whole
    assert ended(served, 30) == 128 + signal.SIGTERM, served.tail()
    first, *_ = stop.communicate(timeout=60)[1].splitlines()
    assert first == f"end demo on port {free_port} …"
    assert [each for each in family if each.is_alive] == []
    assert not any((tmp_path / "state" / "run" / str(free_port)).glob("*.sock"))
    kinds = [
        json.loads(line)["kind"] for line in (tmp_path / "state" / "events.jsonl").read_text().splitlines()
    ]
    assert kinds == ["start", "ready", "end"]


@pytest.mark.parametrize(
    ("words", "status"),
    [
        pytest.param(("--drain", "1"), 143, id="past its limit"),
        pytest.param((), 143, id="a second SIGTERM"),
        pytest.param((), 130, id="stop --now"),
    ],
)
def test_an_answer_is_cut_off(
    start: Start, free_port: int, tmp_path: Path, words: tuple[str, ...], status: int
) -> None:
    served = start(serve("--port", str(free_port), *words))
    running = Stream(url := served.ready(), 1_800).begun()
    began = time.monotonic()
    if status == 128 + signal.SIGINT:
        stop = subprocess.run(
            [*STOP, "--now"], env=state(tmp_path), check=True, capture_output=True, timeout=60
        )
        assert stop.stdout == b"ended 1 server\n"
    else:
        os.kill(served.process.pid, signal.SIGTERM)
        if not words:
            until({HTTPStatus.SERVICE_UNAVAILABLE}, served, url)
            assert served.process.poll() is None
            os.kill(served.process.pid, signal.SIGTERM)
    assert ended(served, 30) == status, served.tail()
    assert time.monotonic() - began < 20
    assert running.text() == ""
