"""A real HTTP server on loopback that speaks the hub's few endpoints; the hub itself is not asked.

Weights come by Xet, as they do from the hub: the library's hf_xet asks for them in chunks, in the form that
https://huggingface.co/docs/xet publishes (download protocol, xorb format).
"""

import hashlib
import json
import random
import struct
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import certifi
import pytest

from medley.model import demo
from medley.schema import DemoSpec

MADE = DemoSpec(
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
_CHUNK_BYTES = 1 << 16


class Hub(ThreadingHTTPServer):
    """Repositories and their files, and every request that came."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.asked = dict(files), list[tuple[str, str, int]]()
        self.commit: str | None = COMMIT
        """Of `main`, in every repository; None: it does not say."""
        self.damaged: set[bytes] = set()
        """Weights that come with a flipped bit, as the hub's checksums do not say."""
        self.card: dict[str, str] = {}

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        if self.path.startswith(("/cas/", "/xorb/")) or "/xet-read-token/" in self.path:
            self._xet()
        else:
            self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        repository, _, at = self.path.removeprefix("/").partition("/resolve/")
        revision, _, name = at.partition("/")
        about = self.path.removeprefix("/api/models/").partition("?")[0].partition("/revision/")[0]
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
        self.send_header("etag", f'"{checksum(name, content)}"')
        if name.endswith(".safetensors") and body is False:
            self.send_header("x-linked-size", str(len(content)))
            self.send_header("x-xet-hash", xet_hash(content))
            route = f"{self.server.url}/api/models/{repository}/xet-read-token/{COMMIT}"
            self.send_header("x-xet-refresh-route", route)
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
        found = list[dict[str, object]]()
        for name, size in self._files(repository):
            content = self.server.files[f"{repository}/{name}"]
            entry = {"type": "file", "path": name, "size": size, "oid": checksum("", content)}
            if name.endswith(".safetensors"):
                entry["lfs"] = {"oid": checksum(name, content), "size": size, "pointerSize": 130}
                entry["xetHash"] = xet_hash(content)
            found.append(entry)
        self._json(found)

    def _xet(self) -> None:
        """A token for the store of chunks; the chunks of a file, all in one xorb; the xorb."""
        if "/xet-read-token/" in self.path:
            names = {
                "Cas-Url": f"{self.server.url}/cas",
                "Access-Token": "t",
                "Token-Expiration": "9999999999",
            }
            return self._json({}, {f"X-Xet-{name}": value for name, value in names.items()})
        wanted = self.path.rpartition("/")[2]
        content = next(each for each in self.server.files.values() if xet_hash(each) == wanted)
        starts = range(0, len(content), _CHUNK_BYTES)
        packed = xorb([content[at : at + _CHUNK_BYTES] for at in starts])
        if content in self.server.damaged:
            packed = packed[:-1] + bytes([packed[-1] ^ 1])
        if self.path.startswith("/xorb/"):
            part = self._part(packed)
            self.server.asked.append((self.command, wanted, len(part)))
            return self._send(part, status=206)
        if self.path.startswith("/cas/v2/"):  # hf_xet 1.8.0 falls back to the version that is published
            return self._short(404, "NotFound")
        chunks = {"start": 0, "end": len(starts)}
        place = {"range": chunks, "url": f"{self.server.url}/xorb/{wanted}"}
        place["url_range"] = {"start": 0, "end": len(packed) - 1}
        term = {"hash": wanted, "unpacked_length": len(content), "range": chunks}
        return self._json({"offset_into_first_range": 0, "terms": [term], "fetch_info": {wanted: [place]}})

    def _files(self, repository: str) -> list[tuple[str, int]]:
        names = [each for each in self.server.files if each.rpartition("/")[0] == repository]
        return [(each.rpartition("/")[2], len(self.server.files[each])) for each in names]

    def _json(self, found: object, headers: Mapping[str, str] = {}) -> None:
        self._send(json.dumps(found).encode(), headers)

    def _send(self, content: bytes, headers: Mapping[str, str] = {}, status: int = 200) -> None:
        self.send_response(status)
        for name, value in {**headers, "content-length": str(len(content))}.items():
            self.send_header(name, value)
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


def checksum(name: str, content: bytes) -> str:
    """The hub's name of a file's content: SHA-256 for weights, git's for others."""
    if name.endswith(".safetensors"):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def xet_hash(content: bytes) -> str:
    """64 digits that name it; nothing compares them with the content."""
    return hashlib.sha256(b"xet" + content).hexdigest()


def xorb(chunks: list[bytes]) -> bytes:
    """Each with version 0, its size, no compression, and its size again."""
    sizes = [len(each).to_bytes(3, "little") for each in chunks]
    return b"".join(b"\0%b\0%b%b" % (size, size, each) for size, each in zip(sizes, chunks, strict=True))


@contextmanager
def serving(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, home: Path) -> Iterator[Hub]:
    """A hub that the environment names; its cache and medley's lie in `home`."""
    with Hub(files) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        # hf_xet 1.8.0 makes no client, not even for plain HTTP, where there are no certificates at all, as in
        # Nix's sandbox: "Reqwest error: builder error".
        monkeypatch.setenv("SSL_CERT_FILE", certifi.where())
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


def large_repositories() -> dict[str, bytes]:
    """A model of one large file, the same under another name, and one of it and another file."""
    first, second = (random.Random(seed).randbytes(1_500_000 + seed) for seed in (1, 2))
    return {
        "openai/gpt-oss-20b/config.json": b"{}",
        "openai/gpt-oss-20b/model.safetensors": first,
        "org/renamed/config.json": b"{}",
        "org/renamed/model.safetensors": first,
        "org/both/config.json": b'{"other": 1}',
        "org/both/1.safetensors": first,
        "org/both/2.safetensors": second,
    }


def disk_bytes(folder: Path) -> int:
    """Ask du(1)."""
    told = subprocess.run(["du", "-s", "--block-size=1", folder], capture_output=True, text=True, check=True)
    return int(told.stdout.split()[0])


def demo_repositories(folder: Path) -> dict[str, bytes]:
    """The demo as a repository of one file, of two, gated, and broken in two ways."""
    demo.write_model(MADE, folder)
    told, whole = ((folder / name).read_bytes() for name in ("config.json", "model.safetensors"))
    names = sorted(demo.list_tensor_shapes(MADE))
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
