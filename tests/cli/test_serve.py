"""`medley serve --dry-run` for hosts that one does not own, and what cannot be asked of it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from medley import config
from medley.cli.plan import PlanVerb
from medley.cli.serve import (
    ServeVerb,
    announce_server,
    build_server_unit,
    hide_engine_output,
    wait_until_ready,
)
from medley.cluster import events, units
from medley.cluster.unit_file import Unit
from medley.command import Command
from medley.engine.server_spec import ServerSpec
from medley.errors import Problem
from medley.model import demo
from medley.progress import SilentProgress
from tests.model.test_chat_format import QWEN
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[1] / "host" / "recorded"
PAIR = ("--from", str(HOSTS / "spark-pair-a.txt"), "--from", str(HOSTS / "spark-pair-b.txt"))


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cluster of this machine's own."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))


def serve(*words: str) -> int:
    _, status = ServeVerb.run(["medley serve", *words], exit=False)
    return int(status)


@pytest.mark.parametrize("where", [("--hosts", "spark:2,thor:2"), PAIR], ids=["imagined", "recorded"])
@pytest.mark.parametrize("wishes", [(), ("--pp", "2", "--tp", "1", "--concurrency", "8")], ids=str)
def test_serve_does_what_plan_says(
    where: tuple[str, ...], wishes: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    assert serve("gpt-oss-120b", "--dry-run", "--json", *where, *wishes) == 0
    does = json.loads(capsys.readouterr().out)
    _, status = PlanVerb.run(["medley plan", "gpt-oss-120b", "--json", *where, *wishes], exit=False)
    assert status == 0
    planned = json.loads(capsys.readouterr().out)["steps"]
    assert does == planned
    assert len(does) in {3, 6}, "one pipeline of two hosts, or two of them"


@pytest.mark.parametrize(
    ("words", "loads"),
    [
        pytest.param((), True, id="a lock"),
        pytest.param(("--env", "vllm-cuda"), True, id="a lock by name"),
        pytest.param(("--env", "OWN"), False, id="a virtualenv"),
        pytest.param(("--image", "mine"), False, id="an image"),
    ],
)
def test_the_fast_loader_is_for_locks_in_plan_and_serve(
    words: tuple[str, ...], *, loads: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "own"
    (own / "bin").mkdir(parents=True)
    (own / "bin" / "python").symlink_to(sys.executable)
    (own / "bin" / "vllm").touch()
    words = tuple(str(own) if word == "OWN" else word for word in words)
    assert serve("gpt-oss-20b", "--dry-run", "--hosts", "spark:1", *words) == 0
    assert ("--load-format fastsafetensors" in capsys.readouterr().out) == loads
    words = ("gpt-oss-20b", "--hosts", "spark:1", "--commands", *words)
    _, status = PlanVerb.run(["medley plan", *words], exit=False)
    assert status == 0
    assert ("--load-format fastsafetensors" in capsys.readouterr().out) == loads


def test_each_command_stands_on_its_line_and_what_to_type_beside_it(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert serve("gpt-oss-120b", "--dry-run", "--hosts", "spark:2") == 0
    said = capsys.readouterr()
    assert [" ray start " in line or " vllm serve " in line for line in said.out.splitlines()] == [True] * 3
    assert "on spark-2: ssh spark-1 cat " in said.err
    assert "medley: spark-1: --tensor-parallel-size 2: " in said.err


DRY, KINDS = "medley serve MODEL --dry-run", "--hosts spark:2,thor:2"


@pytest.mark.parametrize(
    ("words", "name", "fix"),
    [
        pytest.param(("--hosts", "spark:2"), "--hosts spark:2", f"{DRY} --hosts spark:2", id="not owned"),
        pytest.param(PAIR, "--from FILE", f"{DRY} --from FILE", id="recorded"),
        pytest.param(("--hosts", "", "--dry-run"), "--hosts  ", KINDS, id="a variable that is not set"),
        pytest.param(("--hosts", "²", "--dry-run"), "--hosts ² ", KINDS, id="a digit, but no number"),
        pytest.param(("--hosts", "0", "--dry-run"), "--hosts 0 ", "--hosts 2", id="no hosts"),
        pytest.param(("--hosts", "65", "--dry-run"), "--hosts 65 ", "--hosts 2", id="too many"),
        pytest.param(
            ("--hosts", "2", "--dry-run"), "", "--dry-run --launcher mp --hosts spark:2", id="no cluster"
        ),
        pytest.param(("--hosts", "toaster:2", "--dry-run"), "--hosts toaster:2 ", KINDS, id="no such kind"),
        pytest.param(("--context", "4000000", "--dry-run"), "--context 4000000 ", "", id="too long"),
    ],
)
def test_problems(words: tuple[str, ...], name: str, fix: str) -> None:
    with raises_problem(name, fix=fix):
        serve("gpt-oss-120b", *words)


def test_a_context_of_the_maker_is_served_with_the_engines_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ("qwen3.8-27b-fp8", "--hosts", "spark:2", "--context", "900000", "--dry-run", "--json")
    assert serve(*words) == 0
    *_, last = json.loads(capsys.readouterr().out)
    assert last["env"]["VLLM_ALLOW_LONG_MAX_MODEL_LEN"] == "1"
    assert "--hf-overrides" in last["argv"]
    assert last["argv"][last["argv"].index("--max-model-len") + 1] == "900000"


def test_a_longer_context_names_the_limit_and_the_risk(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("qwen3-8b", "--hosts", "spark:1", "--context", "80000", "--dry-run")
    shorter = "medley serve qwen3-8b --hosts spark:1 --dry-run --context 40960"
    with raises_problem("--context 80000", cause="40,960", fix=shorter):
        serve(*words)
    allowed = (
        "VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 medley serve qwen3-8b --hosts spark:1 --context 80000 --dry-run"
    )
    with raises_problem("--context 80000", fix=allowed):
        serve(*words)
    monkeypatch.setenv("VLLM_ALLOW_LONG_MAX_MODEL_LEN", "1")
    assert serve(*words) == 0


def test_a_split_of_ones_own(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("VLLM_PP_LAYER_PARTITION", "30,6")
    assert serve("gpt-oss-120b", "--dry-run", "--json", "--hosts", "spark:2", "--pp", "2", "--tp", "1") == 0
    *_, last = json.loads(capsys.readouterr().out)
    assert last["env"]["VLLM_PP_LAYER_PARTITION"] == "30,6"


def test_a_variable_that_the_lock_ignores_is_refused_before_it_is_built(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path))
    monkeypatch.setenv("VLLM_ATTENTION_BACKEND", "FLASHINFER")
    with raises_problem("0.32.0", "VLLM_ATTENTION_BACKEND", cause="0.15", fix="unset VLLM_ATTENTION_BACKEND"):
        serve("demo", "--dry-run", "--kind", "cpu")


def test_a_plan_that_refuses_is_no_cage(capsys: pytest.CaptureFixture[str]) -> None:
    """235B do not fit one host, by the plan; who wants to try it may."""
    words = ("qwen3-235b-a22b-instruct-2507", "--hosts", "cpu:1", "--dry-run")
    with raises_problem(
        "1 stream", "8,192", cause="336.3 GiB", fix="medley plan qwen3-235b-a22b-instruct-2507 --hosts cpu:5"
    ):
        serve(*words)
    assert serve(*words, "--unplanned") == 0
    said = capsys.readouterr().out
    assert " serve Qwen/Qwen3-235B-A22B-Instruct-2507 " in said
    assert "--max-num-seqs" not in said


def test_a_model_that_cannot_be_planned_is_served_as_it_is_cut(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its config.json says nothing that a plan needs."""
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    (tmp_path / "model.safetensors").touch()
    assert serve(str(tmp_path), "--dry-run", "--kind", "cpu") == 0
    said = capsys.readouterr()
    assert "medley: not planned: " in said.err
    assert "--max-num-seqs" not in said.out
    assert "--kv-cache-memory-bytes" in said.out, "else vLLM would take 92 % of the memory"


