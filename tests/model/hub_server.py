"""A real HTTP server on loopback that speaks the hub's few endpoints; the hub itself is not asked."""

import json
import struct
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from medley.model import demo
from medley.schema import Made

MADE = Made(
    layers=2,
    hidden=64,
    heads=2,
    kv_heads=1,
    head_dim=16,
    intermediate=64,
    vocabulary=2048,
    context=128,
    seed=0,
)
SECRET = "hf_notToBeShown"
COMMIT = "c" * 40
SLOW_S = 4
"""So long after the request come the weights of org/slow."""


class Hub(ThreadingHTTPServer):
    """Repositories and their files, and every request that came."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.asked = dict(files), list[tuple[str, str, int]]()
        self.commit: str | None = COMMIT
        """Of `main`, in every repository; None: it does not say."""
        self.card: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        repository, _, at = self.path.removeprefix("/").partition("/resolve/")
        revision, _, name = at.partition("/")
        about = self.path.removeprefix("/api/models/").partition("?")[0].removesuffix("/revision/main")
        about, tree, _ = about.partition("/tree/")
        known = {path.rpartition("/")[0] for path in self.server.files}
        if about in known:
            return self._tree(about) if tree else self._about(about)  # anybody may know of a gated one
        if f"{repository}/{name}" == "org/slow/model.safetensors":
            time.sleep(SLOW_S)
        content = self.server.files.get(f"{repository}/{name}")
        if "gated" in repository and self.headers.get("authorization") != f"Bearer {SECRET}":
            return self._short(403, "GatedRepo")
        if repository not in known:
            return self._short(401, "RepoNotFound")
        if revision not in {"main", self.server.commit}:
            return self._short(404, "RevisionNotFound")
        if content is None:
            return self._short(404, "EntryNotFound")
        part = self._part(content)
        self.server.asked.append((self.command, name, len(part) if body else 0))
        self.send_response(206 if "range" in self.headers else 200)
        self.send_header("content-length", str(len(part)))
        self.send_header("etag", f'"{abs(hash(content)):x}"')
        self.send_header("x-repo-commit", self.server.commit or COMMIT)
        self.end_headers()
        if body:
            self.wfile.write(part)
        return None

    def _about(self, repository: str) -> None:
        self.server.asked.append((self.command, "api", 0))
        siblings = [{"rfilename": name, "size": size} for name, size in self._files(repository)]
        text = {"id": repository, "cardData": self.server.card, "siblings": siblings}
        if self.server.commit:
            text["sha"] = self.server.commit
        self._json(text)

    def _tree(self, repository: str) -> None:
        files = self._files(repository)
        self._json([{"type": "file", "path": name, "size": size, "oid": name} for name, size in files])

    def _files(self, repository: str) -> list[tuple[str, int]]:
        names = [each for each in self.server.files if each.rpartition("/")[0] == repository]
        return [(each.rpartition("/")[2], len(self.server.files[each])) for each in names]

    def _json(self, found: object) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(content := json.dumps(found).encode())))
        self.end_headers()
        self.wfile.write(content)

    def _part(self, content: bytes) -> bytes:
        if "range" not in self.headers:
            return content
        start, end = self.headers["range"].removeprefix("bytes=").split("-")
        return content[int(start) : int(end) + 1 if end else None]

    def _short(self, status: int, code: str) -> None:
        self.send_response(status)
        self.send_header("x-error-code", code)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def serving(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """A hub that the environment names; its cache and medley's lie in `home`."""
    with Hub(files) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        monkeypatch.setenv("HF_HOME", str(home / "hf"))
        monkeypatch.setenv("MEDLEY_CACHE", str(home / "cache"))
        try:
            yield server
        finally:  # its thread would keep a failed test from ending
            server.shutdown()


def safetensors(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def demo_repositories(folder: Path) -> dict[str, bytes]:
    """The demo as a repository of one file, of two, gated, and broken in two ways."""
    demo.write(MADE, folder)
    told, whole = ((folder / name).read_bytes() for name in ("config.json", "model.safetensors"))
    names = sorted(demo.shapes(MADE))
    parts = {"1.safetensors": names[:9], "2.safetensors": names[9:]}
    index = {"weight_map": {name: part for part, held in parts.items() for name in held}}
    header = json.loads(whole[8 : 8 + struct.unpack("<Q", whole[:8])[0]])
    return {
        "org/one/config.json": told,
        "org/one/model.safetensors": whole,
        "org/gated/config.json": told,
        "org/gated/model.safetensors": whole,
        "org/two/config.json": told,
        "org/two/model.safetensors.index.json": json.dumps(index).encode(),
        **{
            f"org/two/{part}": safetensors({name: header[name] for name in held})
            for part, held in parts.items()
        },
        "org/bare/config.json": told,
        "org/slow/config.json": told,
        "org/slow/model.safetensors": whole,
        "org/wrong/config.json": b"[",
        "org/cut/config.json": told,
        "org/cut/model.safetensors": whole[:40],
    }
