import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable

import pytest

from medley.cli import GROUPS, OTHER_TOOLS_VERBS, VERBS
from tests.problems import assert_problem, problem_in

Run = Callable[..., tuple[int, str, str]]
pytestmark = pytest.mark.usefixtures("asked_once")


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(run: Run, verb: str) -> None:
    status, out, err = run(*verb.split(), "--help")
    assert (status, err) == (0, "")
    assert f"\n    medley {verb}" in out.partition("Examples:")[2]


@pytest.mark.parametrize("words", ["", *VERBS])
def test_help_fits_80_columns(run: Run, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    _, out, _ = run(*words.split(), "--help")
    assert [line for line in out.splitlines() if len(line) > 80] == []
    assert "\n\nUsage:\n" in out


@pytest.mark.parametrize("words", ["", *VERBS])
def test_help_has_nothing_of_its_library_s(run: Run, words: str) -> None:
    _, out, _ = run(*words.split(), "--help")
    assert (
        re.findall(r":(?:str|int)\b|:\[\d|:\{|help-all|[Dd]efault is|default: .*default|SWITCHES", out) == []
    )
    assert [line for line in out.splitlines() if line.count("default") > 1] == []


def test_options_are_in_groups(run: Run) -> None:
    _, out, _ = run("serve", "--help")
    titles = re.findall(r"(?m)^([A-Z][a-z ]+):$", out.partition("Usage:")[2])
    assert titles == ["Goal", "Placement", "Engine", "Container", "Model code", "Server", "Output"]


def test_help_of_medley_shows_its_verbs(run: Run) -> None:
    status, out, _ = run("--help")
    assert status == 0
    assert all(f"\n    {verb} " in out for verb in VERBS if " " not in verb)


def test_each_verb_is_in_one_group_and_its_line_is_short() -> None:
    grouped = [verb for verbs in GROUPS.values() for verb in verbs.split()]
    assert sorted(grouped) == sorted(verb for verb in VERBS if " " not in verb)
    assert [line for line in VERBS.values() if len(line) > 60] == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("serve", "missing argument MODEL", id="nothing to serve"),
        pytest.param("plan", "usage: medley plan [OPTIONS] MODEL\n", id="nothing to plan"),
        pytest.param(
            "serve demo --port abc", "option --port must be a number, not 'abc'", id="a word for a number"
        ),
        pytest.param(
            "serve demo --prot 1", "unknown option --prot; did you mean --port?", id="nearly a switch"
        ),
        pytest.param(
            "serve demo --max-num-seqs 9", "flags of the engine come after --", id="an engine's flag"
        ),
        pytest.param("serve demo --max-model-len 9", "did you mean --context?", id="an engine's name"),
        pytest.param("plan demo --tensor-parallel-size=2", "did you mean --tp?", id="with a value"),
        pytest.param("serve demo -p 9000", "unknown option -p; did you mean --port?", id="a short option"),
        pytest.param("models ls", "try:   medley models", id="a list of models"),
        pytest.param("env rm x", "try:   medley env clean", id="an environment to remove"),
        pytest.param("upgrade", "see:   docs/how-to/upgrade.md", id="no verb upgrades"),
        pytest.param("sreve demo", "unknown command 'sreve'; did you mean 'serve'?", id="a verb misspelt"),
        pytest.param("env bild", "try:   medley env build", id="a subcommand misspelt"),
        pytest.param("please stop", "unknown command 'please'", id="a word before a verb"),
        pytest.param("dwon up", "try:   medley down", id="a misspelt verb before another"),
        pytest.param("env show clean", "unknown command 'show'", id="a word before a subcommand"),
        pytest.param("help stpo", "try:   medley help stop", id="help of a verb misspelt"),
        pytest.param("sevre demo", "try:   medley serve demo", id="a verb misspelt keeps its words"),
        pytest.param("restart", "did you mean 'serve' or 'up'?", id="a word of other programs"),
        pytest.param("link setup --mtu 9", "not '9'", id="an MTU out of range"),
        pytest.param(
            "chat --max-tokens 0 x",
            "--max-tokens must be a number from 1 to 1000000, not '0'",
            id="out of range",
        ),
        pytest.param(
            "facts --json --transcript", "options --transcript and --json exclude each other", id="exclusive"
        ),
        pytest.param("env lock x", "option -r/--requirement is mandatory", id="an option that must be there"),
        pytest.param(
            "run demo --json x.py", "option --json needs --dry-run", id="an option without its other"
        ),
        pytest.param("serve demo --for speed", "must be one of latency, throughput, context", id="of a set"),
        pytest.param("logs --follow=yes", "option --follow does not take an argument", id="a value too many"),
        pytest.param("logs -n 1 -n 2", "option -n already given", id="twice"),
        pytest.param("logs -n", "option -n requires an argument", id="no value"),
        pytest.param("plan demo --svg x.png", "must be a file NAME.svg, not 'x.png'", id="no picture"),
        pytest.param(
            "bench --html x.txt", "option --html must be a file NAME.html, not 'x.txt'", id="no page"
        ),
        pytest.param("pull", "missing argument MODEL", id="nothing to pull"),
        pytest.param("batch demo in.jsonl", "missing argument OUT", id="the third of three"),
        pytest.param("pull demo more", "unexpected argument 'more'", id="one too many"),
    ],
)
def test_wrong_usage_is_said_on_stderr_and_exits_2(run: Run, words: str, said: str) -> None:
    status, out, err = run(*words.split())
    assert (status, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) <= 3


