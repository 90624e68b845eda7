"""`Health`: what may be in a model's way today; memory, processes, disks.

Its questions are apart from those of facts, so that nobody but the doctor and a transcript pays for them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from medley.host.driver_libraries import Seen
from medley.host.facts import meminfo
from medley.host.health import access, gpu, kernel, software
from medley.host.health.access import Access, Clock, Firewall
from medley.host.health.gpu import Compilers, GpuStates
from medley.host.health.kernel import KernelReport
from medley.host.health.software import HubAccess, Leftovers, RdmaParts, Settings
from medley.transcript import NO_ANSWER, Transcript, lines

PAGES = "grep -E '^(MemFree|Buffers|Cached|SReclaimable|Shmem|SwapTotal|SwapFree):' /proc/meminfo"
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
# Whose state folder the cluster of each Ray process has. Agents of Ray write a title over their variables
# (setproctitle), so the nearest ancestor with the mark counts. The same path may be another folder in a
# container.
CLUSTERS = (
    'own="${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}/ray";'
    " marked=\" $(grep -lsz '^MEDLEY_RAY=' /proc/[0-9]*/environ | cut -d/ -f3 | tr '\\n' ' ')\";"
    f" ps -eo pid=,comm= | awk '$2 ~ /^({_NAMES['ray'].replace('.*', '')})/ {{print $1}}'"
    " | while read -r pid; do at=$pid;"
    ' while [ "${at:-0}" -gt 1 ]; do case "$marked" in *" $at "*) break;; esac;'
    ' at=$(sed -n \'s/^PPid:[^0-9]*//p\' "/proc/$at/status"); done; [ "${at:-0}" -gt 1 ] || continue;'
    " mark=$(grep -sz '^MEDLEY_RAY=' \"/proc/$at/environ\" | tr -d '\\0'); mark=${mark#*=};"
    ' if [ "/proc/$at/root$mark" -ef "$own" ]; then echo "$pid here";'
    ' elif [ "$mark" = "$own" ] && [ ! -e "$own" ]'
    ' && [ "$(readlink "/proc/$at/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ]; then echo "$pid here";'
    ' else echo "$pid elsewhere"; fi; done'
)
# The nearest folder above that exists; of df only numbers, for a mount point may say whose it is.
DISKS = (
    'for place in "environments ${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    ' "state ${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
    f' "models {software.HUB_CACHE}" "temporary ${{TMPDIR:-/tmp}}"; do'
    ' d="${place#* }"; while [ ! -e "$d" ]; do d=$(dirname "$d"); done;'
    ' w=no; [ -w "$d" ] && w=yes;'
    ' echo "${place%% *} $w $(df -kP "$d" | awk \'NR == 2 {print $2, $4}\')"; done'
)
# `planner.device_history.FILE`: what this host's devices and links reached before.
SPEEDS = "tail -n 60 ${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}/device-history.jsonl"

QUESTIONS: tuple[str, ...] = (
    SPEEDS,
    *(
        gpu.STATE,
        gpu.POWER,
        gpu.FILES,
        PAGES,
        PROCESSES,
        CLUSTERS,
        gpu.PTXAS,
        gpu.TOOLKIT,
        gpu.HEADERS,
        DISKS,
    ),
    *access.QUESTIONS,
    *software.QUESTIONS,
    *kernel.QUESTIONS,
)

_T = TypeVar("_T")


@dataclass(frozen=True)
class Pages:
    free_bytes: int
    """Used by nobody, not even as a cache: all that CUDA itself counts on unified memory."""
    cached_bytes: int
    """Of files, which the kernel gives back when it is asked to."""
    swap_bytes: int = 0
    swapped_bytes: int = 0


def pages(answers: Transcript) -> Pages | None:
    found = meminfo(answers[PAGES].text)
    if "MemFree" not in found:
        return None
    cached = sum(found.get(key, 0) for key in ("Buffers", "Cached", "SReclaimable")) - found.get("Shmem", 0)
    swap = found.get("SwapTotal", 0)
    return Pages(found["MemFree"], max(0, cached), swap, swap - found.get("SwapFree", swap))


@dataclass(frozen=True)
class ProcessUsage:
    pid: int
    name: str
    sort: str
    """ray, engine, desktop, guard, clock or firewall."""
    own: bool
    """This user's."""
    cluster: str | None = None
    """Of a medley's Ray: `here`, with this user's state folder, or `elsewhere`, with another."""

    @property
    def ours(self) -> bool:
        """Whether `medley ray-stop` of this user ends it."""
        return self.own and self.cluster == "here"


