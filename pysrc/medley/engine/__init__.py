"""What each engine must answer, and the flags and variables that all of them need.

vLLM gives every rank the whole environment of the process that starts it, as far as the rank's host has no
value of its own (RayExecutorV2 of vLLM 0.32.0): folders that are not there, another host's compiler, secrets
of a shell. It leaves out the names in a file, so medley names there all that no rank needs. SGLang gives them
nothing: payload/sglang_ray.py sends what that file does not name.
"""

import json
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable, merged, users
from medley.environment import payload
from medley.environment.container import CACHES
from medley.network.fabric.variables import NOT_CARRIED
from medley.planner.plan import Plan
from medley.schema import EngineName, HostTable, Model

_GUARD = payload.FOLDER / "api_guard.py"
# What speaks to vLLM, its libraries and the hub: what its older executor carried, and torch's.
_FOR_ALL = (
    *("VLLM_", "SGLANG_", "HF_", "HUGGING_FACE_", "NCCL_", "UCX_", "LMCACHE_", "FLASHINFER_"),
    *("TORCHDYNAMO_", "TORCH_NCCL_", "PYTORCH_", "TOKENIZERS_PARALLELISM", "PYTHONHASHSEED"),
    *("DO_NOT_TRACK", "CUDA_DEVICE_ORDER", "MAX_JOBS"),
)
# Of those, what differs from host to host: interfaces, addresses, devices, folders.
_OF_ONE_HOST = {
    *NOT_CARRIED,
    *("NCCL_TOPO_FILE", "NCCL_CONF_FILE", "VLLM_NCCL_SO_PATH", "VLLM_CONFIG_ROOT", *CACHES),
    *("HF_HUB_CACHE", "HF_TOKEN_PATH"),
    *("VLLM_CPU_OMP_THREADS_BIND", "VLLM_PORT", "VLLM_RPC_BASE_PATH", "VLLM_API_KEY", "SGLANG_HOST_IP"),
}


@dataclass(frozen=True)
class Serving:
    """What an engine is asked to serve: where the weights are, under which name, at which address."""

    target: str
    name: str
    address: str = "127.0.0.1"
    port: int = 8000
    key: Path | None = None
    """The file of the key that requests must give."""
    key_config: Path | None = None
    """The same as an engine's configuration, for SGLang, which knows no other way that nobody else sees."""


class Engine(Protocol):
    """What the modules vllm and sglang answer, and nothing more."""

    TITLE: str
    """Its name as its makers write it."""
    PROGRAM: str
    """In the folder of its environment's programs."""
    HELP: tuple[str, ...]
    """What to type after it for all flags of its server."""

    def words(self, binary: Path, serving: Serving, plan: Plan, /) -> tuple[str, ...]:
        """Its command, before any flag."""

    def variables(self, serving: Serving, plan: Plan, host: HostTable, /) -> Iterator[Variable]:
        """What no flag says, or would say to every user of the host."""

    def flags(self, serving: Serving, plan: Plan, host: HostTable, model: Model | None, /) -> Iterator[Flag]:
        """Everything that its flags tell it, each with its reason."""

    def fatal(self, line: str, /) -> bool:
        """Whether a line of its output says that it is lost, though its process goes on."""

    def last_error(self, lines: Sequence[str], /) -> str | None:
        """The last error in its output that gives a reason; None where there is none."""


class Why:
    """Reasons of flags and variables that both engines have."""

    KEY = "requests must give this key; as a flag every user of this host could read it"
    REPLICAS = "engines side by side, each with the whole model, behind one address"
    WITHOUT_RAY = "started on each host by itself, without Ray"
    SAME_ON_EACH = "the plan's number, the same on each rank"
    FP8_CACHE = "as asked: half the KV cache of 16 bits"
    AT_ONCE = "at once; the plan's memory counts on it, and --concurrency raises it"
    PER_BATCH = "in one pass; the plan's memory counts on it"
    EAGER = "compiling would cost more than it gains, or cannot be done"


def flag(names: str, value: object, why: str) -> Flag:
    """A flag by all its names, separated by spaces; without a value where that is None."""
    return Flag(tuple(names.split()), None if value is None else str(value), why)


def given(names: str, value: object, why: str) -> Iterator[Flag]:
    """The flag where the plan has a value for it."""
    if value is not None:
        yield flag(names, value, why)