@pytest.mark.parametrize(
    ("word", "meant"),
    [
        ("ps", "'status'"),
        ("list", "'models'"),
        ("ls", "'models'"),
        ("rm", "'models rm'"),
        ("show", "'plan' or 'models'"),
        ("start", "'serve' or 'up'"),
        ("exec", "'run'"),
        ("apply", "'up' or 'serve'"),
        ("ask", "'chat'"),
        ("kill", "'stop'"),
        ("version", "'--version'"),
    ],
)
def test_other_programs_words_are_refused_with_the_verb_here(run: Run, word: str, meant: str) -> None:
    status, out, err = run(word, "demo")
    assert (status, out) == (2, "")
    first, *more = err.splitlines()
    assert first == f"medley: unknown command '{word}'; did you mean {meant}?"
    assert more == [f"  try:   medley {meant.split(chr(39))[1]}"]


def test_every_verb_that_is_proposed_is_one() -> None:
    proposed = {verb for verbs in OTHER_TOOLS_VERBS.values() for verb in verbs.split(", ")}
    assert proposed <= {*VERBS, "--version"}
    assert not set(OTHER_TOOLS_VERBS) & set(VERBS)


def test_at_most_32_verbs() -> None:
    assert len([verb for verb in VERBS if " " not in verb]) <= 32


def test_a_model_without_a_script_is_for_serve_and_chat(run: Run) -> None:
    status, _, err = run("run", "demo")
    assert status == 1
    assert "missing argument SCRIPT.py" in err
    assert "medley serve demo" in err
    assert "medley chat" in err


@pytest.mark.parametrize("words", [(), ("serve",), ("env", "build")])
def test_the_version_is_medley_s_own(run: Run, words: tuple[str, ...]) -> None:
    said = run(*words, "--version")
    assert said == run(*words, "-V")
    assert said[1].startswith("medley 0.")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        pytest.param("serve dem", "fix:   medley serve demo", id="an unknown model"),
        pytest.param("chat x --url http://127.0.0.1:9/v1", "cause: Connection refused\n", id="no server"),
        pytest.param("serve demo 8000", "serve takes one model", id="a flag without its dashes"),
        pytest.param(
            "serve demo --port FREE --gpus 0 --kind cpu",
            "--gpus 0 is not available",
            id="a GPU that is not there",
        ),
        pytest.param(
            "serve demo --port FREE --kind toaster",
            "there is no kind of host 'toaster'",
            id="an unknown kind",
        ),
        pytest.param(
            "serve demo --port FREE --kind cpu --env nowhere",
            "no engine environment",
            id="an unknown environment",
        ),
        pytest.param("serve demo --port 0 --kind cpu", "port 0 does not exist", id="no port"),
        pytest.param("env clean vllm-cpu --all", "exclude each other", id="one and all"),
        pytest.param("env clean nope", "no engine environment 'nope'", id="no such environment"),
        pytest.param("link test", "either the other host or --serve", id="no end of the wire"),
        pytest.param("link setup --address 10.0.0.1/24", "needs a link", id="no link"),
    ],
)
def test_a_problem_is_said_on_stderr_and_exits_1(run: Run, free_port: int, words: str, said: str) -> None:
    status, out, err = run(*words.replace("FREE", str(free_port)).split())
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


def test_a_small_v_is_the_version_too(run: Run) -> None:
    assert run("-v") == run("-V")


def test_check_counts_the_tables_and_names_their_folders(run: Run) -> None:
    status, out, _ = run("check")
    _, *folders, counts = out.splitlines()
    assert status == 0
    assert counts.endswith(" tables, 0 wrong")
    told = json.loads(run("check", "--json")[1])
    assert [line.split("  ")[1] for line in folders] == told["folders"]
    assert set(told["tables"].values()) == {None}


def test_a_dry_run_prints_one_command_and_starts_nothing(run: Run) -> None:
    status, out, err = run("serve", "demo", "--dry-run", "--kind", "cpu", "--", "--max-model-len", "99")
    assert status == 0
    (line,) = out.splitlines()
    assert line.endswith("--enforce-eager --max-model-len 99")
    assert "KV cache 0.02 GiB on each rank: 4 streams of 2048 tokens need no more" in err


def test_light_verbs_import_nothing_heavy() -> None:
    code = (
        "import sys; sys.argv = ['medley', '--help']; from medley.__main__ import main; main();"
        "heavy = {'ray', 'torch', 'vllm', 'pydantic', 'httpx', 'huggingface_hub', 'rich'} & set(sys.modules);"
        "sys.exit(', '.join(heavy) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_has_left_costs_no_line_on_stderr() -> None:
    """As in `medley --version | true`, where what is printed leaves at the end of the program only."""
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as stdout:
        done = subprocess.run(
            [sys.executable, "-m", "medley", "--version"],
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=60,
        )
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, "")


def test_a_flag_with_which_the_engine_answers_nonsense_starts_nothing(run: Run) -> None:
    flags = ("--", "--kv-cache-dtype", "int8_per_token_head")
    status, _, err = run("serve", "demo", "--dry-run", "--kind", "cpu", *flags)
    assert status == 1
    assert_problem(problem_in(err), "--kv-cache-dtype int8_per_token_head", cause="answers nonsense")


def test_a_head_that_is_an_ipv6_address_is_a_problem_that_says_so(run: Run) -> None:
    """It proposed `medley join fd00`."""
    status, _, err = run("join", "fd00:1::6")
    assert status == 1
    assert_problem(problem_in(err), "fd00:1::6 is an IPv6 address", fix="medley join 192.168.1.10")
