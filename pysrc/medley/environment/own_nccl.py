"""Check a libnccl.so.2 that the user names, and build the variables that put it in place of the wheel's."""

import mmap
import platform
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from medley import user
from medley.command import Variable
from medley.environment.engine_source import OWN_NCCL, numbers
from medley.errors import Problem, in_words
from medley.host.driver_libraries import MORE as PRELOAD
from medley.host.driver_libraries import look, objection
from medley.host_schema import HostTable

# NCCL's init.cc has it as one literal, VERSION_STRING: "NCCL version 2.30.7+cuda13.0".
_VERSION = re.compile(rb"NCCL version (\d+\.\d+\.\d+)\+cuda(\d+)\.\d+")
_FIND = "find / -name 'libnccl.so.2*' 2>/dev/null"


@dataclass(frozen=True)
class OwnNccl:
    path: Path
    version: tuple[int, ...]
    cuda: int
    """The major version of CUDA that it was built with."""
    written: str = ""
    """The path as the user wrote it, before `~` and the folder were filled in."""

    def variables(self, *, preloads: bool) -> Iterator[Variable]:
        """Yield an engine's variables: our environments preload NCCL by themselves, others by LD_PRELOAD."""
        shown = ".".join(map(str, self.version))
        yield Variable(OWN_NCCL, str(self.path), f"as asked: vLLM opens NCCL {shown} of this host")
        why = "torch and SGLang use the NCCL that is loaded already"
        yield Variable(PRELOAD if preloads else "LD_PRELOAD", str(self.path), why)


def read(named: str, host: HostTable, machine: str | None = None) -> OwnNccl:
    """Return the library at this path; raise a Problem where it cannot serve on such a host."""
    path = absolute(named)
    if host.device == "cpu":
        raise Problem(
            "an NCCL is for GPUs",
            cause=f"ranks on {host.title} talk over gloo",
            fix="leave nccl out for this host",
        )
    seen = look(str(path))
    if seen is None:
        raise Problem(f"there is no NCCL at {path}", cause="no such file, or not readable", fix=_FIND)
    if why := objection("libnccl.so.2", seen, machine or platform.machine()):
        raise Problem(f"{path} is not an NCCL for this host", cause=why, fix=_FIND)
    version, cuda = versions(path)
    if host.toolkit and cuda != int(host.toolkit.cuda.partition(".")[0]):
        raise Problem(
            f"{path} was built with CUDA {cuda}",
            cause=f"torch on {host.title} is built with CUDA {host.toolkit.cuda}",
            fix=_FIND,
        )
    return OwnNccl(path, version, cuda, named)


def absolute(named: str) -> Path:
    """Return the full path of an NCCL that the user named on this host."""
    return user.expand(named).absolute()


def versions(path: Path) -> tuple[tuple[int, ...], int]:
    """Return the version of the NCCL in a file, and the major version of its CUDA."""
    try:
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            found = _VERSION.search(content)
            said = (found[1].decode(), int(found[2])) if found else None  # of the file while it is open
    except (OSError, ValueError) as error:
        raise Problem(f"{path} cannot be read", cause=in_words(error), fix=_FIND) from error
    if said is None:
        raise Problem(f"{path} is not an NCCL", cause='it has no "NCCL version" in it', fix=_FIND)
    return numbers(said[0]), said[1]
