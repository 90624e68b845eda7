"""Build the flags and variables that both engines need, each with its reason."""

from collections.abc import Iterable, Iterator, Mapping

from medley.command import Flag, Variable, prefer_user_value
from medley.environment import payload
from medley.host_schema import HostTable
from medley.planner.plan import Plan
from medley.schema import EngineName, Model


class FlagReason:
    """Reasons of flags and variables that both engines have."""

    SOCKET = "only this user can open it; Caddy answers at the address"
    REPLICAS = "engines in parallel, each with the whole model, behind one address"
    WITHOUT_RAY = "each host starts its own part, without Ray"
    LONGER = "the context is longer than config.json gives, as the maker or the user allows"
    SAME_ON_EACH = "the plan's number, the same on each rank"
    FP8_CACHE = "as requested: half the size of a 16-bit KV cache"
    DTYPE = "the plan's numbers: the same tokens as the model's reference"
    CONCURRENT = "concurrent streams in the plan's memory; --concurrency raises it"
    PER_BATCH = "tokens per pass in the plan's memory"
    EAGER = "compiling would cost more than it gains, or is not possible"


def build_flag(names: str, value: object, why: str) -> Flag:
    """Return a flag with all its names, which spaces separate; a value of None: a switch."""
    return Flag(tuple(names.split()), None if value is None else str(value), why)


def list_optional_flags(names: str, value: object, why: str) -> Iterator[Flag]:
    """Yield the flag, or nothing if its value is None."""
    if value is not None:
        yield build_flag(names, value, why)


def list_table_flags(engine: EngineName, plan: Plan, model: Model | None) -> Iterator[Flag]:
    """Yield the flags of the kinds of hosts, and of the model's table in models/."""
    model_flags = model.args.get(engine, ()) if model else ()
    for arguments, why in (*plan.arguments, (model_flags, "set in its table in models/")):
        remaining = list(arguments)
        while remaining:
            name = remaining.pop(0)
            has_value = bool(remaining) and not remaining[0].startswith("-")
            yield Flag((name,), remaining.pop(0) if has_value else None, why)


def list_table_variables(
    engine: EngineName, plan: Plan, model: Model | None, environ: Mapping[str, str]
) -> Iterator[Variable]:
    """Yield the variables of the kinds of hosts, and of the model's table; the user's own values win."""
    for name, value, why in plan.variables:
        yield prefer_user_value(Variable(name, value, why), environ)
    for name, value in (model.env.get(engine, {}) if model else {}).items():
        yield prefer_user_value(Variable(name, value, "set in its table in models/"), environ)


def drop_overridden_flags(flags: Iterable[Flag], user_flags: tuple[str, ...]) -> Iterator[Flag]:
    """Return medley's flags without those that the user gives in any spelling."""
    names = {argument.partition("=")[0] for argument in user_flags}
    return (flag for flag in flags if not names.intersection(flag.names))


def build_stacks_variable() -> Variable:
    """Return the variable that makes each Python process of an engine print its stacks at a signal."""
    return Variable("PYTHONPATH", str(payload.FOLDER / "stacks"), "a stuck rank can print its stacks")


def list_common_variables(
    plan: Plan, table: HostTable, environ: Mapping[str, str], *, is_local: bool
) -> Iterator[Variable]:
    """Yield the variables of any engine on this host; `is_local`: its model is a folder here."""
    if table.device == "cuda":
        if plan.compile_jobs is not None:
            # They limit the compilers that FlashInfer, SGLang and torch start while an engine starts.
            why = "concurrent compilers: each takes 3 to 8 GiB besides the weights"
            yield prefer_user_value(Variable("MAX_JOBS", str(plan.compile_jobs), why), environ)
            why = "each compiler compiles one file at a time"
            yield prefer_user_value(Variable("FLASHINFER_NVCC_THREADS", "1", why), environ)
        yield Variable("CUDA_DEVICE_ORDER", "PCI_BUS_ID", "CUDA numbers GPUs as nvidia-smi does")
        if plan.gpus:
            indexes = ",".join(map(str, plan.gpus))
            yield Variable("CUDA_VISIBLE_DEVICES", indexes, "the GPUs that the plan chose")
    if is_local:
        yield Variable("HF_HUB_OFFLINE", "1", "the model is a local folder; there is nothing to download")
    yield Variable("DO_NOT_TRACK", "1", "by default the engine and its libraries report usage")
