"""`Facts` of a host, parsed from a transcript; CPU and memory."""

import re
from dataclasses import dataclass, field

from medley.host.facts import gpu, network, rdma, system
from medley.host.facts.gpu import Gpu, NvidiaDriver
from medley.host.facts.network import Net
from medley.host.facts.rdma import RdmaPort
from medley.host.facts.system import Board, Software
from medley.transcript import Transcript, first, lines, number, required, required_number

GIB = 1 << 30

SYSTEM = "uname -m"
THREADS = "nproc || getconf _NPROCESSORS_ONLN"
CORES = "lscpu -p=core,socket | grep -v '^#' | sort -u | wc -l"
# Arm's /proc/cpuinfo has numbers where lscpu has the core's name; a small system may lack lscpu.
KIND = "lscpu | grep -E '^ *(Model name|Flags):' || grep -m2 -E '^(model name|flags|Features)' /proc/cpuinfo"
NODES = "ls -d /sys/devices/system/node/node[0-9]*"
MEMINFO = "grep -E '^(MemTotal|MemAvailable):' /proc/meminfo"
# Processes of one engine talk through it, and a container's default of 64 MiB starves them.
SHM = "df -kP /dev/shm"

QUESTIONS = (
    *(SYSTEM, THREADS, CORES, KIND, NODES, MEMINFO, SHM),
    *gpu.QUESTIONS,
    *system.QUESTIONS,
    *network.QUESTIONS,
    *rdma.QUESTIONS,
)

# What vLLM's CPU kernels are chosen by, on x86 and on Arm.
_FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)
_FIELD = re.compile(r"(?<!\w)(\w{1,40}):\s{1,40}([0-9]{1,15}) kB")


@dataclass(frozen=True)
class Cpu:
    """`threads` are those this process may use; `cores` are the host's."""

    system: str
    """As Nix writes it: x86_64-linux."""
    threads: int
    model: str | None = None
    """A host with two sorts of cores has both names, joined by +."""
    cores: int | None = None
    numa_nodes: int | None = None
    flags: tuple[str, ...] = ()
    """Those that decide which kernels run; not all."""


@dataclass(frozen=True)
class Memory:
    total_bytes: int
    available_bytes: int
    """What can be had without swapping; counts the page cache, which CUDA's own figure does not."""
    shm_bytes: int | None = None
    """The size of /dev/shm."""


@dataclass(frozen=True)
class Facts:
    cpu: Cpu
    memory: Memory
    gpus: tuple[Gpu, ...] = ()
    driver: NvidiaDriver = field(default_factory=NvidiaDriver)
    board: Board = field(default_factory=Board)
    software: Software = field(default_factory=Software)
    net: Net = field(default_factory=Net)
    rdma: tuple[RdmaPort, ...] = ()

    @property
    def system(self) -> str:
        return self.cpu.system

    @property
    def is_jetson(self) -> bool:
        """By board, or by kernel: a container does not see the device tree."""
        known = self.board.l4t is not None or self.board.is_tegra
        return known or (self.software.kernel or "").endswith("-tegra")


def facts(answers: Transcript) -> Facts:
    board = system.board(answers)
    # L4T before r36 has no nvidia-smi.
    integrated = (Gpu(0, f"{board.soc} integrated GPU"),) if board.is_tegra else ()
    return Facts(
        cpu=cpu(answers),
        memory=memory(answers),
        gpus=gpu.gpus(answers) or integrated,
        driver=gpu.driver(answers),
        board=board,
        software=system.software(answers),
        net=network.net(answers),
        rdma=rdma.rdma(answers),
    )


def cpu(answers: Transcript) -> Cpu:
    said = [line.split(":", 1) for line in lines(answers, KIND) if ":" in line]
    pairs = [(key.strip().lower(), value.strip()) for key, value in said]
    models = dict.fromkeys(value for key, value in pairs if key == "model name" and value != "-")
    known = {flag for key, value in pairs if key in {"flags", "features"} for flag in value.split()}
    return Cpu(
        system=f"{required(answers, SYSTEM)}-linux",
        threads=required_number(answers, THREADS),
        model=" + ".join(models) or None,
        cores=number(first(answers, CORES)) or None,
        numa_nodes=len(lines(answers, NODES)) or None,
        flags=tuple(flag for flag in _FLAGS if flag in known),
    )


def meminfo(text: str) -> dict[str, int]:
    """Bytes by name, of what /proc/meminfo says."""
    return {key: int(kib) << 10 for key, kib in _FIELD.findall(text)}


def memory(answers: Transcript) -> Memory:
    found = meminfo(required(answers, MEMINFO))
    # df's POSIX format: device, 1024-blocks, used, available, capacity, mount point.
    fields = " ".join(lines(answers, SHM)[1:2]).split()
    shm = number(fields[1]) if len(fields) > 1 else None
    return Memory(
        total_bytes=found.get("MemTotal", 0),
        available_bytes=found.get("MemAvailable", 0),
        shm_bytes=None if shm is None else shm << 10,
    )
