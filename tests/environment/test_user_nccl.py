import struct
from pathlib import Path

import pytest

from medley import config
from medley.environment import user_nccl
from medley.environment.engine_source import NCCL_PATH_VARIABLE
from tests.problems import raises_problem

HOSTS = config.load_hosts()
MACHINES = {"x86_64": 62, "aarch64": 183}


def library(folder: Path, said: str = "NCCL version 2.30.7+cuda13.0", machine: str = "aarch64") -> Path:
    """The head of an ELF library for a machine, and the literal that NCCL's init.cc has."""
    header = b"\x7fELF\x02\x01\x01".ljust(16, b"\0") + struct.pack("<HH", 3, MACHINES[machine])
    file = folder / "libnccl.so.2"
    file.write_bytes(header + bytes(100_000) + said.encode() + b"\0" + bytes(1000))
    return file


def test_it_is_read_and_put_in_place(tmp_path: Path) -> None:
    file = library(tmp_path)
    found = user_nccl.read_user_nccl(str(file), HOSTS["spark"], "aarch64")
    assert (found.version, found.cuda) == ((2, 30, 7), 13)
    assert found.user_path == str(file)
    for preloads, name in ((True, "MEDLEY_PRELOAD"), (False, "LD_PRELOAD")):
        made = {each.name: each.value for each in found.list_variables(has_preload=preloads)}
        assert made == {NCCL_PATH_VARIABLE: str(file), name: str(file)}


FIND = "find / -name 'libnccl.so.2*' 2>/dev/null"


@pytest.mark.parametrize(
    ("kind", "said", "machine", "cause"),
    [
        pytest.param("spark", "NCCL version 2.30.7+cuda13.0", "x86_64", "aarch64", id="another machine's"),
        pytest.param("spark", "NCCL version 2.30.7+cuda12.9", "aarch64", "CUDA 13.0", id="another CUDA's"),
        pytest.param("spark", "nothing", "aarch64", "NCCL version", id="another library"),
        pytest.param("cpu", "NCCL version 2.30.7+cuda13.0", "aarch64", "gloo", id="no GPU"),
    ],
)
def test_one_that_cannot_serve_is_refused(
    tmp_path: Path, kind: str, said: str, machine: str, cause: str
) -> None:
    with raises_problem(cause=cause, fix=FIND if kind != "cpu" else "leave nccl out for this host"):
        user_nccl.read_user_nccl(str(library(tmp_path, said, machine)), HOSTS[kind], "aarch64")


def test_one_that_is_not_there_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "libnccl.so.2", tmp_path):
        with raises_problem(str(path), fix=FIND):
            user_nccl.read_user_nccl(str(path), HOSTS["spark"])
