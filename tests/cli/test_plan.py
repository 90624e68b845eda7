"""`medley plan` as it is typed."""

import contextlib
import fcntl
import json
import os
import pty
import re
import shlex
import struct
import subprocess
import sys
import termios
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from medley.cli.plan import PLAN_HINTS, PlanVerb
from tests.model.published import PUBLISHED
from tests.problems import raises_problem


def run(*words: str) -> int:
    _, status = PlanVerb.run(["medley plan", *words], exit=False)
    return int(status)


def test_it_prints_ranks_memory_reasons_and_what_was_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gpt-oss-120b", "--hosts", "spark:2") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "gpt-oss-120b on 2 hosts · tensor parallel 2"
    assert " tok/s per stream (" in said[2]
    assert [line.split()[0] for line in said if "█" in line] == ["spark-1", "spark-2"]
    assert said[said.index("Alternatives") + 2].split()[:2] == ["spark-1", "alone"]
    assert "  spark-1 $ medley serve gpt-oss-120b --hosts 2" in said
    assert "Why" not in said
    assert not any("VLLM" in line for line in said)
    assert said[-1] == PLAN_HINTS


def test_it_can_be_read_aloud_in_a_minute(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gpt-oss-120b", "--hosts", "spark:2") == 0
    said = capsys.readouterr().out
    assert "\x1b" not in said
    assert not any(line.endswith(" ") for line in said.splitlines())
    shown = on_terminal({"TERM": "dumb"}, 100).splitlines()
    assert len(shown) <= 26
    assert max(map(len, shown)) <= 100
    commands = (
        "medley init spark-1 spark-2 --head spark-1",
        "medley up",
        "medley serve gpt-oss-120b --hosts 2",
    )
    assert {f"spark-1 $ {each}" for each in commands} <= {line.strip() for line in shown}
    assert not any("ray-head" in line or "ray-worker" in line for line in shown), "one way to start"


@pytest.mark.parametrize(
    ("words", "comment"),
    [
        pytest.param(
            "qwen3-32b --hosts orin:2", 'for orin-1, orin-2: image = "default"', id="a kind's own image"
        ),
        pytest.param("qwen3-32b --hosts spark:2 --env mine --tp 2", ': env = "mine"', id="an environment"),
        pytest.param(
            "gpt-oss-120b --hosts spark:2 --engine sglang", 'cluster.toml: engine = "sglang"', id="an engine"
        ),
    ],
)
def test_what_up_needs_in_cluster_toml_is_shown(
    words: str, comment: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(*words.split()) == 0
    shown = capsys.readouterr().out.partition("Run it")[2]
    assert comment in shown


def test_reasons_and_commands_are_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("gpt-oss-120b", "--hosts", "spark:2")
    assert run(*words, "--why", "--commands") == 0
    said = capsys.readouterr().out
    assert run(*words, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    for each in told["why"]:
        assert f"\n  {each}\n" in said or each.startswith("predicted ")
    for each in told["rejected"]:
        assert f"\n  {each['what']}: {each['because']}\n" in said
    for each in told["steps"]:
        assert f"\non {each['host']}: {each['type']}\n" in said


@pytest.mark.parametrize(
    ("environment", "colored"),
    [
        pytest.param({"TERM": "xterm-256color"}, True, id="a terminal"),
        pytest.param({"TERM": "xterm-256color", "NO_COLOR": "1"}, False, id="NO_COLOR"),
        pytest.param({"TERM": "dumb"}, False, id="a terminal without colors"),
    ],
)
def test_color_on_a_terminal(environment: dict[str, str], colored: bool) -> None:  # noqa: FBT001
    said = on_terminal(environment, 80)
    assert bool(re.search(r"\x1b\[[0-9;]*\b(3|4|9|10)[0-9]", said)) == colored
    assert "gpt-oss-120b" in said
    plain = re.sub(r"\x1b\[[0-9;]*m", "", said).splitlines()
    assert max(len(line) for line in plain if "ray-worker" not in line) <= 80


def on_terminal(environment: dict[str, str], columns: int) -> str:
    """What plan prints to a terminal this wide."""
    leader, follower = pty.openpty()
    fcntl.ioctl(follower, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    env = {
        name: value for name, value in os.environ.items() if name not in {"NO_COLOR", "COLUMNS"}
    } | environment
    command = [sys.executable, "-m", "medley", "plan", "gpt-oss-120b", "--hosts", "spark:2"]
    read = b""
    with subprocess.Popen(command, stdout=follower, env=env) as running:
        os.close(follower)
        with contextlib.suppress(OSError):  # at its end
            while part := os.read(leader, 1 << 16):
                read += part
    os.close(leader)
    assert running.returncode == 0
    return read.decode()


def test_a_pasted_command_uses_the_home_folder_of_its_host(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "me and"))
    for name in ("MEDLEY_STATE", "MEDLEY_CACHE", "XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    words = ("gpt-oss-120b", "--hosts", "spark:2")
    assert run(*words, "--why", "--commands") == 0
    said = capsys.readouterr().out
    assert str(tmp_path) not in said
    assert run(*words, "--json") == 0
    *_, serve = json.loads(capsys.readouterr().out)["steps"]
    block = said.split(f"\non spark-1: {serve['type']}\n")[1].split("\n\n")[0]
    # As a shell on another host expands it: env and the program are replaced by what prints its words.
    other = "/home/o' ther"
    words_there = subprocess.run(
        ["/bin/sh", "-c", f"set -- {block}\nprintf '%s\\n' \"$@\""],
        env={"HOME": other},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.splitlines()
    here = str(tmp_path / "me and")
    expected = {f"{name}={value.replace(here, other)}" for name, value in serve["env"].items()}
    assert any(other in each for each in expected)
    assert expected <= set(words_there)
    assert words_there[-len(serve["argv"]) :] == [each.replace(here, other) for each in serve["argv"]]


def test_json_has_the_whole_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen3-4b-instruct-2507", "--hosts", "rtx-5090", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fit"]["short_bytes"] == 0
    assert said["layout"]["stages"][0]["devices"][0]["host"] == "rtx-5090-1"
    assert said["prediction"]["low"] < said["prediction"]["tokens_per_s"] < said["prediction"]["high"]


def test_what_is_forced_is_priced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen3-4b-instruct-2507", "--hosts", "spark,rtx", "--tp", "2") == 0
    said = capsys.readouterr().out
    assert said.splitlines()[0].endswith("on 2 hosts · tensor parallel 2")
    assert "\nwarning: " in said


@pytest.mark.parametrize(
    ("words", "name", "cause", "fix"),
    [
        pytest.param(
            ("qwen2.5-72b-instruct", "--hosts", "rtx-5090"),
            "1 stream of 8,192 tokens",
            "112.0 GiB short",
            "medley plan qwen2.5-72b-instruct --hosts rtx-5090:6",
            id="too large",
        ),
        pytest.param(
            ("qwen2.5-72b-instruct", "--hosts", "toaster"),
            "--hosts toaster ",
            "'toaster'",
            "--hosts spark:2,thor:2",
            id="no such kind",
        ),
        pytest.param(
            ("demo", "other"), "'other'", "--from", "medley plan MODEL --from FILE FILE", id="two models"
        ),
    ],
)
def test_problems(words: tuple[str, ...], name: str, cause: str, fix: str) -> None:
    with raises_problem(name, cause=cause, fix=fix):
        run(*words)


def test_this_host_plans_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo") == 0
    assert capsys.readouterr().out.startswith("demo on ")


@pytest.mark.parametrize(
    ("words", "streams"),
    [
        pytest.param((), 32, id="nobody says how many"),
        pytest.param(("--concurrency", "1"), 1, id="as typed"),
    ],
)
def test_throughput_is_of_many_streams(
    words: tuple[str, ...], streams: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("gpt-oss-120b", "--hosts", "thor:4", "--for", "throughput", "--json", *words) == 0
    told = json.loads(capsys.readouterr().out)["prediction"]
    assert told["tokens_per_s"] / told["per_stream"] == pytest.approx(streams)


def test_on_a_cpu_no_speed_is_predicted(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo", "--hosts", "cpu") == 0
    said = capsys.readouterr().out
    assert "no speed is predicted" in said
    assert "tok/s" not in said


def test_on_cpus_no_speed_is_priced(capsys: pytest.CaptureFixture[str]) -> None:
    """No percentage beside a plan that says that it predicts no speed."""
    assert run("demo", "--hosts", "cpu:2", "--pp", "2", "--why") == 0
    said = capsys.readouterr().out
    assert "the only layout that fits with --pp 2" in said
    assert "--pp 2, as asked: without it the plan takes cpu-1 alone" in said
    assert not re.search(r"\d%|tok/s", said)
    assert run("demo", "--hosts", "cpu") == 0
    assert run("demo", "--hosts", "cpu", "--why") == 0
    assert "cpu-1 alone: it fits: 2.4 of 106.2 GiB" in capsys.readouterr().out


def test_alternatives_that_are_cut_alike_name_their_hosts(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gpt-oss-120b", "--hosts", "spark:2,thor:1", "--for", "throughput") == 0
    said = capsys.readouterr().out.splitlines()
    rows = said[said.index("Alternatives") + 1 : said.index("Run it") - 1]
    names = [row.strip().partition("  ")[0] for row in rows]
    assert len(set(names)) == len(names)
    assert "2 stages of 19,17 layers on spark-1, spark-2" in names


def test_a_host_without_a_part_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gpt-oss-120b", "--hosts", "spark:2,thor:1") == 0
    assert "  not used    thor-1" in capsys.readouterr().out.splitlines()
    assert run("gpt-oss-120b", "--hosts", "spark:1,thor:1") == 0
    said = capsys.readouterr().out
    assert "  spark-1 alone            35.8 tok/s  about as fast\n" in said, "one host is not more complex"


def test_a_much_faster_build_is_proposed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen3.8-27b", "--hosts", "spark:1", "--concurrency", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    now = told["prediction"]["tokens_per_s"]
    fastest, other = told["builds"]
    assert fastest["type"] == "medley plan qwen3.8-27b-nvfp4 --hosts spark:1 --concurrency 2 --json"
    assert fastest["instead_of"] == now
    assert fastest["tokens_per_s"] > other["tokens_per_s"] >= 1.5 * now
    assert run("qwen3.8-27b", "--hosts", "spark:1", "--concurrency", "2") == 0
    said = capsys.readouterr().out
    rate = f"{fastest['tokens_per_s']:.1f} tok/s instead of {now:.1f}"
    assert f"\nFaster builds\n  qwen3.8-27b-nvfp4  {rate}  medley plan qwen3.8-27b-nvfp4 " in said
    assert run(*shlex.split(fastest["type"])[2:]) == 0
    assert json.loads(capsys.readouterr().out)["prediction"]["tokens_per_s"] == fastest["tokens_per_s"]


@pytest.mark.parametrize(
    "words",
    [
        pytest.param("qwen3.8-27b-nvfp4 --hosts spark:1", id="the smallest already"),
        pytest.param("qwen3.8-27b-fp8 --hosts spark:1", id="not so much faster"),
        pytest.param("qwen3-8b --hosts spark:1", id="no other build"),
        pytest.param("qwen3-4b-instruct-2507 --hosts cpu:1", id="no speed is predicted"),
    ],
)
def test_no_build_is_proposed(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*words.split(), "--json") == 0
    assert json.loads(capsys.readouterr().out)["builds"] == []


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        pytest.param("llama-3.3-70b-instruct --hosts spark:1,thor:1", True, id="medley knows no build"),
        pytest.param("qwen3.8-27b --hosts spark:1", False, id="it knows some"),
        pytest.param("gpt-oss-120b --hosts spark:2", False, id="it has 4 bits"),
        pytest.param("qwen3-4b-instruct-2507 --hosts cpu:1", False, id="no speed is predicted"),
    ],
)
def test_a_build_in_4_bits_is_worth_looking_for(
    words: str,
    proposed: bool,  # noqa: FBT001 - a table's cell
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run(*words.split()) == 0
    said = capsys.readouterr().out
    found = re.search(r"\n  a 4-bit build  about ([0-9.]+) tok/s instead of ([0-9.]+)  ", said)
    assert (found is not None) == proposed
    if found:
        assert float(found[1]) >= 1.5 * float(found[2])


def test_a_folder_with_a_config_alone_is_planned_and_the_estimate_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["qwen3-8b"].config))
    assert run(str(tmp_path), "--hosts", "spark:1", "--json") == 0
    told = capsys.readouterr().out
    (warning,) = json.loads(told)["warnings"]
    assert "estimate from config.json" in warning
    assert run(str(tmp_path), "--hosts", "spark:1") == 0
    assert f"warning: {warning.partition('. ')[0]}" in capsys.readouterr().out
    assert run("qwen3-8b", "--hosts", "spark:1", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["warnings"] == []
    near = json.loads(told)["prediction"]["tokens_per_s"]
    assert near == pytest.approx(known["prediction"]["tokens_per_s"], rel=0.01)


WORDS = ("qwen3-4b-instruct-2507", "--hosts", "rtx-5090")


def test_the_file_holds_the_plan_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    assert run(*WORDS, "--svg", str(picture)) == 0
    said = capsys.readouterr().out.splitlines()
    found = ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")
    texts = [each for text in found if (each := (text.text or "").replace("\xa0", " ").strip())]
    assert said[0] == texts[0]
    assert said[2].split()[0] == texts[2].split()[0]
    assert f"medley plan {' '.join(WORDS)}" in texts


def test_json_beside_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "plan.svg").write_text("an older one")
    assert run(*WORDS, "--json", "--svg", str(tmp_path / "plan.svg")) == 0
    assert json.loads(capsys.readouterr().out)["model"] == WORDS[0]
    assert (tmp_path / "plan.svg").read_text().startswith("<svg ")


def test_a_link_is_written_through(tmp_path: Path) -> None:
    (tmp_path / "link.svg").symlink_to(tmp_path / "plan.svg")
    assert run(*WORDS, "--svg", str(tmp_path / "link.svg")) == 0
    assert (tmp_path / "link.svg").is_symlink()
    assert (tmp_path / "plan.svg").is_file()


@pytest.mark.parametrize(
    ("name", "cause", "fix"),
    [
        pytest.param("absent/plan.svg", "/absent", "mkdir -p {}/absent", id="no folder"),
        pytest.param("file/plan.svg", "/file", "--svg plan.svg", id="a file for a folder"),
        pytest.param("folder", "not a file", "--svg plan.svg", id="a folder"),
        pytest.param("pipe", "not a file", "--svg plan.svg", id="a pipe, as a device"),
        pytest.param("", "not a file", "--svg plan.svg", id="no name"),
        pytest.param("x" * 300, "File name too long", "--svg plan.svg", id="too long"),
        pytest.param("/proc/plan.svg", "No such file", "--svg plan.svg", id="where not even root may write"),
    ],
)
def test_what_cannot_be_written(
    name: str, cause: str, fix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with raises_problem(name, cause=cause, fix=fix.format(tmp_path)):
        run(*WORDS, "--svg", name)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder", "pipe"]


def test_the_picture_in_the_documentation_is_what_its_command_draws(tmp_path: Path) -> None:
    shown = Path(__file__).parents[2] / "docs" / "plan.svg"
    command = "medley plan qwen3.5-122b-a10b --hosts spark:1,thor:2"
    assert (
        f"{command} --svg docs/plan.svg"
        in (shown.parent / "explanation" / "how-planning-works.md").read_text()
    )
    assert run(*command.split()[2:], "--svg", str(tmp_path / "plan.svg")) == 0
    assert (tmp_path / "plan.svg").read_text() == shown.read_text(), f"draw it again: {command} --svg {shown}"
    assert shown.stat().st_size < 40_000
