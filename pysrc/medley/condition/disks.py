"""Disks are what is left where environments, models, medley's own files and temporary ones lie."""

from dataclasses import dataclass

from medley.facts.answers import lines, number
from medley.transcript import Transcript

# The nearest folder above that exists; of df only numbers, for a mount point may say whose it is.
DISKS = (
    'for place in "environments ${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    ' "state ${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
    ' "models ${HF_HUB_CACHE:-${HF_HOME:-$HOME/.cache/huggingface}/hub}" "temporary ${TMPDIR:-/tmp}"; do'
    ' d="${place#* }"; while [ ! -e "$d" ]; do d=$(dirname "$d"); done;'
    ' w=no; [ -w "$d" ] && w=yes;'
    ' echo "${place%% *} $w $(df -kP "$d" | awk \'NR == 2 {print $2, $4}\')"; done'
)

QUESTIONS = (DISKS,)


@dataclass(frozen=True)
class Disk:
    what: str
    """environments, state, models or temporary."""
    writable: bool
    total_bytes: int
    free_bytes: int


def disks(answers: Transcript) -> tuple[Disk, ...] | None:
    if DISKS not in answers:
        return None
    found = []
    for line in lines(answers, DISKS):
        what, *rest = line.split()
        total, free = (number(each) for each in (*rest[1:3], *("", "")[: 3 - len(rest)]))
        if total is not None and free is not None:
            found.append(Disk(what, rest[0] == "yes", total << 10, free << 10))
    return tuple(found)