def table_flags(engine: EngineName, plan: Plan, model: Model | None) -> Iterator[Flag]:
    """What the kinds of its hosts need, and what the model's table in models/ says."""
    own = model.args.get(engine, ()) if model else ()
    for words, why in (*plan.arguments, (own, "its table in models/ says so")):
        left = list(words)
        while left:
            name = left.pop(0)
            yield Flag((name,), left.pop(0) if left and not left[0].startswith("-") else None, why)


def table_variables(
    engine: EngineName, model: Model | None, environ: Mapping[str, str]
) -> Iterator[Variable]:
    """The variables that the model's table in models/ has for this engine; the user's own values win."""
    for name, value in (model.env.get(engine, {}) if model else {}).items():
        yield users(Variable(name, value, "its table in models/ says so"), environ)


def chosen(ours: Iterable[Flag], theirs: tuple[str, ...]) -> Iterator[Flag]:
    """Our flags, less those that the user gives in any spelling: what is typed wins."""
    given = {word.partition("=")[0] for word in theirs}
    return (flag for flag in ours if not given.intersection(flag.names))


def guarded(made: AnnotatedCommand, serving: Serving, python: str) -> AnnotatedCommand:
    """The same command behind `payload/api_guard.py`; a program of ours installs that itself."""
    program, *rest = (Path(made.words[0]).name, *made.words[1:])
    words = made.words if program == "python" else (python, str(_GUARD), program, *rest)
    why = "who reaches this address gives the key, or is of this host"
    guard = [Variable("MEDLEY_GUARD", serving.address, why)]
    if serving.key:
        guard.append(Variable("MEDLEY_GUARD_KEY", str(serving.key), Why.KEY, secret=True))
    return replace(made, words=words, variables=merged((*made.variables, *guard)))


def last_reason(
    lines: Iterable[str], prefix: re.Pattern[str], error: re.Pattern[str], empty: Iterable[str]
) -> str | None:
    """The last line that is an error once its prefix is gone, if there is one that says more than `empty`."""
    bare = (prefix.sub("", line).strip() for line in lines)
    errors = [line for line in bare if error.match(line)]
    reasons = [line for line in errors if not any(each in line for each in empty)]
    return next(reversed(reasons or errors), None)


def variables(plan: Plan, host: HostTable, environ: Mapping[str, str], *, local: bool) -> Iterator[Variable]:
    """What any engine on this host needs; `environ` is the user's, `local`: its model is a folder here."""
    if host.device == "cuda":
        if plan.compile_jobs is not None:
            # They bound the compilers that FlashInfer, SGLang and torch start while an engine starts.
            why = "compilers at once: each takes 3 to 8 GiB, and the weights are in memory by then"
            yield users(Variable("MAX_JOBS", str(plan.compile_jobs), why), environ)
            why = "each compiler works at one file at a time"
            yield users(Variable("FLASHINFER_NVCC_THREADS", "1", why), environ)
        yield Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "so that CUDA counts GPUs as nvidia-smi does")
        if plan.gpus:
            shown = ",".join(map(str, plan.gpus))
            yield Variable("CUDA_VISIBLE_DEVICES", shown, "the GPUs that the plan chose")
    if local:
        yield Variable("HF_HUB_OFFLINE", "1", "the model is a folder; nothing is to be fetched")
    yield Variable("DO_NOT_TRACK", "1", "else the engine and what it brings report usage to their makers")


def stays(names: Iterable[str], everywhere: Iterable[str] = (), local: Iterable[str] = ()) -> list[str]:
    """Those names of a driver's environment that no rank on another host may see.

    `everywhere` are those of one host whose value is good on all of them this time, `local` the reverse.
    """
    own = _OF_ONE_HOST.difference(everywhere).union(local)
    return sorted(name for name in names if name in own or not name.startswith(_FOR_ALL))


def _file() -> Path:
    return storage.state() / "vllm" / "ray_non_carry_over_env_vars.json"


def variable(engine: EngineName) -> Variable:
    why = "keeps from the other hosts what is this one's: paths, interfaces, secrets"
    if engine == "sglang":
        return Variable("MEDLEY_NOT_CARRIED", str(_file()), f"it {why}")
    return Variable("VLLM_CONFIG_ROOT", str(_file().parent), f"its {_file().name} {why}")


def write(started: AnnotatedCommand) -> None:
    """Where `variable` says that vLLM looks: what stays of the environment that this is started with."""
    command = started.command
    names = (*command.environment(os.environ), *command.secrets, *command.inherits)
    everywhere = (each.name for each in started.variables if each.everywhere)
    local = (each.name for each in started.variables if each.local)
    storage.write(_file(), json.dumps(stays(names, everywhere, local), indent=0))
