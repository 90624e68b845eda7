"""`Facts` of a host, parsed from a transcript; CPU and memory."""

import re

from msgspec import field

from medley.host.facts import gpu, network, rdma, system
from medley.host.facts.gpu import Gpu, NvidiaDriver
from medley.host.facts.network import Net
from medley.host.facts.rdma import RdmaPort
from medley.host.facts.system import Board, Software
from medley.transcript import (
    Transcript,
    parse_number,
    read_first_line,
    read_lines,
    require_number,
    require_text,
)
from medley.values import Value

GIB = 1 << 30

SYSTEM_QUESTION = "uname -m"
THREADS_QUESTION = "nproc || getconf _NPROCESSORS_ONLN"
CORES_QUESTION = "lscpu -p=core,socket | grep -v '^#' | sort -u | wc -l"
# Arm's /proc/cpuinfo has numbers where lscpu has the core's name; a small system may lack lscpu.
KIND_QUESTION = (
    "lscpu | grep -E '^ *(Model name|Flags):' || grep -m2 -E '^(model name|flags|Features)' /proc/cpuinfo"
)
NODES_QUESTION = "ls -d /sys/devices/system/node/node[0-9]*"
MEMINFO_QUESTION = "grep -E '^(MemTotal|MemAvailable):' /proc/meminfo"
# Processes of one engine talk through it, and a container's default of 64 MiB starves them.
SHM_QUESTION = "df -kP /dev/shm"

QUESTIONS = (
    *(
        SYSTEM_QUESTION,
        THREADS_QUESTION,
        CORES_QUESTION,
        KIND_QUESTION,
        NODES_QUESTION,
        MEMINFO_QUESTION,
        SHM_QUESTION,
    ),
    *gpu.QUESTIONS,
    *system.QUESTIONS,
    *network.QUESTIONS,
    *rdma.QUESTIONS,
)

# The flags by which vLLM chooses its CPU kernels, on x86 and on Arm.
_CPU_FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)
_FIELD_PATTERN = re.compile(r"(?<!\w)(\w{1,40}):\s{1,40}([0-9]{1,15}) kB")


class Cpu(Value):
    """The CPU of a host."""

    system: str
    """The system in Nix's form: x86_64-linux."""
    threads: int
    """The number of threads that this process may use."""
    model: str | None = None
    """The name of the CPU; a host with two sorts of cores has both names, joined by +."""
    cores: int | None = None
    """The number of the host's cores."""
    numa_nodes: int | None = None
    flags: tuple[str, ...] = ()
    """The flags that decide which kernels run; not all."""


class Memory(Value):
    """The memory of a host."""

    total_bytes: int
    available_bytes: int
    """The bytes that a process can get without swapping, with the page cache, which CUDA does not count."""
    shm_bytes: int | None = None
    """The size of /dev/shm."""


class Facts(Value):
    """The facts of a host; its fields are the keys of `medley facts --json`."""

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
        """Whether the board or the kernel is a Jetson's: a container does not see the device tree."""
        is_jetson_board = self.board.l4t is not None or self.board.is_tegra
        return is_jetson_board or (self.software.kernel or "").endswith("-tegra")


def read_facts(answers: Transcript) -> Facts:
    """Return the facts of a transcript; raise a Problem if an answer that every host gives is missing."""
    board = system.read_board(answers)
    # L4T before r36 has no nvidia-smi.
    integrated_gpus = (Gpu(0, f"{board.soc} integrated GPU"),) if board.is_tegra else ()
    return Facts(
        cpu=read_cpu(answers),
        memory=read_memory(answers),
        gpus=gpu.read_gpus(answers) or integrated_gpus,
        driver=gpu.read_driver(answers),
        board=board,
        software=system.read_software(answers),
        net=network.read_net(answers),
        rdma=rdma.read_ports(answers),
    )


def read_cpu(answers: Transcript) -> Cpu:
    """Return the facts of the CPU."""
    fields = [line.split(":", 1) for line in read_lines(answers, KIND_QUESTION) if ":" in line]
    pairs = [(key.strip().lower(), value.strip()) for key, value in fields]
    models = dict.fromkeys(value for key, value in pairs if key == "model name" and value != "-")
    all_flags = {flag for key, value in pairs if key in {"flags", "features"} for flag in value.split()}
    return Cpu(
        system=f"{require_text(answers, SYSTEM_QUESTION)}-linux",
        threads=require_number(answers, THREADS_QUESTION),
        model=" + ".join(models) or None,
        cores=parse_number(read_first_line(answers, CORES_QUESTION)) or None,
        numa_nodes=len(read_lines(answers, NODES_QUESTION)) or None,
        flags=tuple(flag for flag in _CPU_FLAGS if flag in all_flags),
    )


def parse_meminfo(text: str) -> dict[str, int]:
    """Return the bytes of each entry of /proc/meminfo by name."""
    return {key: int(kib) << 10 for key, kib in _FIELD_PATTERN.findall(text)}


def read_memory(answers: Transcript) -> Memory:
    """Return the facts of the memory."""
    sizes = parse_meminfo(require_text(answers, MEMINFO_QUESTION))
    # df's POSIX format: device, 1024-blocks, used, available, capacity, mount point.
    fields = " ".join(read_lines(answers, SHM_QUESTION)[1:2]).split()
    shm = parse_number(fields[1]) if len(fields) > 1 else None
    return Memory(
        total_bytes=sizes.get("MemTotal", 0),
        available_bytes=sizes.get("MemAvailable", 0),
        shm_bytes=None if shm is None else shm << 10,
    )
