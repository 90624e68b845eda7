"""Recorded hosts as the doctor looks at them, with the answers of a sound day or others in their place.

The forms of the answers are those of real programs: nvidia-smi -q of drivers 555 and 580, and nvpmodel -q, as
published in bug reports; the rest as Debian 12 and Ubuntu 24.04 print them. Numbers and sizes are made up.
"""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from medley import config
from medley.doctor.checks import Examination
from medley.doctor.examination import build_examination, examine_host
from medley.host import health
from medley.host.driver_libraries import DRIVER_LIBRARIES
from medley.host.facts import Facts
from medley.host.health import QUESTIONS, access, gpu, kernel, software
from medley.host.kind import Kind, match_kind
from medley.transcript import Answer, Transcript, parse_transcript
from tests.environment.driver_trees import begin
from tests.host.recordings import HOSTS

if TYPE_CHECKING:
    from medley.cluster.cluster_file import ClusterHost

Said = Mapping[str, str | Answer]
KINDS = dict(config.load_hosts())
NOTHING = Answer("", 1)
NO_PROGRAM = Answer("", 127)

REASONS = """\
        Performance State                     : P8
        Clocks Event Reasons
            Idle                              : Active
            Applications Clocks Setting       : Not Active
            SW Power Cap                      : Not Active
            HW Slowdown                       : Not Active
                HW Thermal Slowdown           : Not Active
                HW Power Brake Slowdown       : Not Active
            Sync Boost                        : Not Active
            SW Thermal Slowdown               : Not Active
            Display Clock Setting             : Not Active
"""
CLOCKS = """\
        Clocks
            Graphics                          : 208 MHz
            SM                                : 208 MHz
            Memory                            : N/A
            Video                             : 598 MHz
        Applications Clocks
            Graphics                          : 2418 MHz
            Memory                            : N/A
        Default Applications Clocks
            Graphics                          : 2418 MHz
            Memory                            : N/A
        Max Clocks
            Graphics                          : 3003 MHz
            SM                                : 3003 MHz
"""
IDLE = "        Processes                             : None\n"


def smi(*parts: str, bus: str = "0000000F:01:00.0") -> str:
    """What nvidia-smi -q prints of one GPU, of these parts."""
    head = "==============NVSMI LOG==============\n\nDriver Version : 580.126.09\nAttached GPUs : 1\n"
    return f"{head}GPU {bus}\n{''.join(parts)}"


def used_by(*users: tuple[int, str, str, int]) -> str:
    """The processes of a GPU: number, type, name, MiB."""
    return "        Processes\n" + "".join(
        f"            GPU instance ID                   : N/A\n"
        f"            Compute instance ID               : N/A\n"
        f"            Process ID                        : {pid}\n"
        f"                Type                          : {sort}\n"
        f"                Name                          : {name}\n"
        f"                Used GPU Memory               : {mib} MiB\n"
        for pid, sort, name, mib in users
    )


def df(**places: tuple[str, int, int]) -> str:
    """Writable, total and free GiB of each."""
    return "".join(
        f"{what} {may} {total << 20} {free << 20}\n" for what, (may, total, free) in places.items()
    )


ROOM = dict.fromkeys(("environments", "state", "models", "temporary"), ("yes", 1000, 800))
LIMITS = """\
Max processes             96343                96343                processes
Max open files            1024                 1048576              files
Max locked memory         unlimited            unlimited            bytes
"""


def meminfo(free: int, cached: int, swap: int = 0, swapped: int = 0) -> str:
    """In GiB."""
    kib = {"MemFree": free, "Buffers": 0, "Cached": cached, "SwapTotal": swap, "SwapFree": swap - swapped}
    return "".join(f"{name}: {value << 20} kB\n" for name, value in kib.items())


def driver(folder: str, machine: str = "aarch64", version: str = "580.95.05", nvml: str = "") -> str:
    """What lies there of a driver; NVML may be of another version."""
    of = dict.fromkeys(DRIVER_LIBRARIES, version) | {DRIVER_LIBRARIES[1]: nvml or version}
    return "".join(
        f"{folder}/{name} {folder}/{name.rpartition('.')[0]}.{of[name]} {begin(machine).hex()}\n"
        for name in DRIVER_LIBRARIES
    )


