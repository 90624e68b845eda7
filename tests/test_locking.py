"""What is asked of uv for a lock of one's own, what becomes of it, and what uv's refusals mean."""

import shlex
from pathlib import Path

import pytest

from medley import config, locking
from medley.locking import Locked
from medley.problem import Problem
from medley.resolved import Pin
from tests.test_build import PYTHON

# uv 0.13.8's own words.
TAG = """\
error: No solution found when resolving dependencies
  cause: Because sglang==0.5.23 has no wheels with a matching Python implementation tag (e.g., `cp310`)
         and you require sglang==0.5.23, we can conclude that your requirements are unsatisfiable.

hint: You require CPython 3.10 (`cp310`), but we only found wheels for `sglang` (v0.5.23) with the following
Python implementation tags: `cp311`, `cp312`, `cp313`"""
PLATFORM = """\
error: No solution found when resolving dependencies
  cause: Because only vllm==0.14.0+cu126 is available and vllm==0.14.0+cu126 has no wheels with a matching
         platform tag (e.g., `manylinux_2_36_x86_64`), we can conclude that all of it cannot be used."""
ABSENT = """\
error: No solution found when resolving dependencies
  cause: Because nosuch was not found in the package registry and you require nosuch, we can conclude
         that your requirements are unsatisfiable."""
CLASH = """\
error: No solution found when resolving dependencies
  cause: Because vllm==0.33.0 depends on torch==2.14.0 and sglang==0.5.23 depends on torch==2.14.1, we can
         conclude that vllm==0.33.0 and sglang==0.5.23 are incompatible."""
NETWORK = """\
error: Request failed after 2 retries in 3.0s
  cause: Failed to fetch: http://127.0.0.1:9/simple/vllm/
  cause: client error (Connect)"""


@pytest.fixture(autouse=True)
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    return tmp_path


def locked(*names: str) -> Locked:
    return Locked(
        locking.order("jp6", ("vllm",), "cuda"), PYTHON, tuple(Pin(name, "1", ("0" * 64,)) for name in names)
    )


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        pytest.param(
            TAG, "jp6 cannot be locked: sglang has no file for this Python", "--python", id="Python"
        ),
        pytest.param(PLATFORM, "vllm has no file for this Python and this machine", "--index", id="machine"),
        pytest.param(ABSENT, "nosuch is on none of the indexes", "--index https://HOST", id="absent"),
        pytest.param(CLASH, "no versions fit together", "--override", id="a clash"),
        pytest.param(NETWORK, "the package index cannot be reached", "HTTPS_PROXY", id="network"),
        pytest.param(
            "error: odd", "jp6 cannot be locked", "medley env lock jp6 --dry-run", id="anything else"
        ),
    ],
)
def test_what_a_refusal_means(said: str, what: str, fix: str) -> None:
    found = locking.failure("jp6", 1, said.splitlines())
    assert what in found.what
    assert said.splitlines()[0] in found.cause
    assert fix in found.fix


@pytest.mark.parametrize(
    ("name", "index", "what"),
    [
        pytest.param("vllm-cuda", (), "cannot be the name", id="a lock of ours"),
        pytest.param("JP6", (), "cannot be the name", id="capitals"),
        pytest.param("../jp6", (), "cannot be the name", id="another folder"),
        pytest.param("jp6", ("https://you:word@h/jp6",), "holds a password", id="a secret in an address"),
        pytest.param("jp6", ("h/jp6",), "is no package index", id="no address"),
    ],
)
def test_what_cannot_be_asked_for(name: str, index: tuple[str, ...], what: str) -> None:
    with pytest.raises(Problem, match=what):
        locking.order(name, ("vllm",), "cuda", indexes=index)


def test_a_folder_is_an_index_too(tmp_path: Path) -> None:
    assert locking.order("jp6", ("vllm",), "cuda", indexes=(str(tmp_path),)).indexes == (tmp_path.as_uri(),)


def test_what_uv_is_asked() -> None:
    asked = locking.order("jp6", ("vllm", "ray"), "cuda", indexes=("https://h/jp6",), overrides=("torch==1",))
    environ = {"PIP_CONFIG_FILE": "/dev/null", "UV_HTTP_RETRIES": "7"}
    words = shlex.split(str(locking.command(asked, PYTHON, "uv", Path("/s"), environ)))
    assert "UV_INDEX=https://h/jp6" in words
    assert "UV_INDEX_STRATEGY=first-index" in words, "else PyPI's newer torch for another CUDA would win"
    assert "UV_HTTP_RETRIES=2" not in words, "the user's own wins"
    asks = ["uv", "pip", "compile", "/s/requirements.in", "--python", "/usr/bin/python3.11", "--override"]
    assert words[words.index("uv") :] == [
        *asks,
        *("/s/overrides.txt", "--only-binary", ":all:", "--no-header", "--no-annotate", "--quiet"),
        *("--output-file", "/s/pylock.toml"),
    ]


def test_a_lock_is_found_where_it_is_kept(own: Path) -> None:
    with locking.kept(locked("vllm", "ray")) as path:
        assert path == own / "locks" / "jp6.txt"
    assert config.recipes()["jp6"].python == "3.11"
    assert config.files("locks", ".txt")["jp6"] == path
    assert not [problem for where, problem in config.check().items() if own in where.parents and problem]
    assert locking.order("jp6", ("vllm",), "cuda").name == "jp6", "one's own can be made again"


@pytest.mark.parametrize("before", [None, "vllm==0\n"], ids=["the first", "another time"])
def test_what_fails_after_it_leaves_what_was(own: Path, before: str | None) -> None:
    lock = own / "locks" / "jp6.txt"
    if before:
        lock.parent.mkdir()
        lock.write_text(before)

    def fails() -> None:
        with locking.kept(locked("vllm")):
            assert lock.read_text() != before
            raise Problem("x", cause="y", fix="z")

    with pytest.raises(Problem, match="x"):
        fails()
    assert (lock.read_text() if lock.exists() else None) == before
    assert not (own / "locks" / "jp6.toml").exists()
