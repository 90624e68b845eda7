"""A script is a user's own Python program that makes the engine itself, by a plan it finds in MEDLEY_PLAN."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medley import store
from medley.arguments import Argument, arguments, table, why
from medley.beside import NOTHING, Beside
from medley.engine import Engine, Serving
from medley.engines import ENGINES
from medley.launch import Launch, Tools
from medley.plan import Plan
from medley.reasoned import Flag, Reasoned, merged
from medley.tables import Engine as Name
from medley.tables import Host
from medley.variables import Variable, of_toolkit, variables
from medley.weights import Weights

PLAN = "MEDLEY_PLAN"
_REPLICAS = Path(__file__).parent / "inside" / "replicas.py"
_LAUNCHED = Flag(("--distributed-executor-backend",), "external_launcher", "torchrun starts the ranks")


@dataclass(frozen=True)
class Script:
    path: Path
    text: str
    words: tuple[str, ...] = ()
    """Its own, after its name."""
    port: int = 0
    """Free, of this host: where replicas that share their experts find each other."""
    experts: bool = False
    """Whether the model has any."""

    def launch(
        self,
        engine: Engine,
        weights: Weights,
        host: Host,
        plan: Plan,
        serving: Serving,
        *,
        tools: Tools,
        environ: Mapping[str, str],
        cluster: Iterable[Variable] = (),
        extra: tuple[str, ...] = (),
        beside: Beside = NOTHING,
    ) -> Launch:
        """The script's command on one host, and its plans; as medley.launch has it for a server."""
        name = _name(engine)
        told = replace(plan, nodes=None, replicas=1) if name == "vllm" else plan
        flags = [*engine.flags(serving, told, host, weights.model), *beside.flags(name)]
        if _by_torchrun(name, plan):
            flags.append(_LAUNCHED)
        found = arguments(name, weights.target, flags)
        plans = dict(self._plans(name, weights.name, plan, found))
        reasoned = replace(
            self._command(name, plan, tools.binary, tuple(plans)),
            variables=merged(
                (
                    *of_toolkit(tools.settings, tools.programs, environ.get("PATH", "")),
                    *variables(plan, host, environ, local=weights.local),
                    *cluster,
                    *engine.variables(serving, told, host),
                    *beside.variables(),
                    *_of_script(name, next(iter(plans))),
                )
            ),
            extra=(*((str(self.path), *self.words) if _by_torchrun(name, plan) else ()), *extra),
        )
        files = {**plans, str(self.path): self.text}
        if _side_by_side(name, plan):
            files[str(_REPLICAS)] = _REPLICAS.read_text(encoding="utf-8")
        return Launch(plan, reasoned, beside, files, tuple(why(found)))

    def _command(self, name: Name, plan: Plan, binary: Path, plans: tuple[str, ...]) -> Reasoned:
        python, script = str(binary / "python"), (str(self.path), *self.words)
        if _by_torchrun(name, plan):
            return Reasoned((str(binary / "torchrun"),), tuple(_torchrun(plan)), ())
        if _side_by_side(name, plan):
            return Reasoned((python, str(_REPLICAS), *plans, "--", *script), (), ())
        return Reasoned((python, *script), (), ())

    def _plans(
        self, name: Name, model: str, plan: Plan, found: tuple[Argument, ...]
    ) -> Iterator[tuple[str, str]]:
        """A file for each process that is to have its own, and what stands in it."""
        beside = _side_by_side(name, plan)
        here = 1 if not beside else plan.replicas if plan.launcher == "solo" else plan.replicas_here
        for nth in range(here):
            text = json.dumps(
                {
                    "engine": name,
                    "model": model,
                    "arguments": table(found),
                    "replica": plan.replicas_before + nth if beside else 0,
                    "replicas": plan.replicas if beside else 1,
                    "variables": self._of_replica(plan, nth) if beside else {},
                },
                indent=1,
            )
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            yield str(store.state() / "runs" / f"{model.rpartition('/')[2]}-{digest}.json"), text

    def _of_replica(self, plan: Plan, nth: int) -> dict[str, str]:
        """What tells one replica on this host from the next.

        vLLM has replicas that share their experts; of a dense model it refuses to hear that there are others
        ("Offline data parallel mode is not supported/useful for dense models", 0.32.0).
        """
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


def _name(engine: Engine) -> Name:
    return next(name for name, each in ENGINES.items() if each is engine)


def _side_by_side(name: Name, plan: Plan) -> bool:
    """Replicas that are processes of their own: SGLang's class starts its own."""
    return name == "vllm" and plan.replicas > 1


def _by_torchrun(name: Name, plan: Plan) -> bool:
    return name == "vllm" and plan.nodes is not None and plan.replicas == 1


def _torchrun(plan: Plan) -> Iterator[Flag]:
    if plan.nodes is None:
        return
    each = plan.tensor_parallel * plan.stages // plan.nodes.count
    yield Flag(("--nnodes",), str(plan.nodes.count), "each host starts its own ranks")
    yield Flag(("--node-rank",), str(plan.nodes.rank), "this host's place among them")
    yield Flag(("--master-addr",), plan.nodes.address, "where the ranks find each other: the first host")
    yield Flag(("--master-port",), str(plan.nodes.port), "the same")
    yield Flag(("--nproc-per-node",), str(each), "the script runs once for each rank of this host")


def _of_script(name: Name, plan: str) -> Iterator[Variable]:
    yield Variable(PLAN, plan, "the script finds its arguments there")
    if name == "vllm":
        yield Variable("VLLM_LOGGING_STREAM", "ext://sys.stderr", "stdout is the script's own")


def described(found: Launch) -> dict[str, Any]:
    """The first plan of a script, as it will read it."""
    text = found.files[next(each.value for each in found.reasoned.variables if each.name == PLAN)]
    plan: dict[str, Any] = json.loads(text)
    return plan
