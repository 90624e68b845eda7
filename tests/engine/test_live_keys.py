"""Keys that are added and revoked while a real Caddy answers, typed as users type them."""

import http.client
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

import pytest

from medley import credentials, storage
from medley.command import Command
from medley.engine.server_spec import ServerSpec
from medley.environment import caddy
from medley.serving import server_records
from medley.serving.edge import Edge
from medley.serving.edge_process import EdgeProcess, count_open_requests, run_edge
from medley.serving.live_keys import LiveKeys
from tests.servers import Start
from tests.socket_server import answering_on
from tests.waiting import wait_for

pytestmark = pytest.mark.engine
Run = Callable[..., tuple[int, str, str]]
CHAT = "/v1/chat/completions"
STREAMS, PIECES = 8, 80


def status(port: int, headers: dict[str, str]) -> int:
    """Ask, and once again where Caddy takes a configuration: its old server may close a new connection."""
    try:
        return ask_status(port, headers)
    except (http.client.RemoteDisconnected, ConnectionResetError):
        return ask_status(port, headers)


def ask_status(port: int, headers: dict[str, str]) -> int:
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as connection:
        connection.request("GET", "/v1/models", headers=headers)
        return connection.getresponse().status


def both(key: str) -> tuple[dict[str, str], dict[str, str]]:
    """Return the two headers in which a client may send a key."""
    return {"Authorization": f"Bearer {key}"}, {"x-api-key": key}


def count_pieces(port: int, key: str) -> int:
    """Ask for a stream, and return how many pieces of it came."""
    body = json.dumps({"stream": True, "pieces": PIECES}).encode()
    with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", CHAT, body, both(key)[0])
        answer = connection.getresponse()
        assert answer.status == http.client.OK
        return answer.read().count(b"data: ")


@contextmanager
def looking(process: EdgeProcess, source: Path, said: list[str]) -> Iterator[Event]:
    """Look at the keys as a server's own loop does, until the body ends; the event pauses it."""
    keys, is_over, is_paused = LiveKeys(process, source, said.append), Event(), Event()

    def look() -> None:
        while not is_over.wait(0.1):
            if not is_paused.is_set():
                keys.check()

    thread = Thread(target=look)
    thread.start()
    try:
        yield is_paused
    finally:
        is_over.set()
        thread.join()


@pytest.fixture
def listens(
    tmp_path_factory: pytest.TempPathFactory, free_port: int, monkeypatch: pytest.MonkeyPatch
) -> ServerSpec:
    """A server with medley's own keys, of which there is the default one."""
    folder = tmp_path_factory.mktemp("k")
    monkeypatch.setenv("MEDLEY_STATE", str(folder / "state"))
    source = credentials.choose_keys(None, "0.0.0.0", make=True)
    return ServerSpec(
        "m", "m", "127.0.0.1", free_port, source, socket_folder=storage.make_private_folder(folder / "s")
    )


@contextmanager
def fronted(listens: ServerSpec) -> Iterator[EdgeProcess]:
    """Run the edge of a server that `medley key` sees, open to requests."""
    assert listens.socket_folder
    assert listens.key
    keys = credentials.read_keys(listens.key)
    edge = Edge(listens.address, listens.port, listens.socket, listens.socket_folder, keys)
    with (
        answering_on(listens.socket),
        run_edge(edge, caddy.prepare_caddy(), print) as process,
        server_records.record_server(listens, "ready"),
    ):
        process.admit("start")
        wait_for(
            "it is open",
            lambda: status(listens.port, both(next(iter(keys.values())))[0]) == http.client.OK,
            20,
        )
        yield process


def test_keys_come_and_go_at_load_and_no_stream_is_cut(run: Run, listens: ServerSpec) -> None:
    """Either header lets a new key in at once, and a revoked one not any more."""
    assert listens.key
    said: list[str] = []
    default = credentials.read_api_key(credentials.find_api_key_file())

    def added(name: str) -> str:
        exit_code, out, _ = run("key", "add", name)
        assert exit_code == 0
        return out.strip()

    def answers(key: str) -> list[int]:
        return [status(listens.port, header) for header in both(key)]

    with (
        fronted(listens) as process,
        looking(process, listens.key, said),
        ThreadPoolExecutor(2 * STREAMS) as pool,
    ):
        alice = added("alice")
        assert answers(alice) == [200, 200]
        keys = [key for key in (default, alice) for _ in range(STREAMS)]
        streams = [pool.submit(count_pieces, listens.port, key) for key in keys]
        control = process.settings.control_socket
        wait_for("all streams run", lambda: count_open_requests(control) == len(streams), 20)
        bob = added("bob")
        assert run("key", "revoke", "alice")[0] == 0
        assert count_open_requests(control) == len(streams)
        assert [answers(key) for key in (alice, default, bob)] == [[401, 401], [200, 200], [200, 200]]
        assert [each.result(60) for each in streams] == [PIECES] * len(streams)
        assert run("key", "revoke", "default")[0] == 0
        assert answers(default) == [401, 401]
        told = json.loads(run("key", "list", "--json")[1])
        servers = {each["name"]: [at["port"] for at in each["servers"]] for each in told}
        assert servers == {"bob": [listens.port]}
    assert said[0] == "requests need one of the keys default, alice"
    assert not any(key in line for key in (default, alice, bob) for line in said)


