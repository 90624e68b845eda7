"""A plan says how a model is laid on the hosts' GPUs, with the reason for each choice.

Today it chooses GPUs of one host; memory fit and several hosts come with it later.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from medley.facts import Facts
from medley.facts.gpu import Gpu
from medley.problem import Problem
from medley.tables import Host, Model

GIB = 1 << 30
# vLLM on CPU takes 92 % of the memory for KV cache unless told otherwise, which starves the host.
_CPU_KV_SHARE = 4
# GPU and system share unified memory, and vLLM's limit is not a hard one there: above 0.85 hosts were seen to
# wedge; what the system itself needs lies outside of it.
_UNIFIED_LIMIT = 0.85
_SYSTEM_BYTES = 8 * GIB


@dataclass(frozen=True)
class Plan:
    """Which GPUs run the model, in what parallel, with how much memory; `why` has a sentence for each."""

    gpus: tuple[Gpu, ...] = ()
    tensor_parallel: int = 1
    kv_cache_bytes: int | None = None
    memory_utilization: float | None = None
    """Share of a GPU's memory that the engine may take; None: the engine's own default."""
    eager: bool = False
    stages: int = 1
    """Pipeline stages."""
    over_ray: bool = False
    why: tuple[str, ...] = ()


@dataclass(frozen=True)
class Asked:
    """What the user wants of a plan; None leaves it to us."""

    gpus: str | None = None
    """What --gpus said: indexes, or `all`."""
    tensor: int | None = None
    stages: int | None = None

    @property
    def ranks(self) -> int:
        return (self.tensor or 1) * (self.stages or 1)


ANY = Asked()


def plan(model: Model | None, host: Host, facts: Facts, asked: Asked = ANY) -> Plan:
    """How this one host runs the model."""
    if host.device == "cpu":
        return _on_cpu(model, facts, asked)
    gpus, why = _chosen(facts.gpus, asked)
    tensor, stages = _divided(len(gpus), asked, "GPUs chosen", "choose as many with --gpus")
    share, reason = _share(host, facts)
    return Plan(
        gpus=gpus,
        tensor_parallel=tensor,
        stages=stages,
        kv_cache_bytes=None,
        memory_utilization=share,
        eager=bool(model and model.eager),
        why=tuple(filter(None, (why, reason))),
    )


def spread(alone: Plan, slots: Mapping[str, int], asked: Asked = ANY) -> Plan:
    """A plan for one host, spread over a cluster; `slots`: each host's, by address, in order of ranks.

    A pipeline stage on each host, because between hosts a pipeline sends least; within a host its slots are
    tensor parallel, where all hosts have as many.
    """
    counts, total = set(slots.values()), sum(slots.values())
    if asked.gpus is not None:
        raise Problem(
            f"--gpus {asked.gpus} is for one host",
            cause=f"the cluster offers {total} slots, of which each is one GPU or one CPU",
            fix="serve on this host alone: --hosts 1; or set --slots when a host joins",
        )
    if asked.tensor is None and asked.stages is None:
        tensor, stages = (counts.pop(), len(slots)) if len(counts) == 1 else (1, total)
    else:
        tensor, stages = _divided(total, asked, f"slots of {len(slots)} hosts", "use fewer hosts: --hosts N")
    hosts = ", ".join(f"{address} ({count})" for address, count in slots.items())
    return replace(
        alone,
        gpus=(),
        tensor_parallel=tensor,
        stages=stages,
        over_ray=True,
        why=(
            *alone.why,
            f"{len(slots)} hosts by slots: {hosts}",
            f"{stages} pipeline stages, tensor parallel {tensor}: a rank for each slot"
            + (", as asked" if asked.tensor or asked.stages else ""),
        ),
    )


def _divided(count: int, asked: Asked, what: str, fix: str) -> tuple[int, int]:
    """Tensor parallel and stages that make `count` ranks."""
    tensor, stages = asked.tensor, asked.stages
    tensor = tensor or (count // stages if stages else count)
    stages = stages or count // tensor
    if tensor * stages != count:
        raise Problem(
            f"tensor parallel {tensor} times {max(stages, 1)} stages does not make a rank for each slot",
            cause=f"there are {count} {what}, and each takes one rank",
            fix=f"--tp and --pp whose product is {count}, or {fix}",
        )
    return tensor, stages


def _on_cpu(model: Model | None, facts: Facts, asked: Asked) -> Plan:
    if asked.gpus is not None:
        raise Problem(
            f"--gpus {asked.gpus} cannot be had",
            cause="this host has no NVIDIA GPU that its driver shows",
            fix="leave --gpus out to run on the CPU; medley facts shows what was found",
        )
    _divided(1, asked, "CPU", "join more hosts: medley ray-head")
    if model and model.kv_cache_bytes:
        kv, kv_why = model.kv_cache_bytes, "as its table says"
    else:
        available = facts.memory.available_bytes
        kv = available // _CPU_KV_SHARE
        kv_why = f"a quarter of the {available / GIB:.1f} GiB available"
    return Plan(
        kv_cache_bytes=kv,
        eager=_eager(model, facts),
        why=(
            f"CPU: {facts.cpu.threads} threads, no GPU",
            f"KV cache {kv / GIB:.2f} GiB: {kv_why}",
            *(("not compiled: the host has no C++ compiler",) if _no_compiler(facts) else ()),
        ),
    )


def _eager(model: Model | None, facts: Facts) -> bool:
    return bool(model and model.eager) or _no_compiler(facts)


def _no_compiler(facts: Facts) -> bool:
    return "g++" not in facts.software.programs


def _chosen(gpus: Sequence[Gpu], asked: Asked) -> tuple[tuple[Gpu, ...], str]:
    if asked.gpus is None:
        return _largest(gpus, asked.ranks)
    words = asked.gpus
    chosen = tuple(gpus) if words == "all" else tuple(_by_index(gpus, word) for word in words.split(","))
    if len(set(chosen)) != len(chosen):
        raise Problem(
            f"--gpus {words} names a GPU twice",
            cause="each rank needs a GPU of its own",
            fix="name each index once: --gpus " + ",".join(str(gpu.index) for gpu in dict.fromkeys(chosen)),
        )
    return chosen, f"GPU {_names(chosen)}: as --gpus says" + (
        f"; tensor parallel over {len(chosen)}" if len(chosen) > 1 and not asked.stages else ""
    )


def _largest(gpus: Sequence[Gpu], count: int) -> tuple[tuple[Gpu, ...], str]:
    """So many of the host's GPUs, those with the most memory."""
    if count > len(gpus):
        raise Problem(
            f"{count} GPUs are asked for, and this host has {len(gpus)}",
            cause=f"it has {_names(gpus)}; --tp and --pp ask for a rank on each of {count}",
            fix=f"--tp {len(gpus)}, or join more hosts: medley ray-head",
        )
    best = sorted(gpus, key=lambda gpu: (-(gpu.memory_bytes or 0), gpu.index))[:count]
    which = "the one" if count == 1 else "those"
    others = f" of {len(gpus)}, {which} with the most memory" if len(gpus) > count else ""
    return tuple(best), f"GPU {_names(best)}{others}"


