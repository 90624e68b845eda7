"""GPU clocks, users, power; driver files; compilers."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from medley.host.driver_libraries import BEGIN_BYTES, DRIVER, OPENED, Seen
from medley.transcript import NO_ANSWER, Transcript, lines, number

# One call, for each takes a tenth of a second. Of a process's name neither the folder nor the arguments.
STATE = (
    "command -v nvidia-smi >/dev/null && timeout 3 nvidia-smi -q -d PIDS,CLOCK,PERFORMANCE 2>&1"
    r" | sed -E 's,^( +Name +: )([^ ]*/)?([^ /]+).*,\1\3,'"
)
POWER = "command -v nvpmodel >/dev/null && nvpmodel -q 2>&1"
# All that stand in a table of hosts/: a question is the same on every host.
FOLDERS = (
    *("/usr/lib/wsl/lib", "/opt/nvidia/l4t-gpu-libs/nvgpu", "/opt/nvidia/l4t-gpu-libs/openrm"),
    *("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
    *("/usr/lib64", "/usr/lib", "/run/opengl-driver/lib"),
)
_NAMES = (*DRIVER, "libcuda.so.1.1", *OPENED)
FILES = (
    f"for d in {' '.join(FOLDERS)}; do for n in {' '.join(_NAMES)}; do"
    ' p=$d/$n; [ -e "$p" ] || [ -L "$p" ] || continue;'
    f' echo "$p $(readlink -m "$p") $(od -An -v -tx1 -N{BEGIN_BYTES} "$p" 2>/dev/null | tr -d " \\n")";'
    " done; done; :"
)
_CACHE = '"${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
_TRITON = "lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas*"
# As Triton takes it, on PATH, beside the toolkit's nvcc, and what each Triton brings.
PTXAS = (
    'for p in "$TRITON_PTXAS_BLACKWELL_PATH" "$TRITON_PTXAS_PATH" "$(command -v ptxas)"'
    f" /usr/local/cuda/bin/ptxas {_CACHE}/*/{_TRITON} ${{MEDLEY_OWN_ENV:-/none}}/{_TRITON}; do"
    ' [ -x "$p" ] && echo "$p $("$p" --version | sed -n "s/.*release \\([0-9.]*\\).*/\\1/p")"; done; :'
)
_INCLUDE = 'import os, sysconfig as s; print(os.path.isfile(s.get_path("include") + "/Python.h"))'
HEADERS = (
    f'for e in {_CACHE}/* "${{MEDLEY_OWN_ENV:-/none}}"; do [ -x "$e/bin/python" ] &&'
    f""" echo "$e $("$e/bin/python" -Ic '{_INCLUDE}')"; done; :"""
)
TOOLKIT = "printf '%s\\n' ${MEDLEY_TOOLKIT:+toolkit} ${MEDLEY_FLAKE:+flake}"

_MIB = 1 << 20
_FIELD = re.compile(r"( *)(\S[^:]*?) *: (.+)")


@dataclass(frozen=True)
class User:
    """A process that has memory of a GPU."""

    pid: int
    name: str
    graphics: bool
    memory_bytes: int | None = None


@dataclass(frozen=True)
class GpuState:
    bus_id: str
    users: tuple[User, ...] = ()
    held: tuple[str, ...] = ()
    """What holds its clocks down now, in nvidia-smi's words."""
    mhz: int | None = None
    """Of its SMs, as it runs now."""
    most_mhz: int | None = None
    set_mhz: int | None = None
    """What applications are given of it."""
    default_mhz: int | None = None
    """And what they would be given had nobody set it."""


@dataclass(frozen=True)
class GpuStates:
    gpus: tuple[GpuState, ...] = ()
    power_mode: str | None = None
    """Of a Jetson, as in `MAXN` or `MODE_30W`."""


def gpu_states(answers: Transcript) -> GpuStates:
    mode = re.search(r"NV Power Mode: *(\S+)\s", answers.get(POWER, NO_ANSWER).text)
    blocks = re.split(r"^GPU (?=[0-9A-Fa-f]+:)", answers[STATE].text, flags=re.MULTILINE)[1:]
    return GpuStates(tuple(map(_state, blocks)), mode[1] if mode else None)


def _state(block: str) -> GpuState:
    found = dict(_fields(block))
    return GpuState(
        bus_id=block.split(maxsplit=1)[0],
        users=tuple(_users(block)),
        held=tuple(
            path.partition("/")[2]
            for path, value in _fields(block)
            if path.startswith(("Clocks Event Reasons/", "Clocks Throttle Reasons/")) and value == "Active"
        ),
        mhz=_mhz(found.get("Clocks/SM")),
        most_mhz=_mhz(found.get("Max Clocks/SM")),
        set_mhz=_mhz(found.get("Applications Clocks/Graphics")),
        default_mhz=_mhz(found.get("Default Applications Clocks/Graphics")),
    )


def _fields(block: str) -> Iterator[tuple[str, str]]:
    """By `Heading/Field`."""
    heading = ""
    for line in block.splitlines():
        if match := _FIELD.fullmatch(line):
            yield f"{heading}/{match[2]}", match[3].strip()
        elif line.strip():
            heading = line.strip()


def _users(block: str) -> Iterator[User]:
    pid, graphics, name = None, False, ""
    for path, value in _fields(block):
        match path.rpartition("/")[2]:
            case "Process ID":
                pid = number(value)
            case "Type":
                graphics = "C" not in value
            case "Name":
                name = value
            case "Used GPU Memory" if pid is not None:
                mib = number(value.removesuffix("MiB").strip())
                yield User(pid, name, graphics, None if mib is None else mib * _MIB)
                pid = None


def _mhz(text: str | None) -> int | None:
    return number((text or "").removesuffix("MHz").strip())


def driver_files(answers: Transcript) -> dict[str, Seen]:
    said = (line.split(" ") for line in lines(answers, FILES))
    whole = (words for words in said if len(words) > 1 and words[0].startswith("/"))
    return {path: (real, _bytes(rest)) for path, real, *rest in whole}


def _bytes(rest: list[str]) -> bytes:
    try:
        return bytes.fromhex("".join(rest))
    except ValueError:
        return b""


@dataclass(frozen=True)
class Compilers:
    ptxas: tuple[tuple[str, str], ...] = ()
    """Where, and the CUDA it is of: the first is the one that Triton is told, if it is told one."""
    pinned: bool = False
    """Nix brings the toolkit of this kind of host."""
    headless: tuple[str, ...] = ()
    """Engine environments whose Python has no Python.h."""


def compilers(answers: Transcript) -> Compilers:
    said = (line.rpartition(" ") for line in lines(answers, PTXAS))
    found = dict.fromkeys((path, version) for path, _, version in said if path and version)
    headers = (line.rpartition(" ") for line in lines(answers, HEADERS))
    headless = tuple(path for path, _, there in headers if there == "False")
    return Compilers(tuple(found), bool(lines(answers, TOOLKIT)), headless)
