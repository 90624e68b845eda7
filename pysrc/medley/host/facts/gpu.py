"""NVIDIA GPUs and driver."""

import re
from dataclasses import dataclass, replace

from medley.transcript import NO_ANSWER, Answer, Transcript, lines, number

_FIELDS = (
    *("index", "name", "uuid", "pci.bus_id"),
    *("memory.total", "memory.free", "compute_cap", "driver_version"),
)
# A driver that lacks one field refuses the whole query; the plain list then still gives the names. Errors are
# part of the answer, because the reason why a GPU does not show is a fact.
GPUS = f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv,noheader,nounits 2>&1 || nvidia-smi -L 2>&1"
MODULE = "head -n 1 /proc/driver/nvidia/version"
# Display controllers (class 03) of NVIDIA (10de), seen with no driver's help.
CARDS = "grep -l '^PCI_ID=10DE:' /dev/null $(grep -lE '^PCI_CLASS=30[02]' /sys/bus/pci/devices/*/uevent)"
# Of the driver, which runs programs of this CUDA and of older ones.
CUDA = "nvidia-smi --version | grep -E '^CUDA( UMD)? Version'"

QUESTIONS = (GPUS, MODULE, CARDS, CUDA)

_MIB = 1 << 20
_NOT_FOUND, _TIMED_OUT = 127, 124


@dataclass(frozen=True)
class Gpu:
    """One GPU as its driver shows it; None is what the driver does not say (all of Jetson's memory, say)."""

    index: int
    """Its place in PCI order, which CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA's number too."""
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    capability: str | None = None
    driver: str | None = None


@dataclass(frozen=True)
class NvidiaDriver:
    version: str | None = None
    """Of the kernel module that is loaded."""
    error: str | None = None
    """What nvidia-smi said instead of GPUs, or besides them."""
    stuck: bool = False
    """nvidia-smi did not end."""
    installed: bool = False
    """There is an nvidia-smi."""
    cards: tuple[str, ...] = ()
    """PCI addresses of NVIDIA GPUs, whether or not the driver works."""
    cuda: str | None = None
    """The newest CUDA that it runs, as in `13.0`."""

    @property
    def has_hardware(self) -> bool:
        """A GPU is there, or must be, whatever nvidia-smi says."""
        return bool(self.version or self.cards or self.stuck)


def gpus(answers: Transcript) -> tuple[Gpu, ...]:
    said = lines(answers, GPUS)
    found = list(filter(None, map(_queried, said))) or list(filter(None, map(_listed, said)))
    return tuple(replace(gpu, index=index) for index, gpu in enumerate(_in_pci_order(found)))


def driver(answers: Transcript) -> NvidiaDriver:
    answer = answers.get(GPUS, NO_ANSWER)
    module = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", answers.get(MODULE, NO_ANSWER).text)
    cuda = re.search(r"[0-9]+\.[0-9]+", answers.get(CUDA, NO_ANSWER).text)
    return NvidiaDriver(
        version=module[1] if module else None,
        error=_error(answer),
        stuck=answer.status == _TIMED_OUT,
        installed=answer.status != _NOT_FOUND,
        cards=tuple(path.split("/")[-2] for path in lines(answers, CARDS) if path.count("/") > 1),
        cuda=cuda[0] if cuda else None,
    )


def _queried(line: str) -> Gpu | None:
    """A row of --query-gpu, or None where the line is something else: nvidia-smi mixes warnings in."""
    fields = [value(field) for field in line.split(",")]
    if len(fields) != len(_FIELDS):
        return None
    index, name, uuid, bus_id, total, free, capability, version = fields
    place = number(index)
    if place is None or name is None:
        return None
    return Gpu(place, name, uuid, bus_id, _bytes(total), _bytes(free), capability, version)


def _listed(line: str) -> Gpu | None:
    match = re.fullmatch(r"GPU ([0-9]{1,4}): (.+?)(?: \(UUID: (\S+)\))?", line)
    return Gpu(int(match[1]), match[2], match[3]) if match else None


def value(field: str) -> str | None:
    """A field's text; `[N/A]`, `[Not Supported]`, `[Unknown Error]` and their kin are no value."""
    text = field.strip()
    return None if text.startswith("[") or text.lower() in {"", "n/a", "not supported"} else text


def _bytes(mib: str | None) -> int | None:
    count = number(mib)
    return count * _MIB if count is not None else None


def _in_pci_order(found: list[Gpu]) -> list[Gpu]:
    """By bus address; by nvidia-smi's own index where one has none.

    NVML promises no order of its own: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetHandleByIndex).
    """
    places = {gpu: [int(part, 16) for part in re.findall(r"[0-9A-Fa-f]+", gpu.bus_id or "")] for gpu in found}
    return sorted(found, key=lambda gpu: places[gpu] if all(places.values()) else [gpu.index])


def _error(answer: Answer) -> str | None:
    if answer.status == _NOT_FOUND:
        return None
    if answer.status == _TIMED_OUT:
        return "nvidia-smi gave no answer and was stopped"
    said = (line.strip() for line in answer.text.splitlines())
    odd = dict.fromkeys(
        line for line in said if line and not (_queried(line) or _listed(line) or line.startswith("MIG "))
    )
    if answer.status and not odd:
        return f"nvidia-smi ended with status {answer.status}"
    return "; ".join(odd) or None
