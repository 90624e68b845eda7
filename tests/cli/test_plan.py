"""`medley plan` as it is typed."""

import json
import os
import shlex
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from medley.cli.plan import PlanVerb
from medley.errors import Problem
from tests.model.published import PUBLISHED


def run(*words: str) -> int:
    _, status = PlanVerb.run(["medley plan", *words], exit=False)
    return int(status)


def test_it_prints_ranks_memory_reasons_and_what_was_rejected(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("gpt-oss-120b", "--hosts", "spark:2") == 0
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "gpt-oss-120b: tensor parallel 2 on spark-1, spark-2"
    bars = [line for line in said if "[" in line and "GiB: weights" in line]
    assert [line.split()[0] for line in bars] == ["spark-1", "spark-2"]
    assert any(line.startswith("predicted: ") for line in said)
    assert any(line.startswith("why: ") for line in said)
    assert any(line.startswith("not: alone on spark-1: ") for line in said)


def test_json_has_the_whole_choice(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen3-4b-instruct-2507", "--hosts", "rtx-5090", "--json") == 0
    said = json.loads(capsys.readouterr().out)
    assert said["fit"]["short_bytes"] == 0
    assert said["layout"]["stages"][0]["devices"][0]["host"] == "rtx-5090-1"
    assert said["prediction"]["low"] < said["prediction"]["tokens_per_s"] < said["prediction"]["high"]


def test_what_is_forced_is_priced(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("qwen3-4b-instruct-2507", "--hosts", "spark,rtx", "--tp", "2") == 0
    said = capsys.readouterr().out
    assert "tensor parallel 2 on " in said.splitlines()[0]
    assert "warning: " in said


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        pytest.param(("qwen2.5-72b-instruct", "--hosts", "rtx-5090"), "does not fit", id="too large"),
        pytest.param(("qwen2.5-72b-instruct", "--hosts", "toaster"), "names no hosts", id="no such kind"),
        pytest.param(("demo", "other"), "one model too many", id="two models"),
    ],
)
def test_problems(words: tuple[str, ...], problem: str) -> None:
    with pytest.raises(Problem) as caught:
        run(*words)
    assert problem in caught.value.what


def test_what_does_not_fit_says_by_how_much() -> None:
    with pytest.raises(Problem) as caught:
        run("qwen2.5-72b-instruct", "--hosts", "rtx-5090")
    assert "GiB short" in caught.value.cause


def test_this_host_plans_the_demo(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("demo") == 0
    assert capsys.readouterr().out.startswith("demo: alone on ")


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
    assert "tokens/s" not in said


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
    assert (
        f"\nfaster: qwen3.8-27b-nvfp4: {fastest['tokens_per_s']:.1f} tokens/s instead of {now:.1f}: " in said
    )
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


def test_a_folder_with_a_config_alone_is_planned_and_the_estimate_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "config.json").write_text(json.dumps(PUBLISHED["qwen3-8b"].config))
    assert run(str(tmp_path), "--hosts", "spark:1", "--json") == 0
    told, err = capsys.readouterr()
    (note,) = json.loads(told)["notes"]
    assert note in err
    assert "estimated from config.json; there is no index with their total" in note
    assert run("qwen3-8b", "--hosts", "spark:1", "--json") == 0
    known = json.loads(capsys.readouterr().out)
    assert known["notes"] == []
    near = json.loads(told)["prediction"]["tokens_per_s"]
    assert near == pytest.approx(known["prediction"]["tokens_per_s"], rel=0.01)


WORDS = ("qwen3-4b-instruct-2507", "--hosts", "rtx-5090")


def test_the_file_holds_the_plan_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    assert run(*WORDS, "--svg", str(picture)) == 0
    said = capsys.readouterr().out.splitlines()
    found = ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")
    texts = [each for text in found if (each := (text.text or "").replace("\xa0", " ").strip())]
    assert said[0] == f"{texts[0]}: {texts[1]}"
    assert [line for line in said if line.startswith("why: ")][-1] in " ".join(texts)


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
    ("name", "cause"),
    [
        pytest.param("absent/plan.svg", "there is no folder ", id="no folder"),
        pytest.param("file/plan.svg", "there is no folder ", id="a file for a folder"),
        pytest.param("folder", "not a file", id="a folder"),
        pytest.param("pipe", "not a file", id="a pipe, as a device"),
        pytest.param("", "not a file", id="no name"),
        pytest.param("x" * 300, "File name too long", id="too long"),
        pytest.param("/proc/plan.svg", "No such file", id="where not even root may write"),
    ],
)
def test_what_cannot_be_written(
    name: str, cause: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(Problem) as caught:
        run(*WORDS, "--svg", name)
    assert cause in caught.value.cause
    assert "--svg" in caught.value.fix
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file", "folder", "pipe"]


def test_the_picture_in_the_documentation_is_what_its_command_draws(tmp_path: Path) -> None:
    shown = Path(__file__).parents[2] / "docs" / "plan.svg"
    command = "medley plan qwen3.5-122b-a10b --hosts spark:1,thor:2"
    assert f"{command} --svg docs/plan.svg" in shown.with_name("layouts.md").read_text()
    assert run(*command.split()[2:], "--svg", str(tmp_path / "plan.svg")) == 0
    assert (tmp_path / "plan.svg").read_text() == shown.read_text(), f"draw it anew: {command} --svg {shown}"
    assert shown.stat().st_size < 40_000
