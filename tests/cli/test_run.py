"""`medley run` with a real script in a virtualenv of one's own, which needs no engine to print something."""

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from medley.cli.run import RunVerb
from medley.errors import Problem
from tests.servers import alive

Typed = Callable[..., tuple[int, str, str]]
TELLS = """
import json, os, sys
plan = json.load(open(os.environ["MEDLEY_PLAN"]))
print(json.dumps({"words": sys.argv[1:], "plan": plan}))
print("a note", file=sys.stderr)
sys.exit(int(os.environ.get("CODE", "0")))
"""
WAITS = """
import subprocess, time
child = subprocess.Popen(["sleep", "600"])
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the demo model is made, once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def environment(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What --env takes for an environment with vLLM."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_CACHE", str(cache))
    programs = tmp_path / "env" / "bin"
    programs.mkdir(parents=True)
    (programs / "python").symlink_to(sys.executable)
    (programs / "vllm").touch()
    return programs.parent


def command(environment: Path, text: str, *words: str) -> list[str]:
    return [sys.executable, "-m", "medley", *verb(environment, text, *words)]


def verb(environment: Path, text: str, *words: str, switches: tuple[str, ...] = ()) -> list[str]:
    script = environment.parent / "script.py"
    script.write_text(text)
    return ["run", "--kind", "cpu", "--env", str(environment), *switches, "demo", str(script), *words]


@pytest.fixture
def typed(run: Callable[..., tuple[int, str, str]], monkeypatch: pytest.MonkeyPatch) -> Typed:
    """Run the verb with TELLS in this process."""

    def typed(
        environment: Path, *words: str, switches: tuple[str, ...] = (), **more: str
    ) -> tuple[int, str, str]:
        for name, value in more.items():
            monkeypatch.setenv(name, value)
        return run(*verb(environment, TELLS, *words, switches=switches))

    return typed


def test_a_script_has_its_words_its_plan_and_its_own_stdout(environment: Path, cache: Path) -> None:
    words = ("--limit", "5", "--", "--help")
    run = subprocess.run(
        command(environment, TELLS, *words),
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    (line,) = run.stdout.splitlines()
    said = json.loads(line)
    assert said["words"] == list(words)
    assert said["plan"]["arguments"]["model"].startswith(f"{cache}/models/demo-")
    assert said["plan"]["arguments"]["enforce_eager"] is True
    assert "a note\n" in run.stderr
    assert "medley: $ env -u PYTHONPATH" in run.stderr
    log = (environment.parent / "state/logs/run-script.log").read_text()
    assert {line, "a note"} <= {each.partition(" ")[2] for each in log.splitlines()}


def test_its_exit_code_is_ours(environment: Path, typed: Typed) -> None:
    status, _, err = typed(environment, CODE="7")
    assert status == 7
    assert "medley: script.py ended with exit code 7\n  cause: a note\n" in err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ending_it_ends_what_it_started(environment: Path, number: signal.Signals) -> None:
    run = subprocess.Popen(
        command(environment, WAITS),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with run:
        assert run.stdout
        child = int(run.stdout.readline())
        run.send_signal(number)
        try:
            assert run.wait(30) == 128 + number
        finally:
            run.kill()
    assert not alive(child)


def test_what_is_shown_can_be_run(environment: Path, typed: Typed) -> None:
    status, out, _ = typed(environment, "x", switches=("--dry-run", "--json"))
    assert status == 0
    told = json.loads(out)
    assert "enforce_eager=True" in [each["what"] for each in told["why"]]
    ran = subprocess.run(told["command"], shell=True, check=True, capture_output=True, text=True)
    said = json.loads(ran.stdout)
    assert said == {"words": ["x"], "plan": told["plan"]}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(("demo",), "missing argument SCRIPT.py", id="none"),
        pytest.param(("demo", "nowhere.py"), "nowhere.py cannot be read", id="not there"),
        pytest.param(("demo", str(Path(__file__).parent)), "cannot be read", id="a folder"),
        pytest.param(("demo", str(Path(__file__).parents[2] / "README.md")), "is not a Python", id="another"),
        pytest.param(
            ("--launcher", "mp", "--hosts", "2", "--dry-run", "demo", __file__), "before its hosts", id="mp"
        ),
        pytest.param(("--hosts", "spark:2", "demo", __file__), "--hosts spark:2 is not valid", id="imagined"),
        pytest.param(
            ("--engine", "sglang", "--launcher", "mp", "--hosts", "2", "demo", __file__),
            "a script with SGLang runs on one host",
            id="SGLang on two",
        ),
    ],
)
def test_problems(
    words: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path))
    with pytest.raises(Problem) as caught:
        RunVerb.run(["medley run", *words], exit=False)
    assert problem in caught.value.what


REPLICA = """
import json, os, sys, time
plan = json.load(open(os.environ["MEDLEY_PLAN"]))
sys.stdout.write(" ".join((str(plan["replica"]), os.environ["SHOWN"], sys.argv[1])) + "\\n")
sys.stdout.flush()
if sys.argv[1] == "fail" and plan["replica"] == 1:
    sys.exit(5)
time.sleep(600 if sys.argv[1] == "fail" else 0)
"""


@pytest.mark.parametrize(("word", "status"), [("well", 0), ("fail", 5)])
def test_replicas_run_side_by_side_and_end_together(tmp_path: Path, word: str, status: int) -> None:
    from medley.environment import payload

    (tmp_path / "script.py").write_text(REPLICA)
    plans = [tmp_path / f"{nth}.json" for nth in range(2)]
    for nth, plan in enumerate(plans):
        plan.write_text(json.dumps({"replica": nth, "variables": {"SHOWN": f"gpu{nth}"}}))
    program = Path(payload.__file__).parent / "replicas.py"
    began = time.monotonic()
    run = subprocess.run(
        [sys.executable, str(program), *map(str, plans), "--", str(tmp_path / "script.py"), word],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert run.returncode == status, run.stderr
    said = run.stdout.splitlines()
    assert f"1 gpu1 {word}" in said
    assert f"0 gpu0 {word}" in said or word == "fail", "the other may be ended in the middle of a line"
    assert time.monotonic() - began < 40
