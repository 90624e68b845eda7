"""Read the `Health` of a host: memory, processes, disks, and other causes of failures.

Its questions are separate from those of facts, so that only the doctor and transcripts take their time.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from medley.host.driver_libraries import LibraryFile
from medley.host.facts import parse_meminfo
from medley.host.health import access, gpu, kernel, software
from medley.host.health.access import Access, Clock, Firewall
from medley.host.health.gpu import Compilers, GpuStates
from medley.host.health.kernel import KernelReport
from medley.host.health.software import HubAccess, MedleyFiles, RdmaParts, Settings
from medley.transcript import NO_ANSWER, Transcript, read_lines
from medley.values import Value

PAGES_QUESTION = "grep -E '^(MemFree|Buffers|Cached|SReclaimable|Shmem|SwapTotal|SwapFree):' /proc/meminfo"
_NAMES_BY_ROLE = {
    "ray": r"raylet|gcs_server|ray::.*",
    "engine": r"vllm|VLLM::.*|sglang::.*|ollama|llama-server|text-generation|tritonserver|trtllm-serve",
    "desktop": r"Xorg|Xwayland|gnome-shell|kwin_.*|plasmashell|lxsession|xfwm4",
    "guard": r"earlyoom|systemd-oomd|nohang.*",
    "clock": r"systemd-timesyn|chronyd|ntpd|ntpd-rs|openntpd|ptp4l",
    "firewall": r"firewalld",
}
# The names of other processes stay private. The kernel keeps 15 letters of a name.
PROCESSES_QUESTION = (
    'ps -eo uid=,pid=,comm= | awk -v me="$(id -u)" \'$3 ~ /^('
    + "|".join(_NAMES_BY_ROLE.values()).replace(".*", "")
    + ')/ {print ($1 == me ? "own" : "other"), $2, $3}\''
)
# The state folder of each Ray process's cluster. Agents of Ray write a title over their variables
# (setproctitle), so the nearest ancestor with the mark counts. The same path may be another folder in a
# container.
CLUSTERS_QUESTION = (
    'own="${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}/ray";'
    " marked=\" $(grep -lsz '^MEDLEY_RAY=' /proc/[0-9]*/environ | cut -d/ -f3 | tr '\\n' ' ')\";"
    f" ps -eo pid=,comm= | awk '$2 ~ /^({_NAMES_BY_ROLE['ray'].replace('.*', '')})/ {{print $1}}'"
    " | while read -r pid; do at=$pid;"
    ' while [ "${at:-0}" -gt 1 ]; do case "$marked" in *" $at "*) break;; esac;'
    ' at=$(sed -n \'s/^PPid:[^0-9]*//p\' "/proc/$at/status"); done; [ "${at:-0}" -gt 1 ] || continue;'
    " mark=$(grep -sz '^MEDLEY_RAY=' \"/proc/$at/environ\" | tr -d '\\0'); mark=${mark#*=};"
    ' if [ "/proc/$at/root$mark" -ef "$own" ]; then echo "$pid here";'
    ' elif [ "$mark" = "$own" ] && [ ! -e "$own" ]'
    ' && [ "$(readlink "/proc/$at/ns/mnt")" = "$(readlink /proc/self/ns/mnt)" ]; then echo "$pid here";'
    ' else echo "$pid elsewhere"; fi; done'
)
# The nearest folder above that exists. Only df's numbers, because a mount point may have a person's name.
DISKS_QUESTION = (
    'for place in "environments ${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    ' "state ${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
    f' "models {software.HUB_CACHE}" "temporary ${{TMPDIR:-/tmp}}"; do'
    ' d="${place#* }"; while [ ! -e "$d" ]; do d=$(dirname "$d"); done;'
    ' w=no; [ -w "$d" ] && w=yes;'
    ' echo "${place%% *} $w $(df -kP "$d" | awk \'NR == 2 {print $2, $4}\')"; done'
)
# The file of `planner.device_history`: speeds of this host's devices and links that were measured before.
SPEEDS_QUESTION = (
    "tail -n 60 ${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}/device-history.jsonl"
)

QUESTIONS: tuple[str, ...] = (
    SPEEDS_QUESTION,
    *(
        gpu.STATE_QUESTION,
        gpu.POWER_QUESTION,
        gpu.FILES_QUESTION,
        PAGES_QUESTION,
        PROCESSES_QUESTION,
        CLUSTERS_QUESTION,
        gpu.PTXAS_QUESTION,
        gpu.TOOLKIT_QUESTION,
        gpu.HEADERS_QUESTION,
        DISKS_QUESTION,
    ),
    *access.QUESTIONS,
    *software.QUESTIONS,
    *kernel.QUESTIONS,
)

_T = TypeVar("_T")


class Pages(Value):
    """The use of the host's memory."""

    free_bytes: int
    """The unused bytes, without caches: CUDA itself counts only these on unified memory."""
    cached_bytes: int
    """The bytes of files in the page cache, which the kernel frees on demand."""
    swap_bytes: int = 0
    swapped_bytes: int = 0


