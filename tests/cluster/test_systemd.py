"""Services of a host, as text; what systemd makes of it is in tests/rack/test_service.py."""

import os
from pathlib import Path

import pytest

from medley.cluster import systemd
from medley.cluster.systemd import (
    Service,
    SystemdState,
    build_systemctl_command,
    get_unit_path,
    list_install_commands,
    list_service_names,
    parse_state,
    require_role,
    select_service_variables,
)
from medley.cluster.unit_file import Unit
from medley.command import Command
from tests.problems import raises_problem

HEAD = Service("head", ("--link", "eth0"), "ann", ("/opt/medley",), {"MEDLEY_CACHE": "/data"})


def lines(service: Service, *begins: str) -> list[str]:
    return [line for line in service.text.splitlines() if line.startswith(begins)]


def test_a_head_stays_and_ends_first_what_was_left_of_another() -> None:
    assert get_unit_path(HEAD.name, is_system=True) == Path("/etc/systemd/system/medley-head.service")
    assert lines(HEAD, "Description", "Type", "Exec", "User", "Environment", "After", "StartLimit") == [
        "Description=medley ray-head --link eth0",
        "After=network-online.target",
        "StartLimitIntervalSec=0",
        "User=ann",
        "Type=exec",
        "Environment=MEDLEY_CACHE=/data",
        "ExecStartPre=-/opt/medley ray-stop",
        "ExecStart=/opt/medley ray-head --stay --link eth0",
    ]


def test_a_worker_says_its_head() -> None:
    worker = HEAD.replace(role="worker", arguments=("spark-1",))
    assert lines(worker, "ExecStart=") == ["ExecStart=/opt/medley ray-worker --stay spark-1"]
    assert worker.name == "medley-worker"


@pytest.mark.parametrize(
    ("words", "name"),
    [
        pytest.param(("demo",), "medley-serve-8000", id="at the usual port"),
        pytest.param(("demo", "--port", "9000"), "medley-serve-9000", id="another"),
        pytest.param(("demo", "--port=9000"), "medley-serve-9000", id="as one word"),
        pytest.param(("demo", "--", "--port", "1"), "medley-serve-8000", id="the engine's own"),
        pytest.param(("demo", "--port"), "medley-serve-8000", id="cut off"),
    ],
)
def test_a_server_is_called_after_its_port(words: tuple[str, ...], name: str) -> None:
    served = HEAD.replace(role="serve", arguments=words)
    assert served.name == name
    assert lines(served, "Type", "After") == [
        "After=network-online.target medley-head.service medley-worker.service",
        "Type=exec",
    ]


@pytest.mark.parametrize(
    ("role", "words", "names"),
    [
        pytest.param("haed", (), ("'haed'",), id="no role"),
        pytest.param("worker", (), ("worker", "HEAD"), id="no head"),
        pytest.param("serve", ("--port", "9000"), ("server", "MODEL"), id="no model"),
    ],
)
def test_what_is_missing(role: str, words: tuple[str, ...], names: tuple[str, ...]) -> None:
    with raises_problem(*names):
        require_role(role, words)


def test_a_head_needs_no_words() -> None:
    assert require_role("head", ()) == "head"


@pytest.mark.parametrize(
    ("role", "found"),
    [
        pytest.param(None, ["medley-serve-8000", "medley-serve-9000", "medley-worker"], id="all"),
        pytest.param("worker", ["medley-worker"], id="a role"),
        pytest.param("serve", ["medley-serve-8000", "medley-serve-9000"], id="a role of several"),
        pytest.param("medley-serve-9000", ["medley-serve-9000"], id="a name"),
        pytest.param("head", [], id="none"),
    ],
)
def test_what_is_installed(tmp_path: Path, role: str | None, found: list[str]) -> None:
    for name in ("medley-worker", "medley-serve-8000", "medley-serve-9000", "other"):
        (tmp_path / f"{name}.service").touch()
    assert list_service_names(role, tmp_path) == found


def test_the_commands_of_an_install() -> None:
    assert [str(each) for each in list_install_commands("medley-head")] == [
        "systemctl --no-pager daemon-reload",
        "systemctl --no-pager enable --quiet medley-head.service",
        "systemctl --no-pager restart --no-block medley-head.service",
    ]


def test_what_it_has_of_the_environment_it_is_installed_from() -> None:
    ours = {
        "PATH": "/usr/local/bin:/bin",
        "MEDLEY_CACHE": "/data",
        "HF_HOME": "/hub",
        "XDG_CACHE_HOME": "/cache",
        "HUGGINGFACE_HUB_CACHE": "/hub/hub",
        "TRANSFORMERS_OFFLINE": "1",
    }
    others = {"HOME": "/root", "SUDO_USER": "ann", "XDG_RUNTIME_DIR": "/run/user/0", "SSH_AUTH_SOCK": "/x"}
    assert select_service_variables({**ours, **others}) == ours
    assert select_service_variables({"PATH": "/home/ann/games:/bin"}) == {"PATH": "/bin"}


RUNS = """\
MainPID=41
Result=success
NRestarts=2
ExecMainStatus=0
LoadState=loaded
ActiveState=active
SubState=running"""
WAITS = """\
MainPID=0
Result=exit-code
NRestarts=3
ExecMainStatus=1
LoadState=loaded
ActiveState=activating
SubState=auto-restart"""
GIVEN_UP = """\
MainPID=0
Result=start-limit-hit
NRestarts=4
ExecMainStatus=1
LoadState=loaded
ActiveState=failed
SubState=failed"""


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param(RUNS, SystemdState("active", "running", "success", 2, 41, 0), id="it runs"),
        pytest.param(
            WAITS, SystemdState("activating", "auto-restart", "exit-code", 3, None, 1), id="it waits"
        ),
        pytest.param(
            GIVEN_UP, SystemdState("failed", "failed", "start-limit-hit", 4, None, 1), id="given up"
        ),
        pytest.param("LoadState=not-found\nActiveState=inactive\nNRestarts=0", None, id="none of the name"),
        pytest.param("Failed to connect to bus: No medium found", None, id="no manager"),
        pytest.param(
            "LoadState=loaded\nNRestarts=[not set]",
            SystemdState("inactive", "dead", "success", 0, None, 0),
            id="an older one that says less",
        ),
    ],
)
def test_a_state(said: str, expected: SystemdState | None) -> None:
    assert parse_state(said) == expected


def words(*commands: object) -> list[str]:
    """Without the variable that a test's own login may lack."""
    return [str(each).partition("systemctl --user --no-pager ")[2] for each in commands]


def test_the_commands_of_a_start() -> None:
    assert words(*list_install_commands("medley-x", is_system=False)) == [
        "daemon-reload",
        "enable --quiet medley-x.service",
        "restart medley-x.service",
    ]


def test_the_systems_own_manager() -> None:
    assert build_systemctl_command("start", "x", is_system=True).argv == (
        "systemctl",
        "--no-pager",
        "start",
        "x",
    )


def test_others_cannot_read_a_user_s_own_unit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "systemctl").write_text("#!/bin/sh\n")
    (tmp_path / "systemctl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    command = Command(("/bin/true",), {"HF_ENDPOINT": "https://ann:tulips@mirror.lan"})
    systemd.start_unit(Unit("medley-x", "t", command))
    assert (tmp_path / "systemd/user/medley-x.service").stat().st_mode & 0o777 == 0o600
