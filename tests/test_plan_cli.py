"""`medley plan` as it is typed."""

import json

import pytest

from medley.cli.plan import Plan
from medley.problem import Problem


def run(*words: str) -> int:
    _, status = Plan.run(["medley plan", *words], exit=False)
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
