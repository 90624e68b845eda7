"""A real probe with an engine's Python: alike on the same host, and named once a quota holds it back."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from medley.cluster import device_probe
from medley.command import Command
from medley.environment import tools, virtualenv
from medley.host.kind import detect_host
from medley.planner import device_history
from tests.rack import cgroup
from tests.waiting import wait_for

pytestmark = pytest.mark.engine

PROBE = """
import sys
from medley.cluster import device_probe
from medley.command import Command
device_probe._MIN_PROBE_INTERVAL_S = 0
for each in device_probe.probe_devices(Command((sys.argv[1], "serve"))):
    print(each.what, each.cause, each.fix, sep="; ")
"""
GROUP = "probe"


@pytest.fixture
def group() -> Iterator[Path]:
    """A control group that goes before all others, so that a busy machine does not slow it."""
    if os.geteuid() != 0:
        pytest.skip("only root makes a control group")
    folder = cgroup.folders(os.getpid(), GROUP)[0]
    folder.mkdir()
    cgroup.limit(os.getpid(), GROUP, None)
    file, weight = ("cpu.weight", 10_000) if cgroup.version_2() else ("cpu.shares", 1 << 18)
    (folder / file).write_text(str(weight))
    try:
        yield folder / "cgroup.procs"
    finally:
        cgroup.remove(os.getpid(), GROUP)


def probed(state: Path, engine: Path, group: Path) -> tuple[str, float]:
    words = ["sh", "-c", f'echo $$ > {group}; exec "$@"', "sh", sys.executable, "-c", PROBE, str(engine)]
    env = {**os.environ, "MEDLEY_STATE": str(state)}
    began = time.monotonic()
    run = subprocess.run(words, env=env, capture_output=True, text=True, check=True, timeout=120)
    return run.stdout, time.monotonic() - began


def an_hour_before(record: device_history.ProbeRecord) -> dict[str, object]:
    """The same record as it would be had it been kept then."""
    when = datetime.fromisoformat(record.when) - timedelta(hours=1)
    return {**record.to_table(), "when": when.isoformat(timespec="seconds")}


def test_daily_it_waits_until_the_processes_are_quiet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setattr(device_probe, "_CHECK_INTERVAL_S", 0.5)
    _, sort = detect_host()
    found = virtualenv.find_environment(tools.choose_environment(sort, None))
    if found is None or sort.table.device != "cpu":
        pytest.skip("no engine environment was built, or its device is measured at start")
    said: list[str] = []
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        idle = device_probe.build_idle_check(lambda: [busy.pid])
        try:
            with device_probe.probe_daily(Command((str(found.programs / "vllm"),)), idle, said.append):
                time.sleep(4)  # eight looks, none of which finds it quiet
                assert device_history.read_history() == ()
                busy.send_signal(signal.SIGSTOP)
                wait_for("it has probed", device_history.read_history, 120)
        finally:
            busy.kill()
    assert said == []


def test_a_quota_is_named_with_figures_and_planned_with(
    tmp_path: Path, group: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    _, sort = detect_host()
    found = virtualenv.find_environment(tools.choose_environment(sort, None))
    if found is None:
        pytest.skip("no engine environment was built")
    engine = found.programs / "vllm"
    for _ in range(2):
        probed(tmp_path, engine, group)
    cgroup.limit(os.getpid(), GROUP, 0.2)
    if cpu := sort.table.device == "cpu":
        assert "its own past" not in probed(tmp_path, engine, group)[0]
        file = tmp_path / device_history.HISTORY_FILE
        file.write_text(
            "".join(f"{json.dumps(an_hour_before(each))}\n" for each in device_history.read_history())
        )
    named, _ = probed(tmp_path, engine, group)
    first, second, *_, third = (each.devices[0] for each in device_history.read_history())
    assert len(device_history.read_history()) == (4 if cpu else 3)
    assert third.gb_s < 0.8 * min(first.gb_s, second.gb_s)
    assert f"{third.gb_s:.3g} GB/s" in named
    assert "is slower than its own past" in named
    measured = json.loads((tmp_path / "measured.json").read_text())
    assert measured["speeds"][0]["gb_s"] == third.gb_s
    answer = subprocess.run(
        [sys.executable, "-m", "medley", "doctor", "--json"],
        env=os.environ | {"MEDLEY_STATE": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "is slower than its own past" in answer.stdout
