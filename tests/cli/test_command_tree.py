"""The tree of what can be typed is that of the verbs themselves."""

import re
import shutil
import subprocess
import sys

import pytest

from medley.cli import VERBS, Medley, command_tree
from medley.cli.command_tree import FILE_VALUES, HOST_VALUES, NO_VALUES, Switch, VerbEntry, WordValues
from medley.cli.info import CompletionVerb
from medley.network import ports
from tests.problems import raises_problem

KNOWN = {
    "FILE": FILE_VALUES,
    "HOST": HOST_VALUES,
    "HEAD": HOST_VALUES,
    "KIND": WordValues(("spark", "thor")),
    "ENV": WordValues(("vllm-cpu",)) | FILE_VALUES,
    "MODEL": WordValues(("demo",)) | FILE_VALUES,
}
TREE = command_tree.read_tree(Medley, (), KNOWN)


def at(words: str) -> command_tree.VerbEntry:
    return next(verb for verb in TREE.walk() if " ".join(verb.path) == words)


def switch(words: str, name: str) -> command_tree.Switch:
    return next(switch for switch in at(words).switches if name in switch.names)


def test_every_verb_is_in_it_once() -> None:
    paths = [verb.path for verb in TREE.walk()]
    assert {" ".join(path) for path in paths if path} == set(VERBS)
    assert len(paths) == len(set(paths))
    assert {verb.name for verb in at("link").verbs} == {"setup", "show", "test", "watch"}


def test_all_say_what_they_are() -> None:
    for verb in TREE.walk():
        assert verb.description, verb.path
        assert all(switch.help_text for switch in verb.switches), verb.path
        assert verb.usages


@pytest.mark.parametrize(
    ("words", "name", "offer"),
    [
        pytest.param("serve", "--engine", WordValues(("vllm", "sglang")), id="a closed set"),
        pytest.param("serve", "--kind", WordValues(("spark", "thor")), id="a kind of host"),
        pytest.param("up", "--without", HOST_VALUES, id="a host"),
        pytest.param("up", "--cluster", FILE_VALUES, id="a file"),
        pytest.param("serve", "--env", WordValues(("vllm-cpu",), has_files=True), id="a name or a place"),
        pytest.param("serve", "--port", NO_VALUES, id="a number"),
    ],
)
def test_a_value_is_offered(words: str, name: str, offer: WordValues) -> None:
    assert switch(words, name).values == offer


@pytest.mark.parametrize(
    ("words", "offer"),
    [
        pytest.param("status", NO_VALUES, id="no words"),
        pytest.param("ray-worker", HOST_VALUES, id="its head"),
        pytest.param("serve", WordValues(("demo",), has_files=True), id="a model"),
        pytest.param("env check", WordValues(("vllm-cpu",), has_files=True), id="an environment"),
        pytest.param("ports", WordValues(ports.ROLES), id="parts of a cluster"),
        pytest.param("service remove", WordValues(("head", "worker", "serve")), id="services"),
        pytest.param("completion", WordValues(("bash", "zsh", "fish", "man")), id="shells"),
    ],
)
def test_a_word_is_offered(words: str, offer: WordValues) -> None:
    assert at(words).argument_values == offer


def test_a_switch_is_as_it_is_typed() -> None:
    lines = switch("logs", "--lines")
    assert lines.names == ("-n", "--lines")
    assert lines.argument == "N"
    assert switch("logs", "--without").is_repeatable
    assert switch("serve", "--dry-run").argument is None


def test_an_unknown_shell_is_a_problem() -> None:
    with raises_problem("tcsh", cause="bash, zsh, fish, man", fix="medley completion --help"):
        CompletionVerb.run(["medley completion", "tcsh"], exit=False)


@pytest.mark.parametrize("what", ["bash", "zsh", "fish", "man"])
def test_it_is_printed(what: str, capsys: pytest.CaptureFixture[str]) -> None:
    CompletionVerb.run(["medley completion", what], exit=False)
    said = capsys.readouterr().out
    assert "collective" in said
    assert "vllm-cpu" in said or what == "man"


def test_plumbum_s_own_is_not_offered() -> None:
    said = subprocess.run(
        [sys.executable, "-m", "medley", "serve", "--help"], capture_output=True, text=True, check=True
    )
    assert "--completions" not in said.stdout


ODD = VerbEntry(
    ("odd",),
    "Begins with nothing.",
    details="\n.not a request\n'nor this: C:\\x …\n\nExamples:\n    medley odd -x\n\n",
    usages=("medley odd [OPTIONS]",),
    switches=(Switch(("-n", "--dry-run"), "start nothing", "N"),),
)


def page(verb: VerbEntry = TREE) -> str:
    return command_tree.format_manual_page(verb, "0.1.0")


def test_every_verb_and_switch_is_there() -> None:
    text = page()
    for verb in TREE.walk():
        name = " ".join(verb.path).replace("-", r"\-")
        assert not name or f'.SS "medley {name}"\n' in text
        for switch in verb.switches:
            assert rf"\fB{', '.join(switch.names)}".replace("-", r"\-") in text


def test_text_is_no_request() -> None:
    lines = page(VerbEntry((), "All.", verbs=(ODD,))).splitlines()
    assert r"\&.not a request" in lines
    assert r"\&'nor this: C:\ex \[u2026]" in lines
    start = lines.index(".nf")
    assert lines[start : start + 3] == [".nf", r"    medley odd \-x", ".fi"]
    assert lines[lines.index(r"\fB\-n, \-\-dry\-run N\fR") - 1] == ".TP"


def test_only_requests_that_a_manual_page_has() -> None:
    """Where nobody can render it, its shape is what can be told."""
    text = page()
    requests = set(re.findall(r"(?m)^[.'](\w*)", text))
    assert requests == {"TH", "SH", "SS", "PP", "TP", "br", "nf", "fi"}
    assert text.isascii()
    assert re.findall(r"(?m)^\.SH (.*)", text)[:4] == ["NAME", "SYNOPSIS", "DESCRIPTION", "COMMANDS"]
    assert text.count("\n.nf\n") == text.count("\n.fi\n")


def test_troff_renders_it() -> None:
    program = shutil.which("groff")
    if program is None:
        pytest.skip("there is no groff")
    said = subprocess.run(
        [program, "-man", "-ww", "-Tutf8", "-P-c"],
        input=page(),
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    # Of itself it may miss a file: Nix's sandbox has no /etc/groff.
    assert [line for line in said.stderr.splitlines() if "<standard input>" in line] == []
    plain = re.sub(r".\x08", "", said.stdout)
    assert "medley collective-test" in plain
    assert "    medley serve smollm2    serve a small model that talks" in plain
