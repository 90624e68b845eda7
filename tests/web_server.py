"""A small web server for tests: what it answers, how it fails, and what it was asked."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from medley.environment.payload.api_guard import CHALLENGE, MARK
from medley.environment.payload.http_requests import proof


class Answering(ThreadingHTTPServer):
    """Contents by path. `cut`: so many bytes come, once; `pause_s`: between them; `ranges`: it takes any."""

    def __init__(self, contents: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.contents = contents
        self.cut: int | None = None
        self.pause_s = 0.0
        self.ranges = True
        self.key: str | None = None
        """It shows that it knows this one to who asks for that, as the guard before an engine does."""
        self.asked: list[tuple[str, str | None, str | None]] = []
        """Path, range and authorization of every request."""

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no error of the server."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Answer(BaseHTTPRequestHandler):
    server: Answering

    def do_GET(self) -> None:
        asked = self.headers.get("range")
        self.server.asked.append((self.path, asked, self.headers.get("authorization")))
        challenge = self.headers.get(CHALLENGE.decode())
        if challenge and self.server.key:
            self.send_response(401)
            self.send_header(MARK.decode(), proof(self.server.key, challenge.encode()).decode())
            self.send_header("content-length", "0")
            self.end_headers()
            return
        content = self.server.contents.get(self.path)
        if content is None:
            self.send_error(404)
            return
        first = int(asked.removeprefix("bytes=").rstrip("-")) if asked and self.server.ranges else 0
        if first >= len(content) > 0:
            self.send_error(416)
            return
        part = content[first:]
        self.send_response(206 if first else 200)
        self.send_header("content-length", str(len(part)))
        self.end_headers()
        cut, self.server.cut = self.server.cut, None
        for at in range(0, len(part[:cut]), 1000):
            self.wfile.write(part[:cut][at : at + 1000])
            self.wfile.flush()
            time.sleep(self.server.pause_s)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def answering(contents: dict[str, bytes]) -> Iterator[Answering]:
    with Answering(contents) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:  # its thread would keep a failed test from ending
            server.shutdown()
