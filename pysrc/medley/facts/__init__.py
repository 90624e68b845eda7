"""Facts are what a host is: parsed from a transcript, never from the host itself."""

from dataclasses import dataclass, field

from medley.facts import board, cpu, gpu, memory, net, rdma, software
from medley.facts.board import Board
from medley.facts.cpu import Cpu
from medley.facts.gpu import Gpu, NvidiaDriver
from medley.facts.memory import Memory
from medley.facts.net import Net
from medley.facts.rdma import RdmaPort
from medley.facts.software import Software
from medley.transcript import Transcript

QUESTIONS = (
    *cpu.QUESTIONS,
    *memory.QUESTIONS,
    *gpu.QUESTIONS,
    *board.QUESTIONS,
    *software.QUESTIONS,
    *net.QUESTIONS,
    *rdma.QUESTIONS,
)


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
        return self.board.is_tegra or (self.software.kernel or "").endswith("-tegra")


def facts(answers: Transcript) -> Facts:
    found = board.board(answers)
    return Facts(
        cpu=cpu.cpu(answers),
        memory=memory.memory(answers),
        gpus=gpu.gpus(answers) or _integrated(found),
        driver=gpu.driver(answers),
        board=found,
        software=software.software(answers),
        net=net.net(answers),
        rdma=rdma.rdma(answers),
    )


def _integrated(found: Board) -> tuple[Gpu, ...]:
    """The GPU of a Jetson's SoC, for which L4T before r36 has no nvidia-smi."""
    return (Gpu(0, f"{found.soc} integrated GPU"),) if (found.soc or "").startswith("tegra") else ()
