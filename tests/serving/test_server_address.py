"""Which server gets which key: another host only encrypted, this host only what was given for it."""

import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from medley import credentials, storage
from medley.engine.server_spec import ServerSpec
from medley.serving import batch_client, server_records
from medley.serving.server_address import find_address, find_client_key_file
from tests.problems import assert_problem, problem_in, raises_problem
from tests.web_server import Answering, answering

Run = Callable[..., tuple[int, str, str]]
KEY = "sk-0123456789abcdef01234567"
MODELS = {"/v1/models": b'{"data": [{"id": "tiny"}]}'}
FAR = "http://spark-1:8000/v1"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("MEDLEY_URL", raising=False)
    monkeypatch.delenv("MEDLEY_API_KEY", raising=False)
    monkeypatch.setattr(batch_client, "_RETRY_PAUSE_S", 0)
    return tmp_path


@pytest.fixture
def key_file(tmp_path: Path) -> str:
    (tmp_path / "key").write_text(KEY)
    return str(tmp_path / "key")


@pytest.fixture
def thief(monkeypatch: pytest.MonkeyPatch) -> Iterator[Answering]:
    """A listener that keeps what it is sent; this host's resolver says that it is spark-1."""
    resolve = socket.getaddrinfo

    def of_thief(host: str, *more: Any, **options: Any) -> Any:
        return resolve("127.0.0.1" if host in {"spark-1", b"spark-1"} else host, *more, **options)

    monkeypatch.setattr(socket, "getaddrinfo", of_thief)
    with answering(MODELS) as found:
        yield found


def sent_keys(server: Answering) -> set[str | None]:
    return {authorization for _, _, authorization in server.asked}


@pytest.fixture(params=["chat", "connect", "batch", "bench"])
def words(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, ...]:
    """Return each command that asks a server by its URL, without that."""
    source = tmp_path / "in.jsonl"
    source.write_text('{"custom_id": "a", "url": "/v1/completions", "body": {"prompt": "x"}}\n')
    commands = {
        "chat": ("chat", "Hello"),
        "connect": ("connect", "curl"),
        "batch": ("batch", "tiny", str(source), str(tmp_path / "out.jsonl")),
        "bench": ("bench", "--dry-run", "--tokenizer", "/absent"),
    }
    return commands[request.param]


def test_a_key_of_a_file_does_not_leave_this_host_unencrypted(
    run: Run, words: tuple[str, ...], thief: Answering, key_file: str
) -> None:
    """Nothing is sent until the user says --insecure; then the same listener gets the key."""
    words = (*words, "--url", f"http://spark-1:{thief.server_port}", "--api-key", key_file)
    status, out, err = run(*words)
    assert (status, out, thief.asked) == (1, "", [])
    fixes = (f"--url https://spark-1:{thief.server_port}/v1", "--insecure")
    assert_problem(problem_in(err), "spark-1 unencrypted", cause=key_file, fix=fixes)
    run(*words, "--insecure")
    assert sent_keys(thief) == {f"Bearer {KEY}"}


def test_a_key_of_the_environment_does_not_leave_this_host_unencrypted(
    run: Run, words: tuple[str, ...], thief: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_API_KEY", KEY)
    words = (*words, "--url", f"http://spark-1:{thief.server_port}")
    status, out, err = run(*words)
    assert (status, out, thief.asked) == (1, "", [])
    assert_problem(problem_in(err), "spark-1 unencrypted", cause="MEDLEY_API_KEY", fix="--insecure")
    run(*words, "--insecure")
    assert sent_keys(thief) == {f"Bearer {KEY}"}


def test_without_a_key_another_host_is_asked_as_before(
    run: Run, words: tuple[str, ...], thief: Answering
) -> None:
    run(*words, "--url", f"http://spark-1:{thief.server_port}")
    assert sent_keys(thief) == {None}


def test_whoever_listens_on_this_host_gets_no_key_of_the_environment(
    run: Run, words: tuple[str, ...], thief: Answering, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_API_KEY", KEY)
    run(*words, "--url", thief.url)
    assert sent_keys(thief) == {None}


def test_a_server_of_this_host_is_asked_at_its_socket(
    run: Run, words: tuple[str, ...], thief: Answering, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The port may be another program's by now."""
    monkeypatch.setenv("MEDLEY_API_KEY", KEY)
    listens = ServerSpec(
        "tiny", "tiny", port=thief.server_port, socket_folder=storage.make_private_folder(state / "s")
    )
    with answering(MODELS, listens.socket) as own, server_records.record_server(listens, "ready"):
        run(*words, "--url", thief.url)
    assert sent_keys(own) == {None}
    assert not thief.asked


@pytest.mark.parametrize(
    ("url", "named", "key"),
    [
        pytest.param("https://spark-1:8000/v1", None, KEY, id="encrypted"),
        pytest.param("https://spark-1:8000/v1", "https://spark-1:8000", KEY, id="its own address"),
        pytest.param("https://spark-1:8000/v1", "https://spark-2:8000", None, id="another's key"),
        pytest.param("http://127.0.0.1:1/v1", None, None, id="any listener of this host"),
        pytest.param("http://localhost:1/v1", None, None, id="the same by name"),
        pytest.param("https://127.0.0.1:1/v1", None, None, id="the same with TLS"),
        pytest.param("http://127.0.0.1:1/v1", "127.0.0.1:1", KEY, id="a tunnel that MEDLEY_URL names"),
    ],
)
def test_the_environment_s_key_goes_to_its_own_address(
    url: str, named: str | None, key: str | None, key_file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file's key goes to the address that it is typed with."""
    monkeypatch.setenv("MEDLEY_API_KEY", KEY)
    if named:
        monkeypatch.setenv("MEDLEY_URL", named)
    assert find_address(url, None, is_insecure=False).key == key
    monkeypatch.setenv("MEDLEY_API_KEY", "sk-another-0123456789abcdef")
    assert find_address(url, key_file, is_insecure=False).key == KEY


@pytest.mark.parametrize("url", [FAR, "http://192.0.2.1:8000/v1", "http://[2001:db8::1]:8000/v1"])
def test_which_hosts_are_others(url: str, key_file: str) -> None:
    with raises_problem(fix=(f"--url {url.replace('http', 'https')}", "--insecure")):
        find_address(url, key_file, is_insecure=False)
    assert find_address(url, key_file, is_insecure=True).key == KEY


def test_another_program_gets_the_key_of_this_host_s_server(tmp_path: Path) -> None:
    alice = credentials.add_key("alice")
    listens = ServerSpec("tiny", "tiny", key=credentials.find_key_folder(), socket_folder=tmp_path)
    with server_records.record_server(listens, "ready"):
        at = find_address("http://127.0.0.1:8000/v1", None, is_insecure=False)
    assert (at.key, find_client_key_file(at, None)) == (None, alice)
