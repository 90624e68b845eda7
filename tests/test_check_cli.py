"""`medley check` as typed."""

import json
from pathlib import Path

import pytest

from medley.cli.check import Check


def run(*words: str) -> int:
    _, status = Check.run(["medley check", *words], exit=False)
    return int(status)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "mine"))


def test_all_that_come_with_medley_are_right(capsys: pytest.CaptureFixture[str]) -> None:
    assert run() == 0
    assert " tables, 0 wrong\n" in capsys.readouterr().out


def test_the_cluster_that_is_here_is_one_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    Path("cluster.toml").write_text("[hosts.spark-1]\n", encoding="utf-8")
    assert run("--json") == 0
    assert json.loads(capsys.readouterr().out)["cluster.toml"] is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param("[hosts.spark-1]\nkindd = 1\n", "kindd", id="a key nobody knows"),
        pytest.param('[hosts.a]\nrole = "head"\n[hosts.b]\nrole = "head"\n', "has one head", id="two heads"),
    ],
)
def test_what_is_wrong_with_it_is_said(capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    Path("cluster.toml").write_text(text, encoding="utf-8")
    assert run() == 1
    spoken = capsys.readouterr()
    assert said in spoken.err
    assert spoken.out.endswith(" 1 wrong\n")


def test_that_of_the_flake_s_template_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CLUSTER", str(Path(__file__).parents[1] / "nix/template/cluster.toml"))
    assert run() == 0
