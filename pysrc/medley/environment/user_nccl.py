"""Check a libnccl.so.2 that the user names, and build the variables that put it in place of the wheel's."""

import mmap
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from medley import user
from medley.command import Variable
from medley.environment.engine_source import NCCL_PATH_VARIABLE, parse_version
from medley.errors import Problem, describe_error
from medley.host.driver_libraries import EXTRA_LIBRARIES_VARIABLE as PRELOAD
from medley.host.driver_libraries import find_objection, read_library_file
from medley.host_schema import HostTable
from medley.values import Value

# NCCL's init.cc has this literal, VERSION_STRING: "NCCL version 2.30.7+cuda13.0".
_VERSION_STRING_PATTERN = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda(\d+)\.\d+")
_FIND_COMMAND = "find / -name 'libnccl.so.2*' 2>/dev/null"


class UserNccl(Value):
    path: Path
    version: tuple[int, ...]
    cuda: int
    """The major version of CUDA that it was built with."""
    user_path: str = ""
    """The path as the user wrote it, with `~` and relative folders."""

    def list_variables(self, *, has_preload: bool) -> Iterator[Variable]:
        """Yield an engine's variables; `has_preload`: its Python loads what MEDLEY_PRELOAD names."""
        version = ".".join(map(str, self.version))
        why = f"as asked: vLLM opens NCCL {version} of this host"
        yield Variable(NCCL_PATH_VARIABLE, str(self.path), why)
        why = "torch and SGLang use the NCCL that is loaded already"
        yield Variable(PRELOAD if has_preload else "LD_PRELOAD", str(self.path), why)


def read_user_nccl(user_path: str, table: HostTable, machine: str | None = None) -> UserNccl:
    """Return the library at this path; raise a Problem if such a host cannot use it."""
    path = expand_path(user_path)
    if table.device == "cpu":
        raise Problem(
            "an NCCL is for GPUs",
            cause=f"ranks on {table.title} talk over gloo",
            fix="leave nccl out for this host",
        )
    file_facts = read_library_file(str(path))
    if file_facts is None:
        raise Problem(f"there is no NCCL at {path}", cause="no such file, or not readable", fix=_FIND_COMMAND)
    if why := find_objection("libnccl.so.2", file_facts, machine or platform.machine()):
        raise Problem(f"{path} is not an NCCL for this host", cause=why, fix=_FIND_COMMAND)
    version, cuda = read_versions(path)
    if table.toolkit and cuda != int(table.toolkit.cuda.partition(".")[0]):
        raise Problem(
            f"{path} was built with CUDA {cuda}",
            cause=f"torch on {table.title} is built with CUDA {table.toolkit.cuda}",
            fix=_FIND_COMMAND,
        )
    return UserNccl(path, version, cuda, user_path)


def expand_path(user_path: str) -> Path:
    """Return the full path of an NCCL that the user named on this host."""
    return user.expand_home(user_path).absolute()


def read_versions(path: Path) -> tuple[tuple[int, ...], int]:
    """Return the version of the NCCL in a file, and the major version of its CUDA."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            match = _VERSION_STRING_PATTERN.search(content)
            # A match of mmap is valid only while the file is open.
            versions = (match[1].decode(), int(match[2])) if match else None
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read", cause=describe_error(error), fix=_FIND_COMMAND) from error
    if versions is None:
        raise Problem(f"{path} is not an NCCL", cause='it has no "NCCL version" in it', fix=_FIND_COMMAND)
    return parse_version(versions[0]), versions[1]
