"""`medley chat` and `medley status` while a server of this host begins."""

from pathlib import Path

import pytest

from medley import serving
from medley.cli import Verb
from medley.cli.chat import ChatVerb
from medley.cli.cluster import StatusVerb
from medley.cli.server import LogsVerb, StopVerb
from medley.errors import Problem
from tests.problems import raises_problem

NOBODY = "http://127.0.0.1:9/v1"


@pytest.fixture(autouse=True)
def state(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.delenv("MEDLEY_URL", raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("state", "what"),
    [
        pytest.param("starting", "demo is not ready yet: starting", id="it begins"),
        pytest.param("ready", f"no server answers at {NOBODY}", id="it was ready, and does not answer"),
    ],
)
def test_it_says_how_the_server_is(state: str, what: str) -> None:
    with serving.note_server(NOBODY, "demo", 9, state=state), pytest.raises(Problem) as caught:
        ChatVerb.run(["medley chat", "Hello"], exit=False)
    assert (caught.value.what, caught.value.cause) == (what, "Connection refused")


@pytest.mark.parametrize(
    ("state", "said"),
    [("starting", f"serving demo at {NOBODY} (starting)\n"), ("ready", f"serving demo at {NOBODY}\n")],
)
def test_so_does_status(state: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with serving.note_server(NOBODY, "demo", 9, state=state):
        StatusVerb.run(["medley status"], exit=False)
    assert capsys.readouterr().out.endswith(said)


@pytest.mark.parametrize(
    ("verb", "word", "fix"),
    [
        pytest.param(StopVerb, "demo", "medley stop --port 9", id="a model that is served"),
        pytest.param(StopVerb, "other", "medley stop", id="a model that is not"),
        pytest.param(LogsVerb, "demo", "medley logs", id="no host without a cluster"),
    ],
)
def test_a_model_is_no_host_and_no_port(verb: type[Verb], word: str, fix: str) -> None:
    name = "stop" if verb is StopVerb else "logs"
    with serving.note_server(NOBODY, "demo", 9, state="ready"), raises_problem(word, fix=fix):
        verb.run([f"medley {name}", word], exit=False)
