"""`medley plan --svg` as it is typed."""

import json
import os
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest

from medley.cli.plan import Plan
from medley.problem import Problem

WORDS = ("qwen3-4b-instruct-2507", "--hosts", "rtx-5090")


def run(*words: str) -> int:
    _, status = Plan.run(["medley plan", *words], exit=False)
    return int(status)


def test_the_file_holds_the_plan_that_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture = tmp_path / "plan.svg"
    assert run(*WORDS, "--svg", str(picture)) == 0
    said = capsys.readouterr().out.splitlines()
    texts = [text.text for text in ET.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
    assert said[0] == f"{texts[0]}: {texts[1]}"
    assert [line for line in said if line.startswith("why: ")][-1] in texts


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
    shown = Path(__file__).parents[1] / "docs" / "plan.svg"
    command = "medley plan qwen3.5-122b-a10b --hosts spark:1,thor:2"
    assert f"{command} --svg docs/plan.svg" in shown.with_name("layouts.md").read_text()
    assert run(*command.split()[2:], "--svg", str(tmp_path / "plan.svg")) == 0
    assert (tmp_path / "plan.svg").read_text() == shown.read_text(), f"draw it anew: {command} --svg {shown}"
    assert shown.stat().st_size < 40_000
