"""Read the facts of NVIDIA GPUs and their driver."""

import re

from medley.transcript import NO_ANSWER, Answer, Transcript, parse_number, read_lines
from medley.values import Value

_FIELDS = (
    *("index", "name", "uuid", "pci.bus_id"),
    *("memory.total", "memory.free", "compute_cap", "driver_version"),
)
# A driver that lacks one field refuses the whole query; the plain list then still gives the names. Errors are
# part of the answer, because the reason why a GPU does not show is a fact.
GPUS_QUESTION = (
    f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv,noheader,nounits 2>&1 || nvidia-smi -L 2>&1"
)
MODULE_QUESTION = "head -n 1 /proc/driver/nvidia/version"
# Display controllers (class 03) of NVIDIA (10de), seen with no driver's help.
CARDS_QUESTION = (
    "grep -l '^PCI_ID=10DE:' /dev/null $(grep -lE '^PCI_CLASS=30[02]' /sys/bus/pci/devices/*/uevent)"
)
# The driver runs programs of this CUDA and of older ones.
CUDA_QUESTION = "nvidia-smi --version | grep -E '^CUDA( UMD)? Version'"

QUESTIONS = (GPUS_QUESTION, MODULE_QUESTION, CARDS_QUESTION, CUDA_QUESTION)

_MIB = 1 << 20
_NOT_FOUND, _TIMED_OUT = 127, 124


class Gpu(Value):
    """One GPU as its driver shows it; None where it shows nothing, such as all of a Jetson's memory."""

    index: int
    """The place in PCI order, which CUDA_DEVICE_ORDER=PCI_BUS_ID makes CUDA's number too."""
    name: str
    uuid: str | None = None
    bus_id: str | None = None
    memory_bytes: int | None = None
    memory_free_bytes: int | None = None
    capability: str | None = None
    driver: str | None = None


class NvidiaDriver(Value):
    """The NVIDIA driver of a host."""

    version: str | None = None
    """The version of the kernel module that is loaded."""
    error: str | None = None
    """The output of nvidia-smi that does not show a GPU."""
    stuck: bool = False
    """Whether nvidia-smi did not end."""
    installed: bool = False
    """Whether there is an nvidia-smi."""
    cards: tuple[str, ...] = ()
    """The PCI addresses of NVIDIA GPUs, whether or not the driver works."""
    cuda: str | None = None
    """The newest CUDA that the driver runs, as in `13.0`."""

    @property
    def has_hardware(self) -> bool:
        """Whether there is a GPU, or must be one, whatever nvidia-smi prints."""
        return bool(self.version or self.cards or self.stuck)


def read_gpus(answers: Transcript) -> tuple[Gpu, ...]:
    """Return the GPUs in PCI order."""
    output = read_lines(answers, GPUS_QUESTION)
    rows = list(filter(None, map(_parse_row, output))) or list(filter(None, map(_parse_listed_gpu, output)))
    return tuple(gpu.replace(index=index) for index, gpu in enumerate(_sort_by_bus(rows)))


def read_driver(answers: Transcript) -> NvidiaDriver:
    answer = answers.get(GPUS_QUESTION, NO_ANSWER)
    module = re.search(r"\s(\d+\.\d+(?:\.\d+)?)\s", answers.get(MODULE_QUESTION, NO_ANSWER).text)
    cuda = re.search(r"[0-9]+\.[0-9]+", answers.get(CUDA_QUESTION, NO_ANSWER).text)
    return NvidiaDriver(
        version=module[1] if module else None,
        error=_find_error(answer),
        stuck=answer.status == _TIMED_OUT,
        installed=answer.status != _NOT_FOUND,
        cards=tuple(
            path.split("/")[-2] for path in read_lines(answers, CARDS_QUESTION) if path.count("/") > 1
        ),
        cuda=cuda[0] if cuda else None,
    )


def _parse_row(line: str) -> Gpu | None:
    """Return the GPU of a row of --query-gpu; None for other lines: nvidia-smi mixes warnings in."""
    fields = [parse_field(field) for field in line.split(",")]
    if len(fields) != len(_FIELDS):
        return None
    index, name, uuid, bus_id, total, free, capability, version = fields
    parsed_index = parse_number(index)
    if parsed_index is None or name is None:
        return None
    return Gpu(parsed_index, name, uuid, bus_id, _parse_mib(total), _parse_mib(free), capability, version)


def _parse_listed_gpu(line: str) -> Gpu | None:
    match = re.fullmatch(r"GPU ([0-9]{1,4}): (.+?)(?: \(UUID: (\S+)\))?", line)
    return Gpu(int(match[1]), match[2], match[3]) if match else None


def parse_field(field: str) -> str | None:
    """Return a field's text; None for `[N/A]`, `[Not Supported]`, `[Unknown Error]` and the like."""
    text = field.strip()
    return None if text.startswith("[") or text.lower() in {"", "n/a", "not supported"} else text


def _parse_mib(mib: str | None) -> int | None:
    count = parse_number(mib)
    return count * _MIB if count is not None else None


def _sort_by_bus(gpus: list[Gpu]) -> list[Gpu]:
    """Sort GPUs by bus address, or by nvidia-smi's own index if one has no address.

    NVML promises no order of its own: https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetHandleByIndex).
    """
    places = {gpu: [int(part, 16) for part in re.findall(r"[0-9A-Fa-f]+", gpu.bus_id or "")] for gpu in gpus}
    return sorted(gpus, key=lambda gpu: places[gpu] if all(places.values()) else [gpu.index])


def _find_error(answer: Answer) -> str | None:
    if answer.status == _NOT_FOUND:
        return None
    if answer.status == _TIMED_OUT:
        return "nvidia-smi gave no answer and was stopped"
    output = filter(None, map(str.strip, answer.text.splitlines()))
    messages = dict.fromkeys(
        line
        for line in output
        if not (_parse_row(line) or _parse_listed_gpu(line) or line.startswith("MIG "))
    )
    if answer.status and not messages:
        return f"nvidia-smi ended with status {answer.status}"
    return "; ".join(messages) or None
