"""What a server runs stands beside its note, and comes back as it was."""

import json
import os
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from medley import config, storage
from medley.engine.launch import LaunchOrder, build_launch
from medley.engine.server_spec import ServerSpec
from medley.model.resolve import Weights
from medley.planner import Device, HostLink, Layout, Stage
from medley.planner.plan import Plan
from medley.serving import port_claim, server_description, server_records
from medley.serving.server_description import Description
from tests.problems import raises_problem

LAYOUT = Layout((Stage((Device("vm", 0, "cpu", 1 << 30, 20.0, 0.5),), 6),), HostLink(1000, 50.0))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    return tmp_path


def made(*extra: str) -> Description:
    host = config.load_hosts()["cpu"]
    order = LaunchOrder(
        Weights("demo", "/models/demo", None), ServerSpec("/models/demo", "demo"), engine_flags=extra
    )
    started = build_launch(order, Plan(), host)
    return server_description.build_description(order, started, LAYOUT)


def test_it_stands_there_while_its_server_runs() -> None:
    with server_description.store_description(8123, made()):
        assert server_description.read_description(8123) == made()
    assert server_description.read_description(8123) is None
    assert list(server_records.get_records_folder().glob("*")) == []


def test_a_description_without_a_command_is_not_known() -> None:
    with server_description.store_description(8123, made().replace(argv=())):
        assert server_description.read_description(8123) is None


@pytest.mark.parametrize("text", ["", "{}", '{"engine": "other"}', "[1]"])
def test_what_another_medley_wrote_is_not_known(text: str) -> None:
    with server_description.store_description(8123, made()):
        (server_records.get_records_folder() / "8123.what").write_text(text)
        assert server_description.read_description(8123) is None


@pytest.mark.parametrize("extra", [("--api-key", "sk-mine"), ("--api-key=sk-mine",)])
def test_a_users_own_key_goes_no_further(extra: tuple[str, ...]) -> None:
    found = made(*extra)
    assert "sk-mine" not in str(found.to_table())
    assert "API-KEY" in " ".join(found.argv)


def test_a_note_lasts_as_long_as_its_server() -> None:
    assert server_records.find_newest_server() is None
    with server_records.record_server(ServerSpec("a", "a", port=1)):
        found = server_records.find_newest_server()
        assert found is not None
        assert (found.url, found.model) == ("http://127.0.0.1:1/v1", "a")
    assert server_records.find_newest_server() is None


def test_the_note_of_a_process_that_is_gone_does_not_count(state: Path) -> None:
    with server_records.record_server(ServerSpec("a", "a", port=1)):
        dead = {"url": "http://127.0.0.1:2/v1", "model": "b", "pid": 2**22 + 1}
        (state / "serving" / "2.json").write_text(json.dumps(dead))
        found = server_records.find_newest_server()
    assert found is not None
    assert found.model == "a"


@pytest.mark.parametrize("url", ["", "http://127.0.0.1/v1", "http://127.0.0.1:x/v1", "1:123456"])
def test_a_record_whose_url_has_no_port_is_damaged(url: str, state: Path) -> None:
    with server_records.record_server(ServerSpec("a", "a", port=1)):
        file = state / "serving" / "1.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"url": url}))
        assert server_records.list_servers() == []


def test_a_record_that_cannot_be_read_leaves_the_others(state: Path) -> None:
    with server_records.record_server(ServerSpec("a", "a", port=1)):
        (state / "serving" / "2.json").mkdir()
        (state / "serving" / "3.json").symlink_to("3.json")
        assert [each.model for each in server_records.list_servers()] == ["a"]
        with raises_problem("2.json cannot be read", cause="a folder"):
            port_claim.require_unused_port(2)


def test_a_port_is_taken_before_its_server_is_recorded() -> None:
    """Two starts at once each found no record of the other, and two engines ran."""

    def claim(port: int) -> AbstractContextManager[None]:
        return port_claim.claim_port("demo", "127.0.0.1", port)

    lock = server_records.get_records_folder() / "1.lock"
    with (
        storage.lock_file(lock),
        raises_problem("port 1 ", fix=("medley stop --port 1", "--port 2")),
        claim(1),
    ):
        pass
    with claim(1):
        found = server_records.find_newest_server()
        assert found
        assert (found.model, found.state, found.url) == ("demo", "preparing", "http://127.0.0.1:1/v1")
        with raises_problem("port 1 ", cause="demo", fix="medley stop --port 1"), claim(1):
            pass
        with claim(2):
            pass
    assert server_records.find_newest_server() is None


def test_a_port_of_another_serve_is_a_problem() -> None:
    port_claim.require_unused_port(1)
    with server_records.record_server(ServerSpec("a", "a", port=1)):
        with raises_problem(
            "port 1 ", cause=f"process {os.getpid()} serves a ", fix=("medley stop --port 1", "--port 2")
        ):
            port_claim.require_unused_port(1)
        port_claim.require_unused_port(2)
