"""`medley models` as it is typed."""

import json
from pathlib import Path

import pytest

from medley import config
from medley.cli.models import ModelsVerb
from medley.model import hub_download
from tests.model.hub_server import large_repositories, serving


@pytest.fixture(autouse=True)
def cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
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
    assert len(rest) + 1 == len(config.load_models())
    (line,) = (each for each in rest if each.startswith("gpt-oss-120b "))
    assert line.split()[1:5] == ["65.2", "117B,", "5.7B", "active"]
    assert line.endswith("  tensor parallel 2 on spark-1, spark-2")
    (line,) = (each for each in rest if each.startswith("deepseek-v3 "))
    assert line.endswith("  does not fit: 212.6 GiB short")


def test_json_has_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:2", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert set(found) == set(config.load_models())
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


def test_it_shows_what_is_on_this_host_and_its_size(
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    cache_layout: bool,  # noqa: FBT001
) -> None:
    files = large_repositories() | {"a/look/config.json": b"{}"}
    with serving(files, monkeypatch, cache):
        for name in ("openai/gpt-oss-20b", "org/both", "a/look"):
            hub_download.download_model(name)
    assert (cache / "hf" / "hub" / "blobs").is_dir() is cache_layout
    assert run("--hosts", "spark:2") == 0
    lines = capsys.readouterr().out.splitlines()
    (line,) = (each for each in lines if each.startswith("gpt-oss-20b "))
    assert line.split()[1:4] == ["13.8", "<0.1", "20.9B,"]
    (line,) = (each for each in lines if each.startswith("org/both "))
    assert line.split() == ["org/both", "<0.1", "medley", "plan", "org/both"]
    assert not [each for each in lines if each.startswith("a/look ")], "a few small files are no model"
    assert run("--hosts", "spark:2", "--json") == 0
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    sizes = [len(content) for name, content in files.items() if name.startswith("openai/")]
    assert found["gpt-oss-20b"]["on_disk_bytes"] == sum(sizes)


def test_it_names_the_hosts_that_hold_a_model_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--hosts", "spark:1,rtx-5090:1", "--json") == 0
    found = {each["name"]: each["alone_on"] for each in json.loads(capsys.readouterr().out)}
    assert found["qwen3-8b"] == ["spark-1", "rtx-5090-1"]
    assert found["gpt-oss-120b"] == ["spark-1"]
    assert found["kimi-k3"] == []
