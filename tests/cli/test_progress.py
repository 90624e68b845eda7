import sys

import pytest

from medley.cli import progress


def test_plain_lines_where_nobody_looks(capsys: pytest.CaptureFixture[str]) -> None:
    watch = progress.watch()
    assert isinstance(watch, progress.Plain)
    with watch.stage("download"):
        watch.line("Downloading torch (182.9MiB)")
    watch.note("a third-party build")
    said = capsys.readouterr()
    assert said.out == "", "stdout is for results"
    assert said.err == "download …\na third-party build\n"


def test_a_spinner_says_what_took_its_time(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_WORTH_SAYING_S", -1.0)
    spinner = progress.Spinner()
    spinner.line("before any stage")
    with spinner.stage("download"):
        spinner.line("Downloading torch (182.9MiB) " + "x" * 200)
        spinner.line("")
    said = capsys.readouterr()
    assert said.out == ""
    assert "download: 0 s" in said.err
    assert sys.stderr
