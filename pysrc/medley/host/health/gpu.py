"""Read the health of GPU clocks, users and power, of driver files, and of compilers."""

import re
from collections.abc import Iterator

from medley.host.driver_libraries import BEGIN_BYTES, DRIVER_LIBRARIES, OPTIONAL_LIBRARIES, LibraryFile
from medley.transcript import NO_ANSWER, Transcript, parse_number, read_lines
from medley.values import Value

# One call, because each takes 0.1 s. A process's name has neither its folder nor its arguments.
STATE_QUESTION = (
    "command -v nvidia-smi >/dev/null && timeout 3 nvidia-smi -q -d PIDS,CLOCK,PERFORMANCE 2>&1"
    r" | sed -E 's,^( +Name +: )([^ ]*/)?([^ /]+).*,\1\3,'"
)
POWER_QUESTION = "command -v nvpmodel >/dev/null && nvpmodel -q 2>&1"
# All folders in tables of hosts/: a question is the same on every host.
FOLDERS = (
    *("/usr/lib/wsl/lib", "/opt/nvidia/l4t-gpu-libs/nvgpu", "/opt/nvidia/l4t-gpu-libs/openrm"),
    *("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
    *("/usr/lib64", "/usr/lib", "/run/opengl-driver/lib"),
)
_NAMES = (*DRIVER_LIBRARIES, "libcuda.so.1.1", *OPTIONAL_LIBRARIES)
FILES_QUESTION = (
    f"for d in {' '.join(FOLDERS)}; do for n in {' '.join(_NAMES)}; do"
    ' p=$d/$n; [ -e "$p" ] || [ -L "$p" ] || continue;'
    f' echo "$p $(readlink -m "$p") $(od -An -v -tx1 -N{BEGIN_BYTES} "$p" 2>/dev/null | tr -d " \\n")";'
    " done; done; :"
)
_CACHE = '"${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
_TRITON = "lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas*"
# Triton's own variable, PATH, the toolkit, and the ptxas of each Triton.
PTXAS_QUESTION = (
    'for p in "$TRITON_PTXAS_BLACKWELL_PATH" "$TRITON_PTXAS_PATH" "$(command -v ptxas)"'
    f" /usr/local/cuda/bin/ptxas {_CACHE}/*/{_TRITON} ${{MEDLEY_OWN_ENV:-/none}}/{_TRITON}; do"
    ' [ -x "$p" ] && echo "$p $("$p" --version | sed -n "s/.*release \\([0-9.]*\\).*/\\1/p")"; done; :'
)
_INCLUDE = 'import os, sysconfig as s; print(os.path.isfile(s.get_path("include") + "/Python.h"))'
HEADERS_QUESTION = (
    f'for e in {_CACHE}/* "${{MEDLEY_OWN_ENV:-/none}}"; do [ -x "$e/bin/python" ] &&'
    f""" echo "$e $("$e/bin/python" -Ic '{_INCLUDE}')"; done; :"""
)
TOOLKIT_QUESTION = "printf '%s\\n' ${MEDLEY_TOOLKIT:+toolkit} ${MEDLEY_FLAKE:+flake}"

_MIB = 1 << 20
_FIELD_PATTERN = re.compile(r"( *)(\S[^:]*?) *: (.+)")


class GpuUser(Value):
    """A process that has memory of a GPU."""

    pid: int
    name: str
    is_graphics: bool
    memory_bytes: int | None = None


class GpuState(Value):
    """The processes and clocks of a GPU."""

    bus_id: str
    users: tuple[GpuUser, ...] = ()
    clock_limits: tuple[str, ...] = ()
    """The reasons for low clocks now, in nvidia-smi's words."""
    mhz: int | None = None
    """The clock of its SMs now."""
    max_mhz: int | None = None
    """The highest clock of its SMs."""
    set_mhz: int | None = None
    """The clock that is set for applications."""
    default_mhz: int | None = None
    """The default clock for applications."""


class GpuStates(Value):
    gpus: tuple[GpuState, ...] = ()
    power_mode: str | None = None
    """The power mode of a Jetson, as in `MAXN` or `MODE_30W`."""


def read_gpu_states(answers: Transcript) -> GpuStates:
    mode = re.search(r"NV Power Mode: *(\S+)\s", answers.get(POWER_QUESTION, NO_ANSWER).text)
    blocks = re.split(r"^GPU (?=[0-9A-Fa-f]+:)", answers[STATE_QUESTION].text, flags=re.MULTILINE)[1:]
    return GpuStates(tuple(map(_read_state, blocks)), mode[1] if mode else None)


def _read_state(block: str) -> GpuState:
    """Return the state of the GPU of a block of `nvidia-smi -q`."""
    fields = dict(_list_fields(block))
    headings = ("Clocks Event Reasons/", "Clocks Throttle Reasons/")
    active = (path for path, value in _list_fields(block) if path.startswith(headings) and value == "Active")
    return GpuState(
        bus_id=block.split(maxsplit=1)[0],
        users=tuple(_list_users(block)),
        clock_limits=tuple(path.partition("/")[2] for path in active),
        mhz=_parse_mhz(fields.get("Clocks/SM")),
        max_mhz=_parse_mhz(fields.get("Max Clocks/SM")),
        set_mhz=_parse_mhz(fields.get("Applications Clocks/Graphics")),
        default_mhz=_parse_mhz(fields.get("Default Applications Clocks/Graphics")),
    )


def _list_fields(block: str) -> Iterator[tuple[str, str]]:
    """Yield each field of a block as `Heading/Field`, with its value."""
    heading = ""
    for line in block.splitlines():
        if match := _FIELD_PATTERN.fullmatch(line):
            yield f"{heading}/{match[2]}", match[3].strip()
        elif line.strip():
            heading = line.strip()


def _list_users(block: str) -> Iterator[GpuUser]:
    pid, graphics, name = None, False, ""
    for path, value in _list_fields(block):
        match path.rpartition("/")[2]:
            case "Process ID":
                pid = parse_number(value)
            case "Type":
                graphics = "C" not in value
            case "Name":
                name = value
            case "Used GPU Memory" if pid is not None:
                mib = parse_number(value.removesuffix("MiB").strip())
                yield GpuUser(pid, name, graphics, None if mib is None else mib * _MIB)
                pid = None


def _parse_mhz(text: str | None) -> int | None:
    return parse_number((text or "").removesuffix("MHz").strip())


def read_driver_files(answers: Transcript) -> dict[str, LibraryFile]:
    """Return the driver's libraries by path: the file that each leads to, and its first bytes."""
    rows = (line.split(" ") for line in read_lines(answers, FILES_QUESTION))
    complete_rows = (words for words in rows if len(words) > 1 and words[0].startswith("/"))
    return {path: (real, _parse_hex(digits)) for path, real, *digits in complete_rows}


def _parse_hex(digits: list[str]) -> bytes:
    try:
        return bytes.fromhex("".join(digits))
    except ValueError:
        return b""


class Compilers(Value):
    """The compilers that engines call."""

    ptxas: tuple[tuple[str, str], ...] = ()
    """The path and CUDA release of each ptxas; the first is that of Triton's variable, if it is set."""
    is_from_nix: bool = False
    """Whether Nix provides the toolkit of this kind of host."""
    without_headers: tuple[str, ...] = ()
    """The engine environments whose Python has no Python.h."""


def read_compilers(answers: Transcript) -> Compilers:
    """Return the compilers that engines may call."""
    rows = (line.rpartition(" ") for line in read_lines(answers, PTXAS_QUESTION))
    ptxas = dict.fromkeys((path, version) for path, _, version in rows if path and version)
    headers = (line.rpartition(" ") for line in read_lines(answers, HEADERS_QUESTION))
    headless = tuple(path for path, _, has_header in headers if has_header == "False")
    return Compilers(tuple(ptxas), bool(read_lines(answers, TOOLKIT_QUESTION)), headless)
