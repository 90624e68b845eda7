"""The real client against a small server that speaks the hub's few endpoints; the hub itself is not asked."""

import json
import struct
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from medley.errors import Problem
from medley.model import demo, hub
from medley.model.resolve import Weights
from medley.model.shape import of_made, shape
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


class Hub(ThreadingHTTPServer):
    """Repositories and their files, and every request that came."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(("127.0.0.1", 0), Answer)
        self.files, self.asked = files, list[tuple[str, str, int]]()


class Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        repository, _, name = self.path.removeprefix("/").partition("/resolve/main/")
        about = self.path.removeprefix("/api/models/")
        known = {path.rpartition("/")[0] for path in self.server.files}
        if about in known:
            return self._short(200, "")  # anybody may know of a gated one
        if f"{repository}/{name}" == "org/slow/model.safetensors":
            time.sleep(0.5)
        content = self.server.files.get(f"{repository}/{name}")
        if "gated" in repository and self.headers.get("authorization") != f"Bearer {SECRET}":
            return self._short(403, "GatedRepo")
        if repository not in known:
            return self._short(401, "RepoNotFound")
        if content is None:
            return self._short(404, "EntryNotFound")
        part = self._part(content)
        self.server.asked.append((self.command, name, len(part) if body else 0))
        self.send_response(206 if "range" in self.headers else 200)
        self.send_header("content-length", str(len(part)))
        self.send_header("etag", f'"{abs(hash(content)):x}"')
        self.send_header("x-repo-commit", "c" * 40)
        self.end_headers()
        if body:
            self.wfile.write(part)
        return None

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


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return _files(tmp_path_factory.mktemp("demo"))


@pytest.fixture(autouse=True)
def served(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub(files) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        yield server
        server.shutdown()


def _files(folder: Path) -> dict[str, bytes]:
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
            f"org/two/{part}": _safetensors({name: header[name] for name in held})
            for part, held in parts.items()
        },
        "org/bare/config.json": told,
        "org/slow/config.json": told,
        "org/slow/model.safetensors": whole,
        "org/wrong/config.json": b"[",
        "org/cut/config.json": told,
        "org/cut/model.safetensors": whole[:40],
    }


def _safetensors(header: object) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


def shape_of(repository: str) -> object:
    return shape(Weights(repository, repository, None))


@pytest.mark.parametrize("repository", ["org/one", "org/two"])
def test_a_repository_has_the_shape_of_its_model(repository: str) -> None:
    assert shape_of(repository) == of_made(MADE)


def test_the_weights_are_not_fetched(served: Hub) -> None:
    hub.checkpoint("org/one")
    fetched = [length for _, name, length in served.asked if name == "model.safetensors"]
    assert fetched == [100_001], "the first part, which holds the header, of all the bytes"


def test_a_token_opens_what_is_gated_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_anotherOne")
    with pytest.raises(Problem, match="may not read it") as caught:
        shape_of("org/gated")
    assert "hf_anotherOne" not in f"{caught.value}{caught.value.__cause__}"
    assert "export HF_TOKEN=…" in caught.value.fix
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert shape_of("org/gated") == of_made(MADE)


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        pytest.param("org/none", "no model org/none", id="no such name"),
        pytest.param("org/bare", "no model that medley can measure", id="no safetensors"),
        pytest.param("org/wrong", "org/wrong/config.json is not JSON", id="a broken config"),
        pytest.param("org/cut", "the weights of org/cut are not safetensors", id="a broken file"),
    ],
)
def test_what_cannot_be_measured_is_a_problem(repository: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        shape_of(repository)
    assert what in caught.value.what


def test_what_was_asked_once_leaves_no_model_in_the_cache() -> None:
    """Else `serve` would believe that it is all there."""
    hub.checkpoint("org/one")
    assert hub.snapshot("org/one") is None
    assert not hub.snapshots("org/one")


def test_a_model_in_the_cache_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(Problem, match="not on this host"):
        shape_of("org/kept")
    snapshot = tmp_path / "home" / "hub" / "models--org--kept" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    demo.write(MADE, snapshot)
    assert shape_of("org/kept") == of_made(MADE)


def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Problem, match="cannot be fetched"):
        shape_of("org/one")


def test_a_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_ALL_S", 0.2)
    with pytest.raises(Problem, match="cannot be fetched") as caught:
        shape_of("org/slow")
    assert "no answer in 0.2 s" in caught.value.cause
