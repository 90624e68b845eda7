"""The state of a GPU: who uses it, how fast it may run, and what holds its clocks down."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from medley.facts.answers import first, number
from medley.transcript import NO_ANSWER, Transcript

# One call, for each takes a tenth of a second. Of a process's name neither the folder nor the arguments.
STATE = (
    "command -v nvidia-smi >/dev/null && timeout 3 nvidia-smi -q -d PIDS,CLOCK,PERFORMANCE 2>&1"
    r" | sed -E 's,^( +Name +: )([^ ]*/)?([^ /]+).*,\1\3,'"
)
POWER = "command -v nvpmodel >/dev/null && nvpmodel -q 2>&1"

QUESTIONS = (STATE, POWER)

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
    mode_number: int | None = None


def gpu_states(answers: Transcript) -> GpuStates | None:
    """None where it was not asked."""
    if STATE not in answers:
        return None
    mode = re.search(r"NV Power Mode: *(\S+)\s+([0-9]{1,3})?", answers.get(POWER, NO_ANSWER).text)
    blocks = re.split(r"^GPU (?=[0-9A-Fa-f]+:)", answers[STATE].text, flags=re.MULTILINE)[1:]
    return GpuStates(
        tuple(_state(block) for block in blocks), mode[1] if mode else None, number(mode[2]) if mode else None
    )


def refusal(answers: Transcript) -> str | None:
    """What nvidia-smi says instead of states."""
    return first(answers, STATE)


def _state(block: str) -> GpuState:
    found = dict(_fields(block))
    return GpuState(
        bus_id=block.split(maxsplit=1)[0],
        users=tuple(_users(block)),
        held=tuple(_held(block)),
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


def _held(block: str) -> Iterator[str]:
    for path, value in _fields(block):
        heading, _, reason = path.partition("/")
        if heading in {"Clocks Event Reasons", "Clocks Throttle Reasons"} and value == "Active":
            yield reason


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