@pytest.mark.parametrize(
    ("engine", "expected"),
    [
        ("vllm", ["--max-model-len 262144", "--kv-cache-dtype fp8", "--max-num-seqs 100"]),
        ("sglang", ["--context-length 262144", "--kv-cache-dtype fp8_e4m3", "--max-running-requests 100"]),
    ],
)
def test_options_reach_an_engine_whose_model_cannot_be_planned(
    engine: str, expected: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    words = (
        "org/unknown",
        "--context",
        "262144",
        "--kv-type",
        "fp8",
        "--concurrency",
        "100",
        "--for",
        "throughput",
    )
    assert serve(*words, "--engine", engine, "--hosts", "spark:1", "--dry-run") == 0
    told = capsys.readouterr()
    assert all(each in told.out for each in expected)
    assert "medley: not planned: " in told.err
    assert "--for throughput" in told.err


@pytest.mark.parametrize("where", [(), ("--hosts", "spark:1"), ("--hosts", "spark:2")], ids=str)
def test_a_folder_without_weights_is_refused_dry_too(where: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "whisper"}')
    with raises_problem(str(tmp_path), cause="*.safetensors", fix=f"medley plan {tmp_path}"):
        serve(str(tmp_path), "--dry-run", *where)


def test_without_ray_what_each_host_runs_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    serve("qwen3-32b", "--launcher", "mp", "--hosts", "spark:2", "--pp", "2", "--dry-run", "--json")
    first, second = json.loads(capsys.readouterr().out)
    assert first["type"].startswith("medley serve qwen3-32b --hosts 2 --launcher mp")
    assert "medley join " in second["type"]
    assert "--headless" in second["argv"]


def test_sglang_is_told_in_its_own_words(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--engine", "sglang", "--hosts", "spark:2", "--tp", "2", "--launcher", "mp", "--kv-type", "fp8")
    serve("gpt-oss-20b", *words, "--dry-run", "--json")
    first, second = json.loads(capsys.readouterr().out)
    assert first["argv"][:3] == ["sglang", "serve", "openai/gpt-oss-20b"]
    for step in (first, second):
        argv = " ".join(step["argv"])
        assert "--kv-cache-dtype fp8_e4m3" in argv
        assert "--reasoning-parser gpt-oss" in argv
    assert "--engine sglang --kv-type fp8" in first["type"]


@pytest.fixture
def with_tools(tmp_path: Path) -> Path:
    """A folder of a model that no table knows, whose template shows tools."""
    made = config.load_models()["demo"].made
    assert made
    demo.write_model(made, tmp_path)
    (tmp_path / "chat_template.jinja").write_text(QWEN)
    return tmp_path


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_model_s_own_template_gives_the_tool_parser(
    with_tools: Path, engine: str, capsys: pytest.CaptureFixture[str]
) -> None:
    serve(str(with_tools), "--engine", engine, "--hosts", "spark:1", "--dry-run", "--json")
    told = json.loads(capsys.readouterr().out)
    assert told["argv"][told["argv"].index("--tool-call-parser") + 1] == "hermes"
    assert ("--enable-auto-tool-choice" in told["argv"]) is (engine == "vllm")
    assert "chat_template.jinja writes <tool_call>" in json.dumps(told["why"])


def test_a_parser_of_the_user_s_is_checked(with_tools: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = (str(with_tools), "--hosts", "spark:1", "--dry-run", "--json", "--")
    with raises_problem("--tool-call-parser hermess", cause="not one of its values"):
        serve(*words, "--tool-call-parser", "hermess")
    capsys.readouterr()
    serve(*words, "--tool-call-parser", "mistral")
    out, err = capsys.readouterr()
    assert "--tool-call-parser mistral contradicts the model" in err
    argv = json.loads(out)["argv"]
    assert (argv.count("--tool-call-parser"), "--enable-auto-tool-choice" in argv) == (1, True)


def test_a_named_origin_is_allowed_and_needs_a_key(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("demo", "--hosts", "spark:1", "--dry-run", "--json", "--allow-origin")
    serve(*words, "https://chat.example")
    told = json.loads(capsys.readouterr().out)
    assert "--allowed-origins" not in told["argv"], "the edge answers for them"
    with raises_problem("https://chat.example/x", fix="--allow-origin https://chat.example:3000"):
        serve(*words, "https://chat.example/x")
    with raises_problem("--allow-origin needs an API key"):
        serve(*words, "https://chat.example", "--api-key", "none")


def fail(lines: int) -> None:
    with hide_engine_output() as told:
        for nth in range(lines):
            told.error(f"line {nth}")
        raise Problem("the engine ended", cause="out of memory", fix="less")


def test_the_engines_lines_are_shown_only_where_it_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with hide_engine_output() as told:
        told.error("INFO 11-24 08:00:00 [x.py:1] loading")
        told.detail("a reason")
        told.say("a stage")
    assert capsys.readouterr().err == "medley: a stage\n"
    with raises_problem("the engine ended", cause="out of memory", fix="less"):
        fail(30)
    assert capsys.readouterr().err.splitlines() == [f"  | line {nth}" for nth in range(10, 30)]


class Lines(SilentProgress):
    def __init__(self) -> None:
        self.seen: list[str] = []

    def moved(self, text: str) -> None:
        self.seen.append(text)


@pytest.mark.parametrize(
    ("address", "elsewhere"), [("127.0.0.1", False), ("10.0.0.1", False), ("0.0.0.0", True), ("::", True)]
)
def test_the_address_for_other_hosts_is_shown_where_it_listens_on_all(
    address: str, *, elsewhere: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    announce_server(ServerSpec("/m", "demo", address, 8000), "hi", 31.0, as_json=False)
    said = capsys.readouterr().out
    assert ("\nfrom other hosts: http://" in said) == elsewhere
    assert '\n    medley chat "Hello"\n' in said
    assert "0.0.0.0" not in said


def test_the_request_to_paste_has_the_key_in_no_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each user of the host can read the words of curl."""
    (tmp_path / "a key").write_text("sk-0123456789abcdef01234567")
    server = ServerSpec("/m", "demo", "127.0.0.1", 8000, key=tmp_path / "a key")
    announce_server(server, "hi", 31.0, as_json=False)
    typed = next(line for line in capsys.readouterr().out.splitlines() if "curl" in line)
    stub = 'curl() { echo "words: $*"; cat; }'
    done = subprocess.run(["bash", "-c", f"{stub}\n{typed}"], capture_output=True, text=True, check=True)
    words, sent = done.stdout.splitlines()
    assert "sk-" not in words
    assert sent == "Authorization: Bearer sk-0123456789abcdef01234567"


FAILS_LATER = """\
echo 'medley: vm alone: it fits: 2.3 of 18.9 GiB'
echo '1.20 of 2.50 GB, 40 MB/s'
sleep 1
printf 'medley: port 8123 is in use\\n  cause: process 7 listens there\\n  fix:   medley stop --port 8123\\n'
exit 1
"""


def test_a_detached_start_shows_its_downloads_and_its_problem_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.setenv("MEDLEY_UNITS", "own")
    name, watch = "medley-serve-8123", Lines()
    (tmp_path / "serve.sh").write_text(FAILS_LATER)
    units.start_unit(Unit(name, "serve demo", Command(("sh", str(tmp_path / "serve.sh")))))
    try:
        with raises_problem("port 8123", cause="process 7", fix="medley stop --port 8123"):
            wait_until_ready(name, 8123, watch)
    finally:
        units.stop_unit(name)
    assert "1.20 of 2.50 GB, 40 MB/s" in watch.seen
    said = capsys.readouterr().err
    assert "medley: vm alone: it fits" in said
    assert "8123" not in said, "the Problem has it"


@pytest.mark.parametrize(
    "typed", [("--on-event", "curl -d x ntfy.sh/tulips"), ("--on-event=curl ntfy.sh/tulips",)]
)
def test_the_text_of_a_command_for_events_is_in_no_unit(
    typed: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setattr(sys, "argv", ["medley", "serve", "demo", "--detach", *typed, "--", "--seed", "1"])
    file = events.write_command_file(typed[-1].removeprefix("--on-event="))
    monkeypatch.setenv(events.COMMAND_VARIABLE, str(file))
    unit = build_server_unit(8000, restart=False, drain_s=30)
    assert "tulips" not in unit.to_json()
    assert unit.title == f"serve --on-event {file} demo -- --seed 1"
    assert unit.command.env[events.COMMAND_VARIABLE] == str(file)
    assert "tulips" in file.read_text()
