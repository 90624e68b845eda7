"""Requests to a small server that answers, refuses, is busy, and goes away."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from medley.serving import batch_client
from medley.serving.batch import Request, open_batch
from medley.serving.batch_client import BatchProgress, BatchServer, send_batch
from tests.problems import raises_problem


class Server(ThreadingHTTPServer):
    daemon_threads = True
    asked: Counter[str]


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        prompt = body["prompt"]
        self.server.asked[prompt] += 1
        status = {"too long": 400, "broken": 500}.get(prompt, 200)
        if prompt == "busy" and self.server.asked[prompt] < 3:
            status = 429
        if self.headers.get("authorization") == "Bearer wrong":
            status = 401
        table = {"id": f"x-{prompt}", "model": body["model"], "usage": {"completion_tokens": 5}}
        text = json.dumps(table if status == 200 else {"error": {"message": f"said {status}"}}).encode()
        self.send_response(status)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setattr(batch_client, "_RETRY_PAUSE_S", 0.01)
    with Server(("127.0.0.1", 0), Handler) as served:
        served.asked = Counter()
        threading.Thread(target=served.serve_forever, daemon=True).start()
        yield served
        served.shutdown()


def at(server: Server, key: str | None = None) -> BatchServer:
    return BatchServer(f"http://127.0.0.1:{server.server_address[1]}/v1", "tiny", key)


def requests(*prompts: str) -> list[Request]:
    return [
        Request(number, f"id-{number}", "/v1/completions", {"prompt": prompt, "model": "theirs"})
        for number, prompt in enumerate(prompts, 1)
    ]


def test_each_is_answered_once_and_what_is_refused_is_kept_apart(server: Server, tmp_path: Path) -> None:
    seen: list[int] = []
    progress = BatchProgress(52, lambda now: seen.append(now.answered + now.refused))
    with open_batch(tmp_path / "out", b"", "tiny", []) as book:
        texts = (*map(str, range(50)), "too long", "busy")
        send_batch(requests(*texts), book, progress, at(server), concurrency=8)
    assert (progress.answered, progress.refused, progress.tokens) == (51, 1, 255)
    assert seen == list(range(1, 53))
    answers = [json.loads(line) for line in book.answers.read_text().splitlines()]
    assert len({each["custom_id"] for each in answers}) == len(answers) == 51
    assert {each["response"]["body"]["model"] for each in answers} == {"tiny"}
    (refused,) = [json.loads(line) for line in book.errors.read_text().splitlines()]
    assert (refused["line"], refused["error"]) == (51, {"code": "400", "message": "said 400"})
    assert server.asked["busy"] == 3


@pytest.mark.parametrize(
    ("prompt", "key", "cause"),
    [
        pytest.param("broken", None, "line 2: 500: said 500", id="it fails again and again"),
        pytest.param("x", "wrong", "401: said 401", id="it wants another key"),
    ],
)
def test_a_server_that_does_not_answer_is_a_problem(
    server: Server, tmp_path: Path, prompt: str, key: str | None, cause: str
) -> None:
    with (
        open_batch(tmp_path / "out", b"", "tiny", []) as book,
        raises_problem(cause=cause, fix="medley status"),
    ):
        send_batch(requests("good", prompt), book, BatchProgress(2), at(server, key), concurrency=1)
    assert book.errors.read_text() == "", "it is asked again in the next run"


def test_a_server_that_is_gone_is_a_problem(server: Server, tmp_path: Path) -> None:
    where = at(server)
    server.shutdown()
    server.server_close()
    with (
        open_batch(tmp_path / "out", b"", "tiny", []) as book,
        raises_problem(cause=("line 1: ", "ConnectError"), fix="medley status"),
    ):
        send_batch(requests("a", "b"), book, BatchProgress(2), where, concurrency=2)
