"""Plans of every sort, and the arguments that scripts get of them, for every model there is a table of."""

from pathlib import Path
from typing import Literal

from medley import config
from medley.engine.launch import ENGINES
from medley.engine.python_arguments import build_argument_table, convert_to_arguments
from medley.engine.server_spec import ServerSpec
from medley.model.extra_files import ModelExtras
from medley.model.remote_code import Code
from medley.planner.plan import Plan
from medley.schema import EngineName, ExtraFile

KINDS = ("cpu", "cuda")
_FILLED = Plan(
    kv_cache_bytes=1 << 30,
    kv_cache_tokens=4096,
    kv_type="fp8",
    memory_utilization=0.9,
    static_share=0.8,
    context=8192,
    sequences=8,
    batch_tokens=2048,
)
_NEEDS: tuple[Literal["reasoning-parser-plugin", "chat-template"], ...] = (
    "reasoning-parser-plugin",
    "chat-template",
)
_BESIDE = ModelExtras(
    Code("ORG/model", {"modeling.py": "0" * 64}, "0123456789" * 4),
    tuple(
        (
            ExtraFile(kind=kind, what="it", name=kind, sha256="0" * 64, url="https://h/x"),
            Path(f"/needs/{kind}"),
        )
        for kind in _NEEDS
    ),
)
PLANS = (
    Plan(),
    Plan(is_eager=True, sequences=4, dtype="float32"),
    Plan(
        is_eager=True,
        stages=2,
        layer_partition="1,1",
        launcher="ray",
        rank_addresses=("10.0.0.1", "10.0.0.2"),
    ),
    Plan(tensor_parallel=2, expert_parallel=True, launcher="mp"),
    _FILLED,
)


def offered(engine: EngineName, plan: Plan, kind: str) -> dict[str, object]:
    """The arguments of all models together."""
    found: dict[str, object] = {}
    for name, model in config.load_models().items():
        flags = ENGINES[engine].list_flags(ServerSpec("/m", name), plan, config.load_hosts()[kind], model)
        found |= build_argument_table(
            convert_to_arguments(engine, "/m", (*flags, *_BESIDE.list_flags(engine)))
        )
    return found
