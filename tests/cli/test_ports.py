"""`medley ports` as typed."""

import json

import pytest

from medley.cli import Usage
from medley.cli.ports import PortsVerb
from medley.errors import Problem

pytestmark = pytest.mark.usefixtures("asked_once")


def run(*words: str) -> None:
    PortsVerb.run(["medley ports", *words], exit=False)


def test_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    run()
    said = capsys.readouterr().out.splitlines()
    assert any(line.startswith("24000 ") and "Ray's head (head)" in line for line in said)


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
    with pytest.raises(Problem, match="haed is no role"):
        run("haed")


@pytest.mark.parametrize("words", [("--undo",), ("--link", "eth0"), ("--firewall", "pf")], ids=" ".join)
def test_wrong_usage(words: tuple[str, ...]) -> None:
    with pytest.raises(Usage):
        run(*words)
