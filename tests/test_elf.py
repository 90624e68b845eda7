import platform
import subprocess
import sys
from pathlib import Path

import pytest

from medley import elf

LOADERS = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}


def test_a_program_of_this_host() -> None:
    said = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=False).stdout
    loader = elf.loader(Path("/bin/sh").resolve())
    assert loader == LOADERS[platform.machine()] or Path("/nix").exists()
    assert loader is not None
    assert Path(loader).name in said or not said


@pytest.mark.parametrize(
    "content",
    [b"", b"#!/bin/sh\n", b"\x7fELF", b"\x7fELF" + b"\0" * 60, b"MZ" * 40],
    ids=["empty", "script", "short", "no segments", "another system's"],
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
        *((each, True) for each in LOADERS.values()),
        ("/nix/store/x-glibc-2.42/lib/ld-linux-x86-64.so.2", False),
        (None, False),
    ],
)
def test_whose_loader(loader: str | None, *, hosts: bool) -> None:
    assert elf.is_hosts(loader) is hosts
