"""`medley connect` prints and writes a client's settings for a server that runs."""

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from medley import storage
from medley.engine.server_spec import ServerSpec
from medley.serving import server_records
from tests.web_server import answering

Run = Callable[..., tuple[int, str, str]]
KEY = "sk-0123456789"
CARDS = b'{"data": [{"id": "tiny", "max_model_len": 8192}, {"id": "other"}]}'


@pytest.fixture(autouse=True)
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of this host, which needs a key."""
    (tmp_path / "key").write_text(KEY)
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    folder = storage.make_private_folder(tmp_path / "s")
    with answering({"/v1/models": CARDS}) as found:
        listens = ServerSpec(
            "tiny", "tiny", port=found.server_port, key=tmp_path / "key", socket_folder=folder
        )
        with answering({"/v1/models": CARDS}, listens.socket), server_records.record_server(listens, "ready"):
            yield found.url


def test_without_a_client_all_are_listed(run: Run) -> None:
    status, out, err = run("connect")
    assert (status, err) == (0, "")
    assert "claude-code" in out
    _, out, _ = run("connect", "--json")
    assert {"curl", "codex"} <= {each["name"] for each in json.loads(out)}


def test_settings_are_those_of_the_running_server(run: Run, server: str, tmp_path: Path) -> None:
    status, out, _ = run("connect", "opencode", "--json")
    told = json.loads(out)
    assert (status, told["model"], told["context"], told["output"]) == (0, "tiny", 8192, 2048)
    assert told["url"] == f"{server}/v1"
    assert told["key"] == {"file": str(tmp_path / "key")}
    assert KEY not in out
    _, out, _ = run("connect", "curl")
    assert f"curl {server}/v1/chat/completions" in out
    assert f'"$(cat {tmp_path}/key)"' in out


def test_another_model_and_a_key_of_the_environment(
    run: Run, server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, out, _ = run("connect", "openai", "--model", "other", "--json")
    assert (json.loads(out)["model"], json.loads(out)["context"]) == ("other", None)
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("MEDLEY_API_KEY", KEY)
    monkeypatch.setenv("MEDLEY_URL", server)
    _, out, _ = run("connect", "codex", "--json")
    assert json.loads(out)["key"] == {"variable": "MEDLEY_API_KEY"}
    assert KEY not in out


def test_a_client_that_would_send_the_key_unencrypted_is_named(
    run: Run, server: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text("sk-0123456789abcdef01234567")
    resolve = socket.getaddrinfo
    monkeypatch.setattr(socket, "getaddrinfo", lambda _, *more, **by: resolve("127.0.0.1", *more, **by))
    url = server.replace("127.0.0.1", "spark-1")
    status, out, err = run("connect", "curl", "--url", url, "--api-key", str(tmp_path / "key"), "--insecure")
    assert (status, f"{url}/v1" in out) == (0, True)
    assert err == f"medley: curl will send the key unencrypted to {url}/v1: medley serve MODEL --tls\n"


def test_write_writes_and_a_dry_run_does_not(run: Run, tmp_path: Path) -> None:
    status, out, err = run("connect", "opencode", "--write", "--dry-run")
    assert (status, (tmp_path / "opencode.json").exists()) == (0, False)
    assert "would write" in err
    assert '"medley/tiny"' in out
    status, out, err = run("connect", "opencode", "--write")
    assert (status, json.loads((tmp_path / "opencode.json").read_text())["model"]) == (0, "medley/tiny")
    assert f"wrote {tmp_path / 'opencode.json'}" in err
    (tmp_path / "opencode.json").write_text("{}")
    _, _, err = run("connect", "opencode", "--write")
    assert "the file before it is opencode.json.1.bak" in err


def test_a_small_context_is_warned_of(run: Run) -> None:
    _, _, err = run("connect", "claude-code")
    assert "needs a context of about 32,768 tokens" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param(("emacs",), "there are no settings for 'emacs'", id="unknown"),
        pytest.param(("curl", "openai"), "'openai' is one word too many", id="two"),
        pytest.param(("curl", "--write"), "curl has no file to write", id="nothing to write"),
        pytest.param(("curl", "--url", "http://127.0.0.1:1"), "127.0.0.1:1", id="no server"),
    ],
)
def test_what_cannot_be_is_refused(run: Run, words: tuple[str, ...], said: str) -> None:
    status, out, err = run("connect", *words)
    assert (status, out) == (1, "")
    assert said in err
    assert "fix:" in err