SOUND: Said = {
    gpu.FILES_QUESTION: driver("/usr/lib/aarch64-linux-gnu") + driver("/usr/lib/x86_64-linux-gnu", "x86_64"),
    gpu.STATE_QUESTION: smi(IDLE, REASONS, CLOCKS),
    gpu.POWER_QUESTION: NOTHING,
    health.PAGES_QUESTION: meminfo(110, 5),
    health.PROCESSES_QUESTION: "other 812 earlyoom\nother 640 systemd-timesyn\n",
    health.CLUSTERS_QUESTION: NOTHING,
    gpu.PTXAS_QUESTION: "/usr/local/cuda/bin/ptxas 13.0\n",
    gpu.TOOLKIT_QUESTION: "",
    gpu.HEADERS_QUESTION: "/home/you/.cache/medley/envs/vllm-cuda-0123456789ab True\n",
    health.DISKS_QUESTION: df(**ROOM),
    access.DEVICES_QUESTION: "/dev/nvidiactl yes\n/dev/nvidia0 yes\n/dev/infiniband/uverbs0 yes\n",
    access.LIMITS_QUESTION: LIMITS,
    access.LISTENING_QUESTION: "0016 all\n0277 loopback\n",
    access.UFW_QUESTION: 'ENABLED=no\nDEFAULT_INPUT_POLICY="DROP"\n',
    access.NFT_QUESTION: "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority 0;\n",
    access.IPTABLES_QUESTION: "-P INPUT ACCEPT\n",
    access.LOCAL_ADDRESSES_QUESTION: "127.0.1.1\n",
    access.SYNCHRONISED_QUESTION: "NTP=yes\nNTPSynchronized=yes\n",
    access.CHARSET_QUESTION: "C.UTF-8\n",
    software.ANSWER_QUESTION: "200",
    software.SETTINGS_QUESTION: "",
    software.MODE_QUESTION: "600\n",
    software.LIBRARIES_QUESTION: "libibverbs.so.1\nlibmlx5.so.1\nlibrdmacm.so.1\n",
    software.MODULES_QUESTION: "nvidia \nib_uverbs \nmlx5_ib \n",
    software.OPEN_DRIVER_QUESTION: "Open Kernel Module\n",
    software.VARIABLES_QUESTION: NOTHING,
    software.VLLM_NAMES_QUESTION: "VLLM_LOGGING_LEVEL\n",
    software.MTUS_QUESTION: "9000\n",
    software.LINGERS_QUESTION: "yes\n",
    software.RUNTIMES_QUESTION: 'docker\nnvidia-ctk\nnvidia-container-runtime\n"nvidia"\n',
    software.SECRETS_QUESTION: "600 token\n",
    software.MEMBERSHIP_QUESTION: NOTHING,
    software.SERVING_QUESTION: NOTHING,
    software.PACKAGES_QUESTION: "".join(
        f"vllm-cuda-0123456789ab/lib/python3.12/site-packages/{each}.dist-info\n"
        for each in ("nvidia_nccl_cu13-2.29.7", "ray-2.60.0", "torch-2.13.0", "vllm-0.32.0")
    ),
    software.USER_ENVIRONMENT_QUESTION: NOTHING,
    health.SPEEDS_QUESTION: NOTHING,
    kernel.PCIE_FATAL_QUESTION: "",
    kernel.PCIE_LOG_QUESTION: "",
    kernel.CMA_QUESTION: "CmaTotal: 32768 kB\nCmaFree: 30208 kB\n",
    kernel.PEERS_QUESTION: " \tGPU0\t\n GPU0\tX\t\n\nLegend:\n\n  X    = Self\n  OK   = Status Ok\n",
    kernel.IOMMU_QUESTION: "",
    kernel.POWER_MODES_QUESTION: Answer("", 2),
    kernel.GPU_CLOCKS_QUESTION: "",
}
JETSON: Said = {
    gpu.FILES_QUESTION: driver("/usr/lib/aarch64-linux-gnu/nvidia", version="540.4.0"),
    gpu.POWER_QUESTION: "NV Power Mode: MAXN\n0\n",
    kernel.POWER_MODES_QUESTION: "MAXN=0\nMODE_15W=1\nMODE_30W=2\nMODE_50W=3\n",
    kernel.GPU_CLOCKS_QUESTION: "17000000.gpu 1300500000 1300500000\n",
    access.DEVICES_QUESTION: "/dev/nvmap yes\n/dev/nvhost-gpu yes\n",
    software.MTUS_QUESTION: "none\n",
}
CPU: Said = {
    gpu.FILES_QUESTION: "",
    gpu.STATE_QUESTION: NO_PROGRAM,
    access.DEVICES_QUESTION: "",
    software.PACKAGES_QUESTION: "",
    software.RUNTIMES_QUESTION: "",
    health.PAGES_QUESTION: meminfo(90, 5),
}


def kind_of(facts: Facts, named: str | None) -> Kind:
    """As a user's host is recognised, with tables that are read once."""
    assert named is None
    return match_kind(facts, KINDS)


def sound(name: str) -> dict[str, str | Answer]:
    """The answers of a sound day on a recorded host."""
    said = dict(SOUND)
    if name.startswith(("orin", "thor")):
        said |= JETSON
    if name.startswith("thor-mgbe"):
        said |= {software.MTUS_QUESTION: "9000\n"}
    if name.startswith(("cpu", "debian", "pc", "server")):
        said |= CPU
    return said


@cache
def _recorded(name: str, moved: tuple[tuple[str, str], ...] = ()) -> Transcript:
    text = (HOSTS / f"{name}.txt").read_text()
    for here, there in moved:
        assert here in text
        text = text.replace(here, there)
    return parse_transcript(text)


def answers(name: str, said: Said | None = None, moved: Mapping[str, str] | None = None) -> Transcript:
    """Of a recorded host; `said` in place of some of a sound day's answers, `moved` what it has elsewhere."""
    recorded = _recorded(name, tuple((moved or {}).items()))
    more = {**sound(name), **(said or {})}
    assert set(sound(name)) == set(QUESTIONS), set(sound(name)) ^ set(QUESTIONS)
    return {**recorded, **{q: a if isinstance(a, Answer) else Answer(a) for q, a in more.items()}}


def case_of(hosts: Mapping[str, Said | None], **more: Any) -> Examination:
    """Of recorded hosts; `members`, `greetings` and `moves` by host, the rest is the case's own."""
    members: Mapping[str, ClusterHost] = more.pop("members", {})
    greetings: Mapping[str, Mapping[str, Any]] = more.pop("greetings", {})
    moves: Mapping[str, Mapping[str, str]] = more.pop("moves", {})
    wishes = more.pop("wishes", None)
    made = {
        name: examine_host(
            name,
            answers(name.partition(" ")[0], said, moves.get(name)),
            member=members.get(name),
            greeting=greetings.get(name),
        )
        for name, said in hosts.items()
    }
    return build_examination(made, wishes, **more)


def old(name: str, moved: Mapping[str, str] | None = None) -> Examination:
    """A recorded host as it was recorded before there was a doctor."""
    return build_examination({name: examine_host(name, _recorded(name, tuple((moved or {}).items())))})
