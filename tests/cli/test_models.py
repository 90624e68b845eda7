"""`medley models` as it is typed."""

import json
from pathlib import Path

import pytest

from medley import config
from medley.cli.models import ModelsVerb


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "medley"))
    return tmp_path


def run(*words: str) -> int:
    _, status = ModelsVerb.run(["medley models", *words], exit=False)
    return int(status)


def test_the_fastest_that_fits_is_first_and_what_does_not_fit_says_why(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("--hosts", "spark:2") == 0
    header, first, *rest = capsys.readouterr().out.splitlines()
    words = "model GB on disk parameters context tok/s layout"
    assert header.split() == words.split()
    assert first.startswith("demo ")
    assert len(rest) + 1 == len(config.models())
    (line,) = (each for each in rest if each.startswith("gpt-oss-120b "))
    assert line.split()[1:5] == ["65.2", "117B,", "5.7B", "active"]
    assert line.endswith("  tensor parallel 2 on spark-1, spark-2")
    (line,) = (each for each in rest if each.startswith("deepseek-v3 "))
    assert line.endswith("  does not fit: 212.6 GiB short")


def test_json_has_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:2", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == set(config.models())
    one = found["gpt-oss-120b"]
    assert one["repository"] == "openai/gpt-oss-120b"
    assert one["tokens_per_s"]["low"] < one["tokens_per_s"]["predicted"] < one["tokens_per_s"]["high"]
    assert (one["lacks"], one["weights"], one["on_disk_bytes"]) == (None, "mxfp4", None)
    assert found["deepseek-v3"]["tokens_per_s"] is None
    assert found["deepseek-v3"]["alone_on"] == []
    assert "llama-3.3-70b" in found["llama-3.3-70b-instruct"]["aliases"]


def test_no_speed_where_plan_predicts_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "cpu") == 0
    (line,) = (each for each in capsys.readouterr().out.splitlines() if each.startswith("demo "))
    assert "  -  " in line
    assert run("--hosts", "cpu", "--json") == 0
    (demo,) = (each for each in json.loads(capsys.readouterr().out) if each["name"] == "demo")
    assert demo["layout"]
    assert demo["tokens_per_s"] is None


def test_it_shows_what_is_on_this_host_and_its_size(cache: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, size in (("openai--gpt-oss-20b", 300_000_000), ("an--other", 60_000_000), ("a--look", 9_000)):
        blobs = cache / "hub" / f"models--{name}" / "blobs"
        blobs.mkdir(parents=True)
        (blobs / "1").write_bytes(b"x" * size)
    assert run("--hosts", "spark:2") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (each for each in lines if each.startswith("gpt-oss-20b "))
    assert line.split()[1:4] == ["13.8", "0.3", "20.9B,"]
    (line,) = (each for each in lines if each.startswith("an/other "))
    assert line.split() == ["an/other", "0.1", "medley", "plan", "an/other"]
    assert not [each for each in lines if each.startswith("a/look ")], "a few small files are no model"
    assert run("--hosts", "spark:2", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["gpt-oss-20b"]["on_disk_bytes"] >= 300_000_000


def test_it_names_the_hosts_that_hold_a_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:1,rtx-5090:1", "--json") == 0
    found = {each["name"]: each["alone_on"] for each in json.loads(capsys.readouterr().out)}
    assert found["qwen3-8b"] == ["spark-1", "rtx-5090-1"]
    assert found["gpt-oss-120b"] == ["spark-1"]
    assert found["kimi-k3"] == []
