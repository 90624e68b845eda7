"""A small web server for tests: what it answers, how it fails, and what it was asked."""

import socket
import socketserver
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread


class Answering(ThreadingHTTPServer):
    """Contents by path. `cut`: so many bytes come, once; `pause_s`: between them; `ranges`: it takes any."""

    def __init__(self, contents: dict[str, bytes], at: Path | None = None) -> None:
        """`at`: the socket that it listens on, in place of a port."""
        if at:
            self.address_family = socket.AF_UNIX
        super().__init__(str(at) if at else ("127.0.0.1", 0), _Answer)  # type: ignore[arg-type] # as its family has it
        self.contents = contents
        self.cut: int | None = None
        self.pause_s = 0.0
        self.ranges = True
        self.asked: list[tuple[str, str | None, str | None]] = []
        """Path, range and authorization of every request."""

    def server_bind(self) -> None:
        if self.address_family == socket.AF_UNIX:
            socketserver.TCPServer.server_bind(self)  # HTTP's own asks for the name of a host
        else:
            super().server_bind()

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
def answering(contents: dict[str, bytes], at: Path | None = None) -> Iterator[Answering]:
    with Answering(contents, at) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server
        finally:  # its thread would keep a failed test from ending
            server.shutdown()
