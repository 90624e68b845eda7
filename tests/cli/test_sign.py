"""`medley` alone: five lines about this host, on every recorded one, and the one command to type."""

import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medley import config, transcript
from medley.cli.sign import HostOverview, list_lines, list_usable_models
from medley.cluster.remote import Server
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import match_kind
from medley.serving import catalog, server_records
from tests.cli.test_server import read_terminal

Run = Callable[..., tuple[int, str, str]]
RECORDED = Path(__file__).parents[1] / "host" / "recorded"
TRY = "smollm2"
SERVER = Server("http://127.0.0.1:8000/v1", "demo", 1, 1, "b", state="ready")


@pytest.fixture(autouse=True)
def _state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.chdir(tmp_path)


def recorded(name: str, *servers: Server) -> HostOverview:
    return sign_of(
        facts.read_facts(transcript.parse_transcript((RECORDED / f"{name}.txt").read_text())), *servers
    )


def sign_of(found: Facts, *servers: Server) -> HostOverview:
    usable = []
    try:
        kind = match_kind(found, config.load_hosts())
        usable = list_usable_models("host", found, kind)
    except Problem as problem:
        kind = problem  # type: ignore[assignment]  # either is what a HostOverview takes
    return HostOverview(
        "host", found, kind, usable, catalog.find_trial_model(), [*servers], None, has_cluster_file=False
    )


@pytest.mark.parametrize(
    ("name", "could_serve", "command"),
    [
        pytest.param("spark", "gpt-oss-120b", "medley serve gpt-oss-120b", id="a Spark"),
        pytest.param("rtx-4090", "gpt-oss-20b", "medley serve gpt-oss-20b", id="one GPU"),
        pytest.param("cpu-rack", TRY, f"medley serve {TRY}", id="no GPU"),
        pytest.param("pc-without-driver", TRY, "medley doctor", id="a GPU without a driver"),
    ],
)
def test_a_host_says_what_it_could_serve(name: str, could_serve: str, command: str) -> None:
    lines = dict(list_lines(recorded(name)))
    assert len(lines) == 5
    assert lines["could serve"].startswith(could_serve)
    assert lines["type"] == command
    assert "medley --help" in lines["help"]


def test_speeds_are_those_of_the_plan_and_only_where_one_is_predicted() -> None:
    assert re.match(r"gpt-oss-120b 3\d tok/s, ", dict(list_lines(recorded("spark")))["could serve"])
    assert "tok/s" not in dict(list_lines(recorded("cpu-rack")))["could serve"]


@pytest.mark.parametrize("name", ["rtx-stuck", "orin-r35-no-nvidia-smi", "thor-in-docker"])
def test_a_host_of_no_kind_gets_the_fix(name: str) -> None:
    sign = recorded(name)
    assert isinstance(sign.kind, Problem)
    assert dict(list_lines(sign))["fix"] == sign.kind.fix


def test_an_unknown_processor_is_a_sign_too() -> None:
    text = (RECORDED / "debian-vm.txt").read_text().replace("x86_64", "riscv64")
    lines = dict(list_lines(sign_of(facts.read_facts(transcript.parse_transcript(text)))))
    assert len(lines) == 5
    assert "riscv64-linux" in lines["host"]
    assert "hosts" in lines["fix"]


@pytest.mark.parametrize(("state", "command"), [("ready", "medley chat"), ("starting", "medley logs -f")])
def test_what_is_served_changes_the_command(state: str, command: str) -> None:
    server = Server(SERVER.url, "demo", 1, 1, "b", state=state)
    lines = dict(list_lines(recorded("spark", server)))
    assert lines["runs here"].startswith(f"demo at {SERVER.url}")
    assert lines["type"] == command


def test_bare_medley_prints_it(run: Run) -> None:
    with server_records.record_server(ServerSpec("demo", "demo"), "ready"):
        status, out, err = run()
    assert (status, err, len(out.splitlines())) == (0, "", 5)
    assert f"demo at {SERVER.url}; in no cluster" in out


def test_it_is_json_too_and_only_without_a_command(run: Run) -> None:
    status, out, _ = run("--json")
    table = json.loads(out)
    assert (status, table["serving"], table["role"]) == (0, [], None)
    assert table["next"].startswith("medley ")
    status, out, err = run("--json", "check")
    assert (status, out) == (2, "")
    assert "--json" in err


def test_it_fits_60_columns_of_a_terminal_without_utf_8() -> None:
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ.update(PYTHONIOENCODING="ascii", LC_ALL="C", TERM="dumb")
        command = f"stty cols 60; exec {sys.executable} -m medley"
        os.execv("/bin/sh", ("sh", "-c", command))
    shown = read_terminal(pid, terminal)
    assert shown.isascii()
    assert [line for line in shown.splitlines() if len(line) > 60] == []
    assert "medley --help" in shown


def test_it_imports_no_http_client_and_asks_no_hub() -> None:
    """A request or a heavy import would cost a fresh host more than the whole sign."""
    code = (
        "import sys, socket\n"
        "def refuse(*_): raise AssertionError('a connection')\n"
        "socket.socket.connect = refuse\n"
        "from medley.cli import sign\n"
        "sign.print_overview(as_json=False)\n"
        "print([name for name in ('httpx', 'psutil', 'ray', 'torch', 'numpy') if name in sys.modules])\n"
    )
    program = (sys.executable, "-c", code)
    done = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines()[-1] == "[]"


def test_few_models_are_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    planned: list[str] = []
    really = catalog._plan_entry  # noqa: SLF001 - what costs the time is counted

    def entry(name: str, *others: object) -> catalog.CatalogEntry:
        planned.append(name)
        return really(name, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(catalog, "_plan_entry", entry)
    recorded("spark")
    assert 3 <= len(planned) <= 8
    planned.clear()
    recorded("cpu-rack")
    assert planned == []
