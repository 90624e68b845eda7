"""The processor: what the CPU engine runs on, and what feeds the GPUs."""

from dataclasses import dataclass

from medley.facts.answers import first, lines, number, required, required_number
from medley.transcript import Transcript

SYSTEM = "uname -m"
THREADS = "nproc || getconf _NPROCESSORS_ONLN"
CORES = "lscpu -p=core,socket | grep -v '^#' | sort -u | wc -l"
# Arm's /proc/cpuinfo has numbers where lscpu has the core's name; a small system may lack lscpu.
KIND = "lscpu | grep -E '^ *(Model name|Flags):' || grep -m2 -E '^(model name|flags|Features)' /proc/cpuinfo"
NODES = "ls -d /sys/devices/system/node/node[0-9]*"

QUESTIONS = (SYSTEM, THREADS, CORES, KIND, NODES)

# What vLLM's CPU kernels are chosen by, on x86 and on Arm.
_FLAGS = (
    *("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_tile", "amx_bf16", "amx_int8"),
    *("asimd", "asimddp", "bf16", "i8mm", "sve"),
)


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
