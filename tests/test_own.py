"""How a process of medley's starts another, and what of PATH it is given."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from medley import own


def made(at: Path, holds: Mapping[str, Sequence[str]]) -> str:
    """A PATH of these folders, which hold these programs."""
    for folder, names in holds.items():
        (at / folder).mkdir()
        for name in names:
            (at / folder / name).touch(mode=0o755)
    return ":".join(str(at / folder) for folder in holds)


@pytest.mark.parametrize(
    ("holds", "kept"),
    [
        pytest.param({"games": ["chess"], "nix": ["nix"]}, ["nix"], id="without what is somebody's own"),
        pytest.param({"one": ["nvcc"], "two": ["nvcc"]}, ["one"], id="where it is found first"),
        pytest.param({"one": ["python3.11"], "two": ["python3"]}, ["one", "two"], id="every Python"),
        pytest.param({"one": ["python3-config", "pythonista"]}, [], id="what is no Python"),
        pytest.param({"one": []}, [], id="nothing in it"),
    ],
)
def test_the_folders_that_matter(
    holds: Mapping[str, Sequence[str]], kept: Sequence[str], tmp_path: Path
) -> None:
    assert own.path(made(tmp_path, holds)) == ":".join(str(tmp_path / each) for each in kept)


def test_the_systems_own_stay_in_their_order(tmp_path: Path) -> None:
    cuda = made(tmp_path, {"cuda": ["nvcc"]})
    usual = f"{cuda}:/usr/local/bin:/usr/bin:/bin:/nix/store/x-uv/bin:/run/current-system/sw/bin"
    assert own.path(f"{usual}::relative/bin:/nowhere/bin:/usr/bin") == usual


def test_what_is_no_program_does_not_count(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "nvcc").touch(mode=0o644)
    assert own.path(str(tmp_path / "docs")) == ""


def test_a_unit_is_given_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    junk = made(tmp_path, {"junk": ["chess"]})
    monkeypatch.setenv("PATH", f"{junk}:/usr/bin")
    monkeypatch.setenv("MEDLEY_ODD", "1")
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    given = own.variables()
    assert (given["PATH"], given["MEDLEY_ODD"]) == ("/usr/bin", "1")
    assert "HF_TOKEN" not in given
