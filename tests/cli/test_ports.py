"""`medley ports` as typed."""

import json
import os
import socket
from pathlib import Path

import pytest

from medley.cli import UsageError
from medley.cli.cluster import StatusVerb
from medley.cli.ports import PortsVerb
from medley.engine.server_spec import ServerSpec
from medley.network import tcp
from medley.serving import server_records
from tests.problems import raises_problem

pytestmark = pytest.mark.usefixtures("asked_once")


def run(*words: str) -> None:
    PortsVerb.run(["medley ports", *words], exit=False)


def test_all_of_them(capsys: pytest.CaptureFixture[str], free_port: int) -> None:
    run("--port", str(free_port))
    said = capsys.readouterr().out.splitlines()
    assert said[0].split() == ["PORT", "BIND", "PROTOCOL", "WHO", "AUTH", "USE", "LISTENING", "NOW"]
    (head,) = (line for line in said if line.startswith("24000 "))
    assert "  TCP " in head
    assert " token " in head
    assert " Ray's head " in head
    (api,) = (line for line in said if line.startswith(f"{free_port} "))
    assert " none " in api


def test_a_process_that_listens_is_named_beside_what_may(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        run("--port", str(port), "serve")
        said = capsys.readouterr().out.splitlines()
        run("--json", "--port", str(port), "serve")
        found = json.loads(capsys.readouterr().out)["ports"]
    (line,) = (line for line in said if line.startswith(f"{port} "))
    assert line.endswith(f" (pid {os.getpid()})")
    (api,) = (each for each in found if each["first"] == each["last"] == port)
    (process,) = api["listening"]
    assert (process["port"], process["pid"]) == (port, os.getpid())
    assert process["process"] in line
    assert api["auth"] == "none", "without --api-key a local server has none"
    assert api["now"] == []


@pytest.mark.parametrize(("key", "auth"), [("/a/key", "API key"), (None, "none")])
def test_a_server_is_listed_as_it_is_bound(
    key: str | None,
    auth: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    with socket.create_server(("0.0.0.0", 0)) as server:
        port = server.getsockname()[1]
        with server_records.record_server(
            ServerSpec("demo", "demo", port=port, key=Path(key) if key else None)
        ):
            run("--json", "--port", str(port), "serve")
            found = json.loads(capsys.readouterr().out)["ports"]
            StatusVerb.run(["medley status"], exit=False)
    (api,) = (each for each in found if each["first"] == each["last"] == port)
    assert (api["bound"], api["outside"], api["auth"]) == ("0.0.0.0", True, auth)
    assert f"open to the network: http://{tcp.find_outward_address()}:{port}/v1" in capsys.readouterr().out


def test_a_listener_is_not_listed_as_tops_page(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        run("--json", "serve", "top")
        found = json.loads(capsys.readouterr().out)["ports"]
        port = server.getsockname()[1]
    listed = [each["what"] for each in found if port in {seen["port"] for seen in each["listening"]}]
    assert listed == ["ranks of a model"]


def test_json_of_a_role(capsys: pytest.CaptureFixture[str]) -> None:
    run("--json", "--port", "9000", "serve")
    found = json.loads(capsys.readouterr().out)["ports"]
    assert all("serve" in each["roles"] for each in found)
    (api,) = (each for each in found if each["first"] == 9000)
    assert (api["outside"], api["bound"]) == (False, "127.0.0.1")


@pytest.mark.parametrize("program", ["nftables", "ufw", "iptables"])
def test_rules_for_a_host_without_a_cluster(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("--firewall", program, "--link", "none", "--open", "8000")
    closed = capsys.readouterr().out
    run("--firewall", program, "--link", "none", "--undo")
    undone = capsys.readouterr().out
    assert "29999" in closed
    assert closed != undone


def test_no_such_role() -> None:
    with raises_problem("haed", cause=" head, worker, ", fix="medley ports"):
        run("haed")


@pytest.mark.parametrize("words", [("--undo",), ("--link", "eth0"), ("--firewall", "pf")], ids=" ".join)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(UsageError):
        run(*words)
