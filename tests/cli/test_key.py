"""`medley key` as typed: keys by name, and the servers that take them or do not."""

import json
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from medley import credentials, storage
from medley.engine.server_spec import ServerSpec
from medley.serving import live_keys, server_records
from tests.problems import assert_problem, problem_in
from tests.web_server import answering

Run = Callable[..., tuple[int, str, str]]
ROUTES = "/config/apps/http/servers/edge/routes"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(live_keys, "KEY_CHANGE_LIMIT_S", 0.3)
    monkeypatch.setattr(live_keys, "_ASK_LIMIT_S", 0.2)
    return tmp_path / "state"


def control_socket(listens: ServerSpec) -> Path:
    assert listens.socket_folder
    return listens.socket_folder / "control.sock"


def server(tmp_path: Path, key: Path, port: int = 8000) -> ServerSpec:
    """A server of this host, at whose sockets nothing listens yet."""
    return ServerSpec(
        "tiny", "tiny", "0.0.0.0", port, key, socket_folder=storage.make_private_folder(tmp_path / str(port))
    )


def routes(*keys: str) -> dict[str, bytes]:
    """What Caddy answers about a running edge that lets these keys in."""
    source = "{http.request.header.Authorization}"
    mappings = [{"input": f"{word}{key}"} for key in keys for word in ("Bearer ", "bearer ", "")]
    return {ROUTES: json.dumps([{"handle": [{"source": source, "mappings": mappings}]}]).encode()}


def test_the_key_alone_is_on_stdout(run: Run, state: Path) -> None:
    status, out, err = run("key", "add", "alice")
    assert (status, out) == (0, f"{(state / 'keys' / 'alice').read_text()}\n")
    assert f"{state / 'keys' / 'alice'} has the key; accepted by no running server" in err
    assert out.strip() not in err


def test_a_key_that_is_brought_is_not_printed(run: Run, tmp_path: Path) -> None:
    own = tmp_path / "own"
    own.write_text("my-own-secret-of-24-letters")
    status, out, err = run("key", "add", "bob", "--file", str(own))
    assert (status, out) == (0, "")
    assert "my-own" not in err
    told = json.loads(run("key", "add", "carol", "--json")[1])
    assert told["key"] == Path(told["file"]).read_text()
    assert (told["name"], told["servers"]) == ("carol", [])


def test_a_list_has_names_and_times_and_never_a_key(run: Run, state: Path) -> None:
    assert run("key", "list") == (0, "there are no keys: medley key add NAME\n", "")
    run("key", "add", "default")
    run("key", "add", "alice")
    status, out, err = run("key", "list")
    assert (status, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == ["NAME", "default", "alice"]
    told = json.loads(run("key", "list", "--json")[1])
    assert [(each["name"], each["file"]) for each in told] == [
        ("default", str(state / "api-key")),
        ("alice", str(state / "keys" / "alice")),
    ]
    assert all(each["added"].startswith("20") for each in told)
    keys = credentials.read_keys(credentials.find_key_folder()).values()
    assert not any(key in text for key in keys for text in (out, json.dumps(told)))


def test_a_list_names_the_servers_that_accept_a_key(run: Run, tmp_path: Path) -> None:
    alice = credentials.read_api_key(credentials.add_key("alice"))
    credentials.add_key("bob")
    listens = server(tmp_path, credentials.find_key_folder())
    assert listens.socket_folder
    with (
        server_records.record_server(listens, "ready"),
        answering(routes(alice), listens.socket_folder / "control.sock"),
    ):
        told = json.loads(run("key", "list", "--json")[1])
        shown = run("key", "list")[1]
    servers = {each["name"]: each["servers"] for each in told}
    assert servers == {"alice": [{"model": "tiny", "port": 8000, "current": True}], "bob": []}
    assert shown.splitlines()[1].endswith("tiny:8000")


def test_a_server_that_did_not_take_a_change_is_named(run: Run, tmp_path: Path) -> None:
    alice = credentials.read_api_key(credentials.add_key("alice"))
    credentials.add_key("bob")
    listens = server(tmp_path, credentials.find_key_folder())
    assert listens.socket_folder
    with (
        server_records.record_server(listens, "ready"),
        answering(routes(alice), listens.socket_folder / "control.sock"),
    ):
        status, out, err = run("key", "add", "carol")
        assert (status, len(out.split())) == (1, 1)
        assert_problem(problem_in(err), "tiny on port 8000", cause="ready", fix="medley stop --port 8000")
        status, out, err = run("key", "revoke", "alice")
        assert status == 1
        assert "alice is revoked" in out
        assert_problem(problem_in(err), "tiny on port 8000 still accepts the key alice", cause="0.3 s")


def test_a_server_that_does_not_answer_is_named(run: Run, tmp_path: Path) -> None:
    credentials.add_key("default")
    listens = server(tmp_path, credentials.find_key_folder())
    assert listens.socket_folder
    with socket.socket(socket.AF_UNIX) as control, server_records.record_server(listens, "ready"):
        control.bind(str(listens.socket_folder / "control.sock"))
        control.listen()
        status, _, err = run("key", "add", "alice")
    assert status == 1
    assert_problem(problem_in(err), "tiny on port 8000", fix="medley stop --port 8000")


def test_a_server_that_restarts_reads_the_keys_then(run: Run, tmp_path: Path) -> None:
    with server_records.record_server(
        server(tmp_path, credentials.find_key_folder()), "restarting, attempt 1"
    ):
        status, _, err = run("key", "add", "alice")
    assert status == 0
    assert "accepted by tiny on port 8000" in err


def test_a_server_with_the_same_key_of_a_file_is_named(run: Run, tmp_path: Path) -> None:
    """It takes no change, so a revoked key is still accepted there."""
    file = credentials.add_key("default")
    credentials.add_key("alice")
    listens = server(tmp_path, file)
    assert listens.socket_folder
    key = routes(credentials.read_api_key(file))
    with server_records.record_server(listens, "ready"), answering(key, control_socket(listens)):
        assert run("key", "add", "bob")[0] == 0
        status, _, err = run("key", "revoke", "default")
    assert status == 1
    assert_problem(problem_in(err), "tiny on port 8000 still", cause=str(file), fix="medley stop --port 8000")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("add Alice", "'Alice' cannot name a key", id="no name"),
        pytest.param("add bob --file absent", "absent cannot be read", id="no file"),
        pytest.param("revoke bob", "there is no key named bob", id="unknown"),
        pytest.param("revoke alice", "alice is the last key", id="the last"),
    ],
)
def test_what_cannot_be_is_a_problem(run: Run, words: str, said: str) -> None:
    credentials.add_key("alice")
    status, out, err = run("key", *words.split())
    assert (status, out) == (1, "")
    assert said in err
    assert list(credentials.list_medley_keys()) == ["alice"]
