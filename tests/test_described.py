"""What a server runs stands beside its note, and comes back as it was."""

import dataclasses
from pathlib import Path

import pytest

from medley import config, described, serving
from medley.described import Description
from medley.engine import Serving
from medley.engines import ENGINES
from medley.launch import BARE, launch
from medley.layout.shapes import Device, Layout, Link, Stage
from medley.plan import Plan
from medley.recipe import Order
from medley.weights import Weights

LAYOUT = Layout((Stage((Device("vm", 0, "cpu", 1 << 30, 20.0, 0.5),), 6),), Link(1000, 50.0))


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def made(*extra: str) -> Description:
    host = config.hosts()["cpu"]
    order = Order(Weights("demo", "/models/demo", None), Serving("/models/demo", "demo"), extra=extra)
    started = launch(
        ENGINES["vllm"], order.weights, host, Plan(), order.serving, tools=BARE, environ={}, extra=extra
    )
    return described.description(order, started, LAYOUT)


def test_it_stands_there_while_its_server_runs() -> None:
    with described.kept(8123, made()):
        assert described.of(8123) == made()
    assert described.of(8123) is None
    assert list(serving.folder().glob("*")) == []


def test_a_server_of_which_nothing_is_known_leaves_nothing() -> None:
    with described.kept(8123, None):
        assert described.of(8123) is None


@pytest.mark.parametrize("text", ["", "{}", '{"engine": "other"}', "[1]"])
def test_what_another_medley_wrote_is_not_known(text: str) -> None:
    with described.kept(8123, made()):
        (serving.folder() / "8123.what").write_text(text)
        assert described.of(8123) is None


@pytest.mark.parametrize("extra", [("--api-key", "sk-mine"), ("--api-key=sk-mine",)])
def test_a_users_own_key_goes_no_further(extra: tuple[str, ...]) -> None:
    found = made(*extra)
    assert "sk-mine" not in str(dataclasses.asdict(found))
    assert "API-KEY" in " ".join(found.argv)