def test_an_open_connection_does_not_keep_a_revoked_key(run: Run, listens: ServerSpec) -> None:
    """Neither one that waits for its next request, nor one whose stream goes on."""
    assert listens.key
    alice = credentials.read_api_key(credentials.add_key("alice"))
    header, _ = both(alice)
    body = json.dumps({"stream": True, "pieces": PIECES})
    with fronted(listens) as process, looking(process, listens.key, []), ExitStack() as stack:
        idle, busy = (
            stack.enter_context(closing(http.client.HTTPConnection("127.0.0.1", listens.port, timeout=60)))
            for _ in range(2)
        )
        idle.request("GET", "/v1/models", headers=header)
        assert idle.getresponse().read()
        busy.request("POST", CHAT, body, header)
        stream = busy.getresponse()
        assert run("key", "revoke", "alice")[0] == 0
        for connection in idle, busy:
            assert connection.sock
            connection.sock.sendall(
                f"GET /v1/models HTTP/1.1\r\nHost: a\r\nx-api-key: {alice}\r\n\r\n".encode()
            )
        assert stream.read().count(b"data: ") == PIECES
        for connection in idle, busy:
            left = b""
            with suppress(ConnectionResetError):
                left = connection.sock.recv(4096) if connection.sock else b""
            assert b" 200 " not in left


def test_files_that_are_removed_by_hand_open_nothing(listens: ServerSpec) -> None:
    assert listens.key
    said: list[str] = []
    header, _ = both(credentials.read_api_key(credentials.find_api_key_file()))
    with fronted(listens) as process, looking(process, listens.key, said):
        credentials.find_api_key_file().unlink()
        wait_for("the key is refused", lambda: status(listens.port, header) == http.client.UNAUTHORIZED, 20)
        assert status(listens.port, {}) == http.client.UNAUTHORIZED


def test_a_damaged_file_is_left_out_and_said_once(run: Run, listens: ServerSpec) -> None:
    """And it keeps no other key from being revoked."""
    assert listens.key
    said: list[str] = []
    bob = credentials.read_api_key(credentials.add_key("bob"))
    header, _ = both(credentials.read_api_key(credentials.find_api_key_file()))
    with fronted(listens) as process, looking(process, listens.key, said):
        credentials.add_key("alice").write_text("{env.HOME}")
        wait_for("it is said", lambda: any("is not an API key" in line for line in said), 20)
        time.sleep(0.5)
        assert status(listens.port, header) == http.client.OK
        assert status(listens.port, both("{env.HOME}")[1]) == http.client.UNAUTHORIZED
        assert status(listens.port, both(bob)[0]) == http.client.OK
        assert run("key", "revoke", "bob")[0] == 0
        assert status(listens.port, both(bob)[0]) == http.client.UNAUTHORIZED
    assert len([line for line in said if "is not an API key" in line]) == 1


def test_a_folder_in_a_key_s_place_keeps_no_key_in_force(run: Run, listens: ServerSpec) -> None:
    """Neither its own nor another one, which is revoked later."""
    assert listens.key
    said: list[str] = []
    file = credentials.add_key("alice")
    alice, bob = credentials.read_api_key(file), credentials.read_api_key(credentials.add_key("bob"))
    header, _ = both(credentials.read_api_key(credentials.find_api_key_file()))
    with fronted(listens) as process, looking(process, listens.key, said):
        file.unlink()
        file.mkdir()
        wait_for("it is said", lambda: any("the key alice is left out" in line for line in said), 20)
        wait_for(
            "it is refused", lambda: status(listens.port, both(alice)[0]) == http.client.UNAUTHORIZED, 20
        )
        assert run("key", "revoke", "bob")[0] == 0
        assert status(listens.port, both(bob)[0]) == http.client.UNAUTHORIZED
        assert status(listens.port, header) == http.client.OK


def test_a_server_whose_process_hangs_is_named(listens: ServerSpec) -> None:
    assert listens.key
    with fronted(listens) as process, looking(process, listens.key, []) as is_paused:
        is_paused.set()
        words = (sys.executable, "-m", "medley", "key", "add", "alice")
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=60)
        assert done.returncode == 1
        assert f"m on port {listens.port} does not accept the key alice" in done.stderr
        assert [status(listens.port, header) for header in both(done.stdout.strip())] == [401, 401]
        is_paused.clear()
        wait_for("it is taken", lambda: status(listens.port, both(done.stdout.strip())[0]) == 200, 20)


@pytest.mark.usefixtures("small_engine")
def test_a_server_takes_keys_without_a_restart(
    run: Run, start: Start, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole of it: `serve`, another terminal's `key`, and a client."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    words = ("serve", "demo", "--host", "0.0.0.0", "--port", str(free_port))
    served = start(Command((sys.executable, "-m", "medley", *words)))
    served.ready()
    default = credentials.read_api_key(tmp_path / "state" / "api-key")
    alice = run("key", "add", "alice")[1].strip()
    assert run("key", "revoke", "default")[0] == 0
    answers = [status(free_port, header) for key in (default, alice) for header in both(key)]
    assert answers == [401, 401, 200, 200]
    assert "requests need one of the keys alice" in served.tail()
    assert not any(key in served.tail() for key in (default, alice))
    told = json.loads(run("connect", "curl", "--json")[1])
    assert told["key"] == {"file": str(tmp_path / "state" / "keys" / "alice")}
