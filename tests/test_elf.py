import sys
from pathlib import Path

import pytest

from medley import elf

LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")


def test_the_loader_of_this_python_is_the_one_it_runs_on() -> None:
    loader = elf.loader(Path(sys.executable).resolve())
    assert loader is not None
    assert str(Path(loader).resolve()) in Path("/proc/self/maps").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF\x02\x01" + b"\0" * 60, b"MZ" * 40],
    ids=["empty", "script", "short", "an object file", "another system's"],
)
def test_what_names_no_loader(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(content)
    assert elf.loader(tmp_path / "file") is None


def test_a_library_names_none() -> None:
    maps = Path("/proc/self/maps").read_text(encoding="utf-8").split()
    libraries = sorted(
        {word for word in maps if ".so" in word and "/ld-" not in word and "libc.so" not in word}
    )
    if not libraries:
        pytest.skip(f"{sys.executable} has loaded no library")
    assert elf.loader(Path(libraries[0])) is None


@pytest.mark.parametrize(
    ("loader", "hosts"),
    [
        *((each, True) for each in LOADERS),
        ("/nix/store/x-glibc-2.42/lib/ld-linux-x86-64.so.2", False),
        (None, False),
    ],
)
def test_whose_loader(loader: str | None, *, hosts: bool) -> None:
    assert elf.is_hosts(loader) is hosts