def processes(answers: Transcript) -> tuple[ProcessUsage, ...] | None:
    """None where there is no ps."""
    said = answers[PROCESSES]
    if said.status:
        return None
    clusters = dict(
        re.findall(r"^([0-9]{1,15}) (here|elsewhere)$", answers.get(CLUSTERS, NO_ANSWER).text, re.MULTILINE)
    )
    found = []
    for whose, pid, name in re.findall(r"^(own|other) ([0-9]{1,15}) (.+)$", said.text, re.MULTILINE):
        if sort := next((sort for sort, names in _NAMES.items() if re.fullmatch(names, name)), None):
            found.append(ProcessUsage(int(pid), name, sort, whose == "own", clusters.get(pid)))
    return tuple(found)


@dataclass(frozen=True)
class Disk:
    what: str
    """environments, state, models or temporary."""
    writable: bool
    total_bytes: int
    free_bytes: int


def disks(answers: Transcript) -> tuple[Disk, ...]:
    found = re.findall(r"^(\w+) (yes|no) ([0-9]{1,15}) ([0-9]{1,15})$", answers[DISKS].text, re.MULTILINE)
    return tuple(
        Disk(what, writable == "yes", int(total) << 10, int(free) << 10)
        for what, writable, total, free in found
    )


@dataclass(frozen=True)
class Health:
    """What is None was not asked when the transcript was recorded, or could not be answered."""

    gpus: GpuStates | None = None
    driver: Mapping[str, Seen] | None = None
    """Libraries of the driver by path: what each leads to, and how that begins."""
    pages: Pages | None = None
    processes: tuple[ProcessUsage, ...] | None = None
    clusters_known: bool = False
    """Whether the transcript has the cluster of each Ray process; before November 2026 it had a mark only."""
    compilers: Compilers | None = None
    disks: tuple[Disk, ...] | None = None
    access: Access | None = None
    doors: Firewall | None = None
    clock: Clock | None = None
    hub: HubAccess | None = None
    rdma: RdmaParts | None = None
    settings: Settings | None = None
    keeping: Leftovers | None = None
    kernel: KernelReport | None = None
    speeds: tuple[str, ...] | None = None
    """Lines of the history of its devices' and links' speeds."""


def health(answers: Transcript) -> Health:
    def asked(question: str, read: Callable[[Transcript], _T]) -> _T | None:
        return read(answers) if question in answers else None

    return Health(
        gpus=asked(gpu.STATE, gpu.gpu_states),
        driver=asked(gpu.FILES, gpu.driver_files),
        pages=asked(PAGES, pages),
        processes=asked(PROCESSES, processes),
        clusters_known=CLUSTERS in answers,
        compilers=asked(gpu.PTXAS, gpu.compilers),
        disks=asked(DISKS, disks),
        access=asked(access.DEVICES, access.access),
        doors=asked(access.LISTENING, access.firewall),
        clock=asked(access.SYNCHRONISED, access.clock),
        hub=asked(software.ANSWER, software.hub_access),
        rdma=asked(software.LIBRARIES, software.rdma_parts),
        settings=asked(software.VARIABLES, software.settings),
        keeping=asked(software.SECRETS, software.leftovers),
        kernel=asked(kernel.CMA, kernel.kernel_report),
        speeds=asked(SPEEDS, lambda answers: lines(answers, SPEEDS)),
    )
