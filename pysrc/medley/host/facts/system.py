"""Read the facts of the board and the software."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath

from msgspec import field

from medley.transcript import Transcript, read_assignments, read_first_line, read_lines
from medley.values import Value

# The device tree separates with NUL, which no shell variable holds.
COMPATIBLE_QUESTION = r"tr '\0' '\n' </proc/device-tree/compatible"
MODEL_QUESTION = r"tr -d '\0' </proc/device-tree/model"
L4T_RELEASE_FILE = "head -n 1 /etc/nv_tegra_release"
# Only these names, because the file has the serial number too.
DGX_QUESTION = "grep -E '^DGX_(PRETTY_NAME|SWBUILD_VERSION|OTA_VERSION)=' /etc/dgx-release"
OS_RELEASE_QUESTION = "grep -E '^(ID|VERSION_ID|PRETTY_NAME)=' /etc/os-release"
KERNEL_QUESTION = "uname -r"
LIBC_QUESTION = "getconf GNU_LIBC_VERSION"
MARKS_QUESTION = "ls -d /.dockerenv /run/.containerenv /etc/NIXOS"
PROGRAMS_QUESTION = "for p in nix uv python3.11 python3.12 nvcc gcc g++; do command -v $p; done"
PYTHON_QUESTION = "python3 --version"
# The toolkit's file, because its nvcc is seldom on PATH.
CUDA_QUESTION = "grep -m 1 -A 2 '\"cuda\"' /usr/local/cuda/version.json"
# Only names, because the path has the user's name.
ENVIRONMENTS_QUESTION = (
    'cd "${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs" && ls -d */medley.json'
)

QUESTIONS = (
    *(COMPATIBLE_QUESTION, MODEL_QUESTION, L4T_RELEASE_FILE, DGX_QUESTION),
    *(
        OS_RELEASE_QUESTION,
        KERNEL_QUESTION,
        LIBC_QUESTION,
        MARKS_QUESTION,
        PROGRAMS_QUESTION,
        PYTHON_QUESTION,
        CUDA_QUESTION,
        ENVIRONMENTS_QUESTION,
    ),
)

_CONTAINER_BY_MARK = {"/.dockerenv": "docker", "/run/.containerenv": "podman"}


class L4t(Value):
    """Linux for Tegra, the system of a Jetson: R36, REVISION 4.3 is r36.4.3."""

    major: str
    revision: str

    @property
    def release(self) -> str:
        return f"r{self.major}.{self.revision}"


class Board(Value):
    """The board of a host."""

    model: str | None = None
    compatible: tuple[str, ...] = ()
    """The device tree's names for it, the most specific first and the SoC last; a PC has none."""
    l4t: L4t | None = None
    dgx: str | None = None

    @property
    def soc(self) -> str | None:
        return self.compatible[-1].rpartition(",")[2] if self.compatible else None

    @property
    def is_tegra(self) -> bool:
        return (self.soc or "").startswith("tegra")


def read_board(answers: Transcript) -> Board:
    dgx = read_assignments(answers, DGX_QUESTION)
    version = dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION") or ""
    l4t = re.match(
        r"# R(\d+) \(release\), REVISION: ([\d.]+)", read_first_line(answers, L4T_RELEASE_FILE) or ""
    )
    return Board(
        model=read_first_line(answers, MODEL_QUESTION),
        compatible=read_lines(answers, COMPATIBLE_QUESTION),
        l4t=L4t(l4t[1], l4t[2]) if l4t else None,
        dgx=f"{dgx.get('DGX_PRETTY_NAME', '')} {version}".strip() or None,
    )


class Software(Value):
    """The system's software that matters to engines."""

    os_id: str | None = None
    os_version: str | None = None
    os_name: str | None = None
    kernel: str | None = None
    libc: str | None = None
    """The C library, as in `glibc 2.36`; None with another one, on which no engine's wheels run."""
    container: str | None = None
    """The container that medley runs in: docker or podman; None outside."""
    nixos: bool = False
    programs: Mapping[str, str] = field(default_factory=dict)
    """The paths of programs that medley may use, by name."""
    python: str | None = None
    """The version of the system's own python3, as in `3.12.3`."""
    cuda: str | None = None
    """The version of the CUDA toolkit in /usr/local/cuda, as in `13.0.2`; not the driver's."""
    environments: tuple[str, ...] = ()
    """The names of medley's finished engine environments, each with its digest."""


def read_software(answers: Transcript) -> Software:
    release, marks = read_assignments(answers, OS_RELEASE_QUESTION), read_lines(answers, MARKS_QUESTION)
    cuda = re.search(r'"version"\s*:\s*"([0-9.]+)"', "\n".join(read_lines(answers, CUDA_QUESTION)))
    return Software(
        os_id=release.get("ID"),
        os_version=release.get("VERSION_ID"),
        os_name=release.get("PRETTY_NAME"),
        kernel=read_first_line(answers, KERNEL_QUESTION),
        libc=read_first_line(answers, LIBC_QUESTION),
        container=next((_CONTAINER_BY_MARK[mark] for mark in marks if mark in _CONTAINER_BY_MARK), None),
        nixos="/etc/NIXOS" in marks,
        programs={PurePosixPath(path).name: path for path in read_lines(answers, PROGRAMS_QUESTION)},
        python=(read_first_line(answers, PYTHON_QUESTION) or "").removeprefix("Python ") or None,
        cuda=cuda[1] if cuda else None,
        environments=tuple(path.partition("/")[0] for path in read_lines(answers, ENVIRONMENTS_QUESTION)),
    )
