"""Launch a user's script: its plan files and its command."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable, merged, overridden
from medley.engine import list_common_variables, list_table_variables
from medley.engine.flags import Argument, build_table, convert_to_arguments, list_reasons
from medley.engine.launch import ENGINES, Launch, Order
from medley.environment import payload
from medley.environment.tools import BARE, Tools
from medley.errors import Problem, in_words
from medley.host_schema import HostTable
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher, Plan
from medley.schema import EngineName

PLAN = "MEDLEY_PLAN"
_MOST_BYTES = 1 << 20
"""Limit of a script, which is sent to other hosts in one message."""
_REPLICAS = payload.FOLDER / "replicas.py"
_LAUNCHED = Flag(("--distributed-executor-backend",), "external_launcher", "torchrun starts the ranks")
_LOGGED = Variable("VLLM_LOGGING_STREAM", "ext://sys.stderr", "only the script uses stdout")


@dataclass(frozen=True)
class Script:
    path: Path
    text: str
    words: tuple[str, ...] = ()
    """The script's own words."""
    port: int = 0
    """A free port of this host for the rendezvous of replicas that share experts."""
    experts: bool = False
    """Whether the model has experts."""

    def launch(
        self,
        order: Order,
        plan: Plan,
        host: HostTable,
        *,
        tools: Tools = BARE,
        environ: Mapping[str, str] = MappingProxyType({}),
        cluster: Iterable[Variable] = (),
    ) -> Launch:
        """Return the script's command on one host, and its plans."""
        name, weights = order.placement.engine, order.weights
        engine = ENGINES[name]
        told = replace(plan, nodes=None, replicas=1) if name == "vllm" else plan
        torchrun = tuple(_torchrun(plan)) if name == "vllm" and plan.replicas == 1 else ()
        flags = [
            *engine.list_flags(order.serving, told, host, weights.model),
            *order.model_extras.flags(name),
        ]
        found = convert_to_arguments(name, weights.target, [*flags, _LAUNCHED] if torchrun else flags)
        plans = dict(self._plans(name, weights.name, plan, found))
        files = {**plans, str(self.path): self.text}
        words, extra = (str(self.path), *self.words), order.engine_flags
        if torchrun:
            words, extra = (str(tools.binary / "torchrun"),), (*words, *extra)
        elif _side_by_side(name, plan):
            words = (str(tools.binary / "python"), str(_REPLICAS), *plans, "--", *words)
            files[str(_REPLICAS)] = _REPLICAS.read_text(encoding="utf-8")
        else:
            words = (str(tools.binary / "python"), *words)
        merged_variables = merged(
            (
                *list_table_variables(name, plan, weights.model, environ),
                *tools.variables(environ.get("PATH", "")),
                *list_common_variables(plan, host, environ, local=weights.local),
                *cluster,
                *engine.list_variables(order.serving, told, host),
                *order.model_extras.variables(),
                Variable(PLAN, next(iter(plans)), "the file of the script's arguments"),
                *((_LOGGED,) if name == "vllm" else ()),
            )
        )
        ours = overridden(merged_variables, tools.table)
        command = AnnotatedCommand(words, torchrun, ours, extra)
        return Launch(plan, command, order.model_extras, files, tuple(list_reasons(found)))

    def _plans(
        self, name: EngineName, model: str, plan: Plan, found: tuple[Argument, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yield a plan file and its text for each process with its own plan."""
        beside = _side_by_side(name, plan)
        here = 1 if not beside else plan.replicas if plan.launcher == "solo" else plan.replicas_here
        for nth in range(here):
            text = json.dumps(
                {
                    "engine": name,
                    "model": model,
                    "arguments": build_table(found),
                    "replica": plan.replicas_before + nth if beside else 0,
                    "replicas": plan.replicas if beside else 1,
                    "variables": self._of_replica(plan, nth) if beside else {},
                },
                indent=1,
            )
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            yield str(storage.state() / "runs" / f"{model.rpartition('/')[2]}-{digest}.json"), text

    def _of_replica(self, plan: Plan, nth: int) -> dict[str, str]:
        """Return the variables of one replica; vLLM 0.32.0 refuses VLLM_DP_* for a dense model."""
        if not self.experts:
            each = plan.tensor_parallel * plan.stages
            gpus = plan.gpus[nth * each : (nth + 1) * each]
            return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
        return {
            "VLLM_DP_SIZE": str(plan.replicas),
            "VLLM_DP_RANK": str(plan.replicas_before + nth),
            "VLLM_DP_RANK_LOCAL": str(nth),
            "VLLM_DP_MASTER_IP": plan.nodes.address if plan.nodes else "127.0.0.1",
            "VLLM_DP_MASTER_PORT": str(plan.nodes.port if plan.nodes else self.port),
        }


def _side_by_side(name: EngineName, plan: Plan) -> bool:
    """Whether replicas are separate processes; SGLang's class starts its own."""
    return name == "vllm" and plan.replicas > 1


def _torchrun(plan: Plan) -> Iterator[Flag]:
    if plan.nodes is None:
        return
    each = plan.tensor_parallel * plan.stages // plan.nodes.count
    yield Flag(("--nnodes",), str(plan.nodes.count), "each host starts its own ranks")
    yield Flag(("--node-rank",), str(plan.nodes.rank), "this host's place among them")
    yield Flag(("--master-addr",), plan.nodes.address, "the first host, where the ranks find each other")
    yield Flag(("--master-port",), str(plan.nodes.port), "the same")
    yield Flag(("--nproc-per-node",), str(each), "the script runs once per rank of this host")


def described(found: Launch) -> dict[str, Any]:
    """Return the first plan of a script."""
    text = found.files[next(each.value for each in found.annotated_command.variables if each.name == PLAN)]
    plan: dict[str, Any] = json.loads(text)
    return plan


def placeable(wanted: PlacementOptions, by: Launcher | None) -> PlacementOptions:
    """Restrict the placement of a script: over Ray one engine has all ranks, without replicas."""
    if wanted.engine == "sglang" and by != "solo":
        raise Problem(
            "a script with SGLang runs on one host",
            cause="sglang.Engine lets Ray choose the hosts, and waits forever without a free one"
            if by == "ray"
            else "on other hosts sglang.Engine serves the first one, and never returns to the script",
            fix="--hosts 1; or --engine vllm; or serve it over the hosts, and let the script use that server",
        )
    if by != "ray":
        return wanted
    replicas = wanted.sizes.replicas or 1
    if replicas > 1:
        raise Problem(
            f"--dp {replicas} is not available over Ray",
            cause="each replica of a script is its own process, which Ray does not start",
            fix=f"end the cluster (medley ray-stop), then: --dp {replicas} --launcher mp --hosts N",
        )
    return replace(wanted, sizes=replace(wanted.sizes, replicas=1))


def in_image() -> Problem:
    return Problem(
        "a script cannot run in a container",
        cause="this cluster's Ray runs in a container, which does not have the script's files",
        fix="on all hosts: medley ray-stop; then: medley ray-head without --image, or --launcher mp",
    )


def read_script(name: str, model: str, words: tuple[str, ...]) -> Script:
    path = Path(name).absolute()
    try:
        text = path.read_text(encoding="utf-8") if name else ""
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{name} cannot be read",
            cause=in_words(error),
            fix="name a Python script: medley run MODEL SCRIPT.py",
        ) from error
    if not name.endswith(".py") or len(text) > _MOST_BYTES:
        raise Problem(
            f"{name} is not a Python script" if name else "missing argument SCRIPT.py",
            cause="its name does not end in .py"
            if name and len(text) <= _MOST_BYTES
            else f"it is larger than {_MOST_BYTES} bytes"
            if name
            else f"medley run starts a script with {model}; serve and chat need none",
            fix=f"medley run {model} SCRIPT.py  # see medley run --help"
            if name
            else f"medley serve {model}  # then, in another terminal: medley chat",
        )
    return Script(path, text, words)
