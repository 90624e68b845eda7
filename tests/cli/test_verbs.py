import subprocess
import sys
from collections.abc import Callable

import pytest

from medley.cli import GROUPS, VERBS

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(run: Run, verb: str) -> None:
    status, out, err = run(*verb.split(), "--help")
    assert (status, err) == (0, "")
    assert f"\n    medley {verb}" in out.partition("Examples:")[2]


@pytest.mark.parametrize("words", VERBS)
def test_help_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """No example is broken in two, and no switch stands there without its name."""
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(*words.split(), "--help")
    help_, _, switches = out.partition("\nUsage:\n")
    assert help_.endswith("\n\n")
    examples = help_.partition("Examples:\n")[2].rstrip("\n")
    assert all(line.startswith("    ") for line in examples.splitlines())
    assert not [line for line in help_.splitlines() if line.startswith(" ") and line[1] != " "]
    assert "\n     N" not in switches
    assert "said again" not in switches


def test_bare_medley_shows_its_verbs(run: Run) -> None:
    status, out, _ = run()
    assert status == 0
    assert all(f"\n    {verb} " in out for verb in VERBS if " " not in verb)


def test_each_verb_is_in_one_group_and_its_line_is_short() -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs.split()]
    assert sorted(grouped) == sorted(verb for verb in VERBS if " " not in verb)
    assert [line for line in VERBS.values() if len(line) > 60] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("serve", "a word is missing", id="nothing to serve"),
        pytest.param("plan", "usage: medley plan [SWITCHES] MODEL\n", id="nothing to plan"),
        pytest.param("serve demo --port abc", "not 'abc'", id="a word for a number"),
        pytest.param("serve demo --prot 1", "Unknown switch --prot", id="a switch misspelt"),
        pytest.param("serve demo --prot 1", "try:   --port", id="nearly a switch"),
        pytest.param("serve demo --max-model-len 9", "flags come after --", id="an engine's flag"),
        pytest.param("sreve demo", "there is no verb 'sreve'", id="a verb misspelt"),
        pytest.param("env bild", "try:   medley env build", id="a subcommand misspelt"),
        pytest.param("please stop", "there is no verb 'please'", id="a word before a verb"),
        pytest.param("dwon up", "try:   medley down", id="a misspelt verb before another"),
        pytest.param("env show clean", "there is no verb 'show'", id="a word before a subcommand"),
        pytest.param("help stpo", "try:   medley stop", id="help of a verb misspelt"),
        pytest.param("link setup --mtu 9", "not '9'", id="an MTU out of range"),
        pytest.param("ask --max-tokens 0 x", "not '0'", id="out of range"),
        pytest.param("facts --json --transcript", "--transcript", id="two that exclude each other"),
    ],
)
def test_wrong_usage_is_said_on_stderr_and_exits_2(run: Run, words: str, said: str) -> None:
    status, out, err = run(*words.split())
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) <= 3


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("serve dem", "fix:   medley serve demo", id="an unknown model"),
        pytest.param("ask x --url http://127.0.0.1:9/v1", "cause: Connection refused\n", id="no server"),
        pytest.param("serve demo 8000", "one model too many", id="a flag without its dashes"),
        pytest.param(
            "serve demo --gpus 0 --kind cpu", "--gpus 0 cannot be had", id="a GPU that is not there"
        ),
        pytest.param("serve demo --kind toaster", "there is no kind of host 'toaster'", id="an unknown kind"),
        pytest.param(
            "serve demo --kind cpu --env nowhere", "no engine environment", id="an unknown environment"
        ),
        pytest.param("serve demo --port 0 --kind cpu", "port 0 does not exist", id="no port"),
        pytest.param("env clean vllm-cpu --all", "cannot both be meant", id="one and all"),
        pytest.param("env clean nope", "no engine environment 'nope'", id="no such environment"),
        pytest.param("ask", "there is nothing to ask", id="nothing to ask"),
        pytest.param("link test", "either the other host or --serve", id="no end of the wire"),
        pytest.param("link setup --address 10.0.0.1/24", "needs a link", id="no link"),
    ],
)
def test_a_problem_is_said_on_stderr_and_exits_1(run: Run, words: str, said: str) -> None:
    status, out, err = run(*words.split())
    assert (status, out) == (1, "")
    assert err.startswith("medley: ")
    assert said in err
    assert "\n  cause: " in err
    assert "\n  fix:   " in err


@pytest.mark.parametrize("words", ["stop", "env build", "help", ""])
def test_help_prints_what_a_verb_s_own_help_prints(run: Run, words: str) -> None:
    own = run(*words.split(), "--help")
    assert run("help", *words.split()) == own
    assert own[0] == 0


def test_version_says_where_tables_are(run: Run) -> None:
    status, out, _ = run("version")
    assert status == 0
    assert "tables are looked for in" in out


def test_check_counts(run: Run) -> None:
    assert run("check")[0] == 0


def test_a_dry_run_prints_one_command_and_starts_nothing(run: Run) -> None:
    status, out, err = run("serve", "demo", "--dry-run", "--kind", "cpu", "--", "--max-model-len", "99")
    assert status == 0
    (line,) = out.splitlines()
    assert line.endswith("--enforce-eager --max-model-len 99")
    assert "KV cache 0.19 GiB on each rank: 64 sequences of 2048 tokens need no more" in err


def test_light_verbs_import_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['medley', '--help']; from medley.__main__ import main; main();"
        "heavy = {'ray', 'torch', 'vllm', 'pydantic', 'httpx', 'huggingface_hub', 'rich'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
