"""Access is what this user may do on the host: open its GPUs and RDMA devices, lock memory, open files."""

from dataclasses import dataclass, field

from medley import limits
from medley.facts.answers import lines
from medley.limits import Limits
from medley.transcript import Transcript

# Whether it opens, and not its owner: a group may be named after a person.
DEVICES = (
    "for f in /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia[0-9]* /dev/nvmap /dev/nvhost-gpu"
    " /dev/nvgpu/igpu0/ctrl /dev/infiniband/uverbs* /dev/infiniband/rdma_cm; do"
    ' [ -e "$f" ] || continue; m=no; [ -r "$f" ] && [ -w "$f" ] && m=yes; echo "$f $m"; done; :'
)
LIMITS = "grep -E '^Max (locked memory|open files|processes) ' /proc/self/limits"
ROOT = "id -u | grep -qx 0 && echo root; :"

QUESTIONS = (DEVICES, LIMITS, ROOT)


@dataclass(frozen=True)
class Access:
    closed: tuple[str, ...] = ()
    """Devices that are there and that this user may not open."""
    open: tuple[str, ...] = ()
    limits: Limits = field(default_factory=Limits)
    root: bool = False


def access(answers: Transcript) -> Access | None:
    if DEVICES not in answers:
        return None
    said = [line.rsplit(" ", 1) for line in lines(answers, DEVICES)]
    return Access(
        closed=tuple(path for path, may in said if may == "no"),
        open=tuple(path for path, may in said if may == "yes"),
        limits=limits.limits("\n".join(lines(answers, LIMITS))),
        root=bool(lines(answers, ROOT)),
    )
