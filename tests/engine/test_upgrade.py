"""A detached server is replaced in earnest: one that cannot answer is rolled back, a good one is taken."""

import os
import pty
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley import process, storage
from medley.cluster import events, units
from medley.cluster.unit_file import SERVER_UNIT_PREFIX, Unit
from medley.command import Command
from medley.engine.server_spec import ServerSpec
from medley.environment import virtualenv
from medley.process import ProcessResult
from medley.progress import SILENT
from medley.serving import server_description, server_end, server_records, upgrade
from tests.problems import raises_problem
from tests.servers import chat
from tests.waiting import wait_for

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("small_engine")]


@pytest.fixture(autouse=True)
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_UNITS", "own")
    monkeypatch.chdir(tmp_path)
    yield
    server_end.end_servers(None, SILENT)


def serve(port: int, *words: str) -> ProcessResult:
    command = (sys.executable, "-m", "medley", "serve", "demo", "--port", str(port), *words)
    return process.run(Command(command), limit_s=500)


def detach_in_closed_terminal(port: int, name: str) -> None:
    """Type it in a window that is closed while the model loads."""
    words = (sys.executable, "-m", "medley", "serve", "demo", "--port", str(port), "--detach", "--restart")
    pid, master = pty.fork()
    if pid == 0:
        os.execv(sys.executable, words)
    try:
        wait_for("its unit runs", lambda: (state := units.read_state(name)) and state.running)
    finally:
        os.close(master)
    wait_for(
        "the server is ready",
        lambda: server_records.is_ready(port),
        300,
        state=lambda: units.read_last_log_lines(name)[-9:],
    )
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def answer(port: int) -> str:
    said = chat(f"http://127.0.0.1:{port}/v1")
    return str(said["choices"][0]["message"]["content"])


def broken(folder: Path, port: int) -> Path:
    """An environment of the user's own, whose engine ends at once."""
    found = server_description.read_description(port)
    assert found
    (folder / "bin").mkdir(parents=True)
    (folder / "bin/python").symlink_to(found.programs_folder / "python")
    (folder / "bin/vllm").write_text(
        "#!/bin/sh\necho 'RuntimeError: no kernel for this device' >&2\nexit 3\n"
    )
    (folder / "bin/vllm").chmod(0o755)
    return folder


def test_a_server_is_replaced_or_rolled_back(free_port: int, tmp_path: Path) -> None:
    none = serve(free_port, "--replace")
    assert none.status == 1
    assert any("there is no server to replace" in line for line in none.lines), none.lines
    name = f"medley-serve-{free_port}"
    detach_in_closed_terminal(free_port, name)
    first = answer(free_port)
    old = units.read_unit(name)

    bad = serve(free_port, "--replace", "--env", str(broken(tmp_path / "bad", free_port)))
    assert bad.status == 1
    text = "\n".join(bad.lines)
    assert "the new server did not answer; vllm" in text
    assert "there is no module" in text  # the first that the bare Python lacks
    assert answer(free_port) == first
    assert units.read_unit(name) == old

    good = serve(free_port, "--replace", "--context", "512")
    assert good.status == 0, good.lines
    assert "s without an answer" in good.lines[-1]
    assert answer(free_port) == first
    assert "--context" in units.read_unit(name).command.argv
    back, taken = [each.text for each in events.read_events() if each.kind == "upgrade"]
    assert "serves again" in back
    assert "→ vllm" in taken
    assert len(server_records.list_servers()) == 1


def test_the_old_one_keeps_its_environment_where_the_lock_has_changed(
    free_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its command alone would build and take that of the new lock."""
    found = virtualenv.find_environment("vllm-cpu")
    assert found
    name, command = (
        f"{SERVER_UNIT_PREFIX}{free_port}",
        Command(("env", "medley", "serve", "demo", "--", "--seed", "1")),
    )
    what = server_description.Description(
        "vllm", "demo", "demo", (str(found.programs / "vllm"), "serve"), {}, {}
    )
    units.start_unit(Unit(name, "a test", command.replace(argv=("sleep", "600"))))
    storage.write_text(units.get_units_folder() / f"{name}.json", Unit(name, "a test", command).to_json())
    listens = ServerSpec("demo", "demo", port=free_port)
    with (
        server_description.store_description(free_port, what),
        server_records.record_server(listens) as report,
    ):
        with raises_problem(f"port {free_port}", fix=f"medley serve MODEL --port {free_port} --detach"):
            upgrade.find_running_server(free_port)
        report("ready")
        assert upgrade.find_running_server(free_port).unit.command == command
        assert upgrade.list_environments_in_use() == {found.path}
        monkeypatch.setattr(virtualenv, "is_current", lambda _: False)
        argv = upgrade.find_running_server(free_port).unit.command.argv
        assert argv == ("env", "medley", "serve", "--env", str(found.path), "demo", "--", "--seed", "1")
    units.stop_unit(name)
