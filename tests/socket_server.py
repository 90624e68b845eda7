"""A real HTTP server on a unix socket, in an engine's place: it answers with what it was sent."""

import json
import socketserver
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Thread
from typing import Any

PIECES, PIECE_S = 20, 0.1


@dataclass
class Requests:
    """The method and path of each request that came in."""

    lines: list[str] = field(default_factory=list)


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, socket: Path) -> None:
        self.requests = Requests()
        super().__init__(str(socket), _Answer)

    def handle_error(self, *_: object) -> None:
        """A client that hangs up is not an error of the server."""


class _Answer(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def _answer(self) -> None:
        self.server.requests.lines.append(f"{self.command} {self.path}")
        self.close_connection = True  # a thread that waits for a next request would outlive its test
        body = self._body()
        if b'"stream": true' in body:
            self._stream(json.loads(body).get("pieces", PIECES))
            return
        self._send(
            {
                "path": self.path,
                "headers": dict(self.headers),
                "bytes": len(body),
                "body": body[:1000].decode("latin-1"),
            }
        )

    do_GET = do_POST = do_PUT = do_DELETE = do_OPTIONS = do_HEAD = do_PATCH = _answer  # noqa: N815 - as http.server asks them

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = bytearray()
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return bytes(body)

    def _stream(self, pieces: int) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.send_header("Connection", "close")
        self.end_headers()
        for number in range(pieces):
            self._write_chunk(f"data: {number}\n\n".encode())
            time.sleep(PIECE_S)
        self._write_chunk(b"")

    def _write_chunk(self, piece: bytes) -> None:
        self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        self.wfile.flush()

    def _send(self, table: dict[str, Any]) -> None:
        text = json.dumps(table).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(text)

    def address_string(self) -> str:
        return "socket"

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@contextmanager
def answering_on(socket: Path) -> Iterator[Requests]:
    with _Server(socket) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        try:
            yield server.requests
        finally:
            server.shutdown()
            socket.unlink(missing_ok=True)
