"""The tree of what can be typed is that of the verbs themselves."""

import subprocess
import sys

import pytest

from medley import completion, ports
from medley.cli import VERBS, Medley
from medley.cli.completion import Completion, verbs
from medley.completion import FILES, HOSTS, NOTHING, Offer
from medley.problem import Problem

KNOWN = {
    "FILE": FILES,
    "HOST": HOSTS,
    "HEAD": HOSTS,
    "KIND": Offer(("spark", "thor")),
    "ENV": Offer(("vllm-cpu",)) | FILES,
    "MODEL": Offer(("demo",)) | FILES,
}
TREE = verbs(Medley, (), KNOWN)


def at(words: str) -> completion.Verb:
    return next(verb for verb in TREE.all() if " ".join(verb.path) == words)


def switch(words: str, name: str) -> completion.Switch:
    return next(switch for switch in at(words).switches if name in switch.names)


def test_every_verb_is_in_it_once() -> None:
    paths = [verb.path for verb in TREE.all()]
    assert {path[0] for path in paths if path} == set(VERBS)
    assert len(paths) == len(set(paths))
    assert {verb.name for verb in at("link").verbs} == {"setup", "show", "test", "watch"}


def test_all_say_what_they_are() -> None:
    for verb in TREE.all():
        assert verb.about, verb.path
        assert all(switch.about for switch in verb.switches), verb.path
        assert verb.usage


@pytest.mark.parametrize(
    ("words", "name", "offer"),
    [
        pytest.param("serve", "--engine", Offer(("vllm", "sglang")), id="a closed set"),
        pytest.param("serve", "--kind", Offer(("spark", "thor")), id="a kind of host"),
        pytest.param("up", "--without", HOSTS, id="a host"),
        pytest.param("up", "--cluster", FILES, id="a file"),
        pytest.param("serve", "--env", Offer(("vllm-cpu",), files=True), id="a name or a place"),
        pytest.param("serve", "--port", NOTHING, id="a number"),
    ],
)
def test_a_value_is_offered(words: str, name: str, offer: Offer) -> None:
    assert switch(words, name).offer == offer


@pytest.mark.parametrize(
    ("words", "offer"),
    [
        pytest.param("status", NOTHING, id="no words"),
        pytest.param("ray-worker", HOSTS, id="its head"),
        pytest.param("serve", Offer(("demo",), files=True), id="a model"),
        pytest.param("env check", Offer(("vllm-cpu",), files=True), id="an environment"),
        pytest.param("ports", Offer(ports.ROLES), id="parts of a cluster"),
        pytest.param("service remove", Offer(("head", "worker", "serve")), id="services"),
        pytest.param("completion", Offer(("bash", "zsh", "fish", "man")), id="shells"),
    ],
)
def test_a_word_is_offered(words: str, offer: Offer) -> None:
    assert at(words).offer == offer


def test_a_switch_is_as_it_is_typed() -> None:
    lines = switch("logs", "--lines")
    assert lines.names == ("-n", "--lines")
    assert lines.argument == "N"
    assert switch("logs", "--without").repeats
    assert switch("serve", "--dry-run").argument is None


def test_an_unknown_shell_is_a_problem() -> None:
    with pytest.raises(Problem, match="no completion for tcsh"):
        Completion.run(["medley completion", "tcsh"], exit=False)


@pytest.mark.parametrize("what", ["bash", "zsh", "fish", "man"])
def test_it_is_printed(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    Completion.run(["medley completion", what], exit=False)
    said = capsys.readouterr().out
    assert "collective" in said
    assert "vllm-cpu" in said or what == "man"


def test_plumbum_s_own_is_not_offered() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "medley", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "--completions" not in said.stdout
