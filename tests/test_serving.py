import json
import os
from pathlib import Path

import pytest

from medley import serving
from medley.problem import Problem


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def test_a_note_lasts_as_long_as_its_server() -> None:
    assert serving.newest() is None
    with serving.noted("http://127.0.0.1:1/v1", "a", 1):
        found = serving.newest()
        assert found is not None
        assert (found.url, found.model) == ("http://127.0.0.1:1/v1", "a")
    assert serving.newest() is None


def test_the_note_of_a_process_that_is_gone_does_not_count(state: Path) -> None:
    with serving.noted("http://127.0.0.1:1/v1", "a", 1):
        dead = {"url": "http://127.0.0.1:2/v1", "model": "b", "pid": 2**22 + 1}
        (state / "serving" / "2.json").write_text(json.dumps(dead))
        found = serving.newest()
    assert found is not None
    assert found.model == "a"


def test_a_port_of_another_serve_is_a_problem() -> None:
    serving.require_none(1)
    with serving.noted("http://127.0.0.1:1/v1", "a", 1):
        with pytest.raises(Problem, match="taken by another medley serve") as caught:
            serving.require_none(1)
        serving.require_none(2)
    assert "--port 2" in caught.value.fix


def test_a_log_keeps_lines_as_they_come_and_the_log_before_it(state: Path) -> None:
    path = state / "logs" / "serve.log"
    for text in ("old", "new"):
        with serving.log(path) as keep:
            keep(text)
            assert path.read_text() == f"{text}\n"
    assert (path.with_name("serve.log.1")).read_text() == "old\n"


def test_a_disk_that_is_full_costs_lines_and_not_the_server(tmp_path: Path) -> None:
    """/dev/full says what a full disk does; the log's writer ended the server with a traceback."""
    (tmp_path / "logs").mkdir()
    log = tmp_path / "logs" / "serve-8000.log"
    with serving.log(log) as keep:
        keep("first")
        os.dup2(os.open("/dev/full", os.O_WRONLY), handle_of(log))
        keep("lost")
    assert log.read_text() == "first\n"


def handle_of(path: Path) -> int:
    links = Path("/proc/self/fd")
    return next(int(each.name) for each in links.iterdir() if each.exists() and each.samefile(path))