def _names(gpus: Iterable[Gpu]) -> str:
    return ", ".join(f"{gpu.index} ({gpu.name})" for gpu in gpus)


def _by_index(gpus: Sequence[Gpu], word: str) -> Gpu:
    found = next((gpu for gpu in gpus if str(gpu.index) == word.strip()), None)
    if found is None:
        raise Problem(
            f"there is no GPU {word!r}",
            cause=f"this host has {_names(gpus)}",
            fix="--gpus 0, --gpus 0,1 or --gpus all",
        )
    return found


def _share(host: Host, facts: Facts) -> tuple[float | None, str]:
    if not host.memory.unified:
        return None, ""
    total, available = facts.memory.total_bytes, facts.memory.available_bytes
    share = min(_UNIFIED_LIMIT, (available - _SYSTEM_BYTES) / total)
    if share <= 0:
        raise Problem(
            "this host has too little memory free",
            cause=f"{available / GIB:.1f} GiB are available; the system keeps {_SYSTEM_BYTES / GIB:.0f} GiB",
            fix="end what holds it: ps aux --sort=-rss | head\n"
            "or give back the page cache: sync; echo 3 | sudo tee /proc/sys/vm/drop_caches",
        )
    share = int(share * 100) / 100
    return share, (
        f"{share:.0%} of the {total / GIB:.1f} GiB that CPU and GPU share: "
        f"{available / GIB:.1f} GiB are available, {_SYSTEM_BYTES / GIB:.0f} GiB stay for the system"
    )
