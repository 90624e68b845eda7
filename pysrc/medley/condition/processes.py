"""Processes of a host that matter to a model: Rays, engines, desktops and guards of memory, by name alone."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from medley.facts.answers import lines, number
from medley.transcript import Transcript

_NAMES = {
    "ray": r"raylet|gcs_server|ray::.*",
    "engine": r"vllm|VLLM::.*|sglang::.*|ollama|llama-server|text-generation|tritonserver|trtllm-serve",
    "desktop": r"Xorg|Xwayland|gnome-shell|kwin_.*|plasmashell|lxsession|xfwm4",
    "guard": r"earlyoom|systemd-oomd|nohang.*",
    "clock": r"systemd-timesyn|chronyd|ntpd|ntpd-rs|openntpd|ptp4l",
    "firewall": r"firewalld",
}
# The names of other processes are nobody's business. The kernel keeps 15 letters of a name.
PROCESSES = (
    'ps -eo uid=,pid=,comm= | awk -v me="$(id -u)" \'$3 ~ /^('
    + "|".join(_NAMES.values()).replace(".*", "")
    + ')/ {print ($1 == me ? "own" : "other"), $2, $3}\''
)
# Medley's own carry its mark.
MARKED = "grep -lsz '^MEDLEY_RAY=' /proc/[0-9]*/environ | cut -d/ -f3"

QUESTIONS = (PROCESSES, MARKED)


@dataclass(frozen=True)
class Process:
    pid: int
    name: str
    sort: str
    """ray, engine, desktop, guard, clock or firewall."""
    own: bool
    """This user's."""
    ours: bool = False
    """Medley's."""


def processes(answers: Transcript) -> tuple[Process, ...] | None:
    """None where it was not asked, or there is no ps."""
    if PROCESSES not in answers or answers[PROCESSES].status:
        return None
    return tuple(_processes(answers))


def _processes(answers: Transcript) -> Iterator[Process]:
    marked = {number(line) for line in lines(answers, MARKED)}
    for line in lines(answers, PROCESSES):
        whose, _, rest = line.strip().partition(" ")
        pid, _, name = rest.partition(" ")
        sort = next((sort for sort, names in _NAMES.items() if re.fullmatch(names, name)), None)
        if sort and (found := number(pid)) is not None:
            yield Process(found, name, sort, own=whose == "own", ours=found in marked)
