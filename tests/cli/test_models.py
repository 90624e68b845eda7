"""`medley models` as it is typed."""

import json

import pytest

from medley import config
from medley.cli.models import ModelsVerb


def run(*words: str) -> int:
    _, status = ModelsVerb.run(["medley models", *words], exit=False)
    return int(status)


def test_the_fastest_that_fits_is_first_and_what_does_not_fit_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--hosts", "spark:2") == 0
    header, first, *rest = capsys.readouterr().out.splitlines()
    words = "model GB parameters context license tokens/s fits alone on layout"
    assert header.split() == words.split()
    assert first.startswith("demo ")
    assert len(rest) + 1 == len(config.models())
    (line,) = (each for each in rest if each.startswith("gpt-oss-120b "))
    assert "  65.2  117B, 5.7B active  " in line
    assert line.endswith("  spark-1, spark-2  tensor parallel 2 on spark-1, spark-2")
    (line,) = (each for each in rest if each.startswith("deepseek-v3 "))
    assert line.endswith("  -                 not here: 212.5 GiB short in the nearest of 4 layouts")


def test_json_has_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:2", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == set(config.models())
    one = found["gpt-oss-120b"]
    assert one["repository"] == "openai/gpt-oss-120b"
    assert one["tokens_per_s"]["low"] < one["tokens_per_s"]["predicted"] < one["tokens_per_s"]["high"]
    assert (one["lacks"], one["weights"]) == (None, "mxfp4")
    assert found["deepseek-v3"]["tokens_per_s"] is None
    assert found["deepseek-v3"]["alone_on"] == []
    assert "llama-3.3-70b" in found["llama-3.3-70b-instruct"]["aliases"]


def test_it_names_the_hosts_that_hold_a_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:1,rtx-5090:1", "--json") == 0
    found = {each["name"]: each["alone_on"] for each in json.loads(capsys.readouterr().out)}
    assert found["qwen3-8b"] == ["spark-1", "rtx-5090-1"]
    assert found["gpt-oss-120b"] == ["spark-1"]
    assert found["kimi-k3"] == []
