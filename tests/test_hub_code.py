"""The hub's real client against a small server that has a repository of two commits."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from medley import fingerprint, hub_code, pin, trust
from medley.problem import Problem
from medley.remote_code import Code
from medley.trust import Trust
from medley.weights import Weights

OLD, NEW = "0" * 40, "1" * 40
CONFIG = json.dumps({"auto_map": {"AutoConfig": "configuration_x.X"}}).encode()
FILES = {
    OLD: {"config.json": CONFIG, "configuration_x.py": b"old\n", "sub/more.py": b"more\n", "x.bin": b"w"},
    NEW: {"config.json": CONFIG, "configuration_x.py": b"new\n", "x.bin": b"w"},
}
PLAIN = {"config.json": b'{"model_type": "qwen3"}', "convert.py": b"unused\n", "x.bin": b"w"}


class Hub(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Answer)
        self.commits = {"org/own": {**FILES, "main": FILES[NEW]}, "org/plain": {NEW: PLAIN, "main": PLAIN}}
        self.head = NEW
        self.asked: list[str] = []


class _Answer(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer()

    def do_GET(self) -> None:
        self._answer()

    def _answer(self) -> None:
        self.server.asked.append(self.path)
        if self.path.startswith("/api/models/"):
            repository, _, commit = self.path.removeprefix("/api/models/").partition("/revision/")
            return self._about(repository, commit or self.server.head)
        repository, _, rest = self.path.removeprefix("/").partition("/resolve/")
        commit, _, name = rest.partition("/")
        content = self.server.commits.get(repository, {}).get(commit, {}).get(name)
        return self._send(content, commit if len(commit) == 40 else self.server.head)

    def _about(self, repository: str, commit: str) -> None:
        files = self.server.commits.get(repository, {}).get(commit)
        table = {"id": repository, "sha": commit, "siblings": [{"rfilename": name} for name in files or ()]}
        self._send(json.dumps(table).encode() if files else None, commit)

    def _send(self, content: bytes | None, commit: str) -> None:
        self.send_response(404 if content is None else 200)
        if content is None:
            api = self.path.startswith("/api/")
            self.send_header("x-error-code", "RevisionNotFound" if api else "EntryNotFound")
        self.send_header("content-length", str(len(content or b"")))
        self.send_header("etag", f'"{fingerprint.of_bytes(content or b"")}"')
        self.send_header("x-repo-commit", commit)
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content or b"")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(autouse=True)
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with Hub() as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
        monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
        yield server
        server.shutdown()


def snapshot(home: Path, files: dict[str, bytes], commit: str) -> None:
    """As a download leaves it in the hub's cache."""
    folder = home / "home" / "hub" / "models--org--own" / "snapshots" / commit
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


def test_the_newest_commit_and_all_its_python() -> None:
    code = hub_code.code("org/own")
    assert code == Code("org/own", {"configuration_x.py": fingerprint.of_bytes(b"new\n")}, NEW)


def test_a_commit_that_is_named(hub: Hub) -> None:
    code = hub_code.code("org/own", OLD)
    assert code is not None
    assert (code.commit, set(code.files)) == (OLD, {"configuration_x.py", "sub/more.py"})
    assert not any("x.bin" in path for path in hub.asked), "no weights"


def test_python_that_nothing_names_is_no_code() -> None:
    assert hub_code.code("org/plain") is None


def test_what_is_cached_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Problem):
        hub_code.code("org/own")
    assert hub_code.in_cache("org/own") is None
    snapshot(tmp_path, FILES[OLD], OLD)
    assert hub_code.in_cache("org/own") == ("configuration_x.py",)
    code = hub_code.code("org/own")
    assert code is not None
    assert (code.commit, len(code.files)) == (OLD, 2)


def test_cached_weights_without_their_code_take_that_of_their_commit(tmp_path: Path) -> None:
    """An engine that trusts nothing leaves the Python behind."""
    snapshot(tmp_path, {name: each for name, each in FILES[OLD].items() if not name.endswith(".py")}, OLD)
    code = hub_code.code("org/own")
    assert code is not None
    assert code.commit == OLD


def test_an_unknown_commit_is_a_problem() -> None:
    with pytest.raises(Problem, match=f"org/own has no commit {'2' * 40}"):
        hub_code.code("org/own", "2" * 40)


def test_the_first_use_stays_where_it_is_when_the_repository_moves(hub: Hub) -> None:
    hub.head = OLD
    found = Weights("org/own", "org/own", None)
    with pytest.raises(Problem, match="nobody said that it may run") as caught:
        trust.trusted(found, Trust(), starts=True)
    assert f"at commit {OLD}" in caught.value.cause
    assert f"--code-revision {OLD}" in caught.value.fix
    first = trust.trusted(found, Trust(given=True), starts=True)
    hub.head = NEW
    assert trust.trusted(found, Trust(given=True), starts=True) == first
    moved = trust.trusted(found, Trust(given=True, pin=NEW), starts=True)
    assert moved is not None
    assert moved.commit == NEW
    assert getattr(pin.read("org/own"), "commit", None) == NEW


def test_a_hub_that_gives_other_files_for_a_commit_is_found_out(hub: Hub) -> None:
    found = Weights("org/own", "org/own", None)
    trust.trusted(found, Trust(given=True), starts=True)
    hub.commits["org/own"][NEW] = {**FILES[NEW], "more.py": b"and this\n"}
    with pytest.raises(Problem, match="has changed since you trusted it") as caught:
        trust.trusted(found, Trust(given=True), starts=True)
    assert "what differs: more.py" in caught.value.cause