def read_pages(answers: Transcript) -> Pages | None:
    """Return the use of memory; None without the kernel's figures."""
    sizes = parse_meminfo(answers[PAGES_QUESTION].text)
    if "MemFree" not in sizes:
        return None
    cached = sum(sizes.get(key, 0) for key in ("Buffers", "Cached", "SReclaimable")) - sizes.get("Shmem", 0)
    swap = sizes.get("SwapTotal", 0)
    return Pages(sizes["MemFree"], max(0, cached), swap, swap - sizes.get("SwapFree", swap))


class ProcessUsage(Value):
    """A process that matters to a model."""

    pid: int
    name: str
    role: str
    """ray, engine, desktop, guard, clock or firewall."""
    is_of_user: bool
    """Whether the process is this user's."""
    cluster: str | None = None
    """The state folder of a medley's Ray: `here` for this user's, `elsewhere` for another."""

    @property
    def is_own_ray(self) -> bool:
        """Whether `medley ray-stop` of this user ends it."""
        return self.is_of_user and self.cluster == "here"


def read_processes(answers: Transcript) -> tuple[ProcessUsage, ...] | None:
    """Return the processes that matter to a model; None where there is no ps."""
    answer = answers[PROCESSES_QUESTION]
    if answer.status:
        return None
    clusters = dict(
        re.findall(
            r"^([0-9]{1,15}) (here|elsewhere)$", answers.get(CLUSTERS_QUESTION, NO_ANSWER).text, re.MULTILINE
        )
    )
    usages = []
    for owner, pid, name in re.findall(r"^(own|other) ([0-9]{1,15}) (.+)$", answer.text, re.MULTILINE):
        if role := next((role for role, names in _NAMES_BY_ROLE.items() if re.fullmatch(names, name)), None):
            usages.append(ProcessUsage(int(pid), name, role, owner == "own", clusters.get(pid)))
    return tuple(usages)


class Disk(Value):
    what: str
    """environments, state, models or temporary."""
    is_writable: bool
    total_bytes: int
    free_bytes: int


def read_disks(answers: Transcript) -> tuple[Disk, ...]:
    """Return the disks of medley's folders."""
    rows = re.findall(
        r"^(\w+) (yes|no) ([0-9]{1,15}) ([0-9]{1,15})$", answers[DISKS_QUESTION].text, re.MULTILINE
    )
    return tuple(
        Disk(what, writable == "yes", int(total_kib) << 10, int(free_kib) << 10)
        for what, writable, total_kib, free_kib in rows
    )


class Health(Value):
    """The health of a host; None where the transcript does not have the question, or the answer."""

    gpus: GpuStates | None = None
    driver: Mapping[str, LibraryFile] | None = None
    """The libraries of the driver by path: the file that each leads to, and its first bytes."""
    pages: Pages | None = None
    processes: tuple[ProcessUsage, ...] | None = None
    records_clusters: bool = False
    """Whether the transcript has the cluster of each Ray process; before November 2026 it had a mark only."""
    compilers: Compilers | None = None
    disks: tuple[Disk, ...] | None = None
    access: Access | None = None
    firewall: Firewall | None = None
    clock: Clock | None = None
    hub: HubAccess | None = None
    rdma: RdmaParts | None = None
    settings: Settings | None = None
    medley_files: MedleyFiles | None = None
    kernel: KernelReport | None = None
    speeds: tuple[str, ...] | None = None
    """The lines of the history of its devices' and links' speeds."""


def read_health(answers: Transcript) -> Health:
    """Return the health of the host of a transcript."""

    def read_if_asked(question: str, read: Callable[[Transcript], _T]) -> _T | None:
        return read(answers) if question in answers else None

    return Health(
        gpus=read_if_asked(gpu.STATE_QUESTION, gpu.read_gpu_states),
        driver=read_if_asked(gpu.FILES_QUESTION, gpu.read_driver_files),
        pages=read_if_asked(PAGES_QUESTION, read_pages),
        processes=read_if_asked(PROCESSES_QUESTION, read_processes),
        records_clusters=CLUSTERS_QUESTION in answers,
        compilers=read_if_asked(gpu.PTXAS_QUESTION, gpu.read_compilers),
        disks=read_if_asked(DISKS_QUESTION, read_disks),
        access=read_if_asked(access.DEVICES_QUESTION, access.read_access),
        firewall=read_if_asked(access.LISTENING_QUESTION, access.read_firewall),
        clock=read_if_asked(access.SYNCHRONISED_QUESTION, access.read_clock),
        hub=read_if_asked(software.ANSWER_QUESTION, software.read_hub_access),
        rdma=read_if_asked(software.LIBRARIES_QUESTION, software.read_rdma_parts),
        settings=read_if_asked(software.VARIABLES_QUESTION, software.read_settings),
        medley_files=read_if_asked(software.SECRETS_QUESTION, software.read_medley_files),
        kernel=read_if_asked(kernel.CMA_QUESTION, kernel.read_kernel_report),
        speeds=read_if_asked(SPEEDS_QUESTION, lambda answers: read_lines(answers, SPEEDS_QUESTION)),
    )
