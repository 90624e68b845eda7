"""The environment variables of a process we start, each with its reason."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from medley.plan import Plan
from medley.tables import Host

# What a user's shell may carry that would change which Python code the engine runs.
UNSET = ("PYTHONPATH", "PYTHONHOME")
LIBCUDA = "TRITON_LIBCUDA_PATH"
_OF_TOOLKIT = "the toolchain that Nix pins for this kind of host"
_REASONS = {
    LIBCUDA: "the driver's libcuda alone; beside it lies the host's libc, which Nix's compiler must not see"
}


@dataclass(frozen=True)
class Variable:
    name: str
    value: str
    why: str
    secret: bool = False
    """Its value stands in the file that `value` names."""


def variables(plan: Plan, host: Host, *, local: bool) -> Iterator[Variable]:
    """What any engine on this one host needs; `local`: its model is a folder here."""
    if host.device == "cuda":
        yield Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "so that CUDA counts GPUs as nvidia-smi does")
        if plan.gpus:
            shown = ",".join(map(str, plan.gpus))
            yield Variable("CUDA_VISIBLE_DEVICES", shown, "the GPUs that the plan chose")
    if local:
        yield Variable("HF_HUB_OFFLINE", "1", "the model is a folder; nothing is to be fetched")
    yield Variable("DO_NOT_TRACK", "1", "else the engine and what it brings report usage to their makers")


def of_toolkit(settings: Mapping[str, str], path: Iterable[str], inherited: str) -> Iterator[Variable]:
    """What the toolchain of this host declares, and its programs before those on PATH."""
    for name, value in settings.items():
        yield Variable(name, value, _REASONS.get(name, _OF_TOOLKIT))
    folders = tuple(path)
    if folders:
        joined = ":".join((*folders, inherited))
        yield Variable("PATH", joined, "the environment's and the toolchain's programs first")
