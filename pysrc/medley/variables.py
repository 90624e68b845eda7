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
    everywhere: bool = False
    """It is equal on all hosts of the group, though others of its name belong to one host."""


def variables(plan: Plan, host: Host, environ: Mapping[str, str], *, local: bool) -> Iterator[Variable]:
    """What any engine on this host needs; `environ` is the user's, `local`: its model is a folder here."""
    if host.device == "cuda":
        yield from (users(each, environ) for each in _compiling(plan))
        yield Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "so that CUDA counts GPUs as nvidia-smi does")
        if plan.gpus:
            shown = ",".join(map(str, plan.gpus))
            yield Variable("CUDA_VISIBLE_DEVICES", shown, "the GPUs that the plan chose")
    if local:
        yield Variable("HF_HUB_OFFLINE", "1", "the model is a folder; nothing is to be fetched")
    yield Variable("DO_NOT_TRACK", "1", "else the engine and what it brings report usage to their makers")


def _compiling(plan: Plan) -> Iterator[Variable]:
    """What bounds the compilers that FlashInfer, SGLang and torch start while an engine starts."""
    if plan.compile_jobs is None:
        return
    why = "compilers at once: each takes 3 to 8 GiB, and the weights are in memory by then"
    yield Variable("MAX_JOBS", str(plan.compile_jobs), why)
    yield Variable("FLASHINFER_NVCC_THREADS", "1", "each compiler works at one file at a time")


def users(ours: Variable, environ: Mapping[str, str]) -> Variable:
    """Ours, or the user's own value of it."""
    if ours.name not in environ:
        return ours
    value = environ[ours.name]
    if value == ours.value:
        return Variable(ours.name, value, f"set by you, and by medley: {ours.why}")
    return Variable(ours.name, value, f"set by you; medley would say {ours.value}: {ours.why}")


def of_toolkit(settings: Mapping[str, str], path: Iterable[str], inherited: str) -> Iterator[Variable]:
    """What the toolchain of this host declares, and its programs before those on PATH."""
    for name, value in settings.items():
        yield Variable(name, value, _REASONS.get(name, _OF_TOOLKIT))
    folders = tuple(path)
    if folders:
        joined = ":".join((*folders, inherited))
        yield Variable("PATH", joined, "the environment's and the toolchain's programs first")
