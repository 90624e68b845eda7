"""Launch a user's script: its plan files and its command."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

from medley import storage
from medley.command import AnnotatedCommand, Flag, Variable
from medley.engine.launch import ENGINES, Launch, LaunchOrder, list_launch_variables
from medley.engine.python_arguments import (
    Argument,
    build_argument_table,
    convert_to_arguments,
    list_argument_reasons,
)
from medley.environment import payload
from medley.environment.tools import NO_TOOLS, Tools
from medley.errors import Problem, describe_error
from medley.host_schema import HostTable
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher, Plan
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.values import Value

PLAN_VARIABLE = "MEDLEY_PLAN"
_MAX_SCRIPT_BYTES = 1 << 20
"""The largest script, because it is sent to other hosts in one message."""
_REPLICAS_PROGRAM = payload.FOLDER / "replicas.py"


class Script(Value):
    """A user's Python script that runs a model by itself."""

    path: Path
    text: str
    arguments: tuple[str, ...] = ()
    """The script's own arguments."""
    port: int = 0
    """A free port of this host for the rendezvous of replicas that share experts."""
    has_experts: bool = False
    """Whether the model has experts."""

    def build_launch(
        self,
        order: LaunchOrder,
        plan: Plan,
        table: HostTable,
        *,
        tools: Tools = NO_TOOLS,
        environ: Mapping[str, str] = MappingProxyType({}),
        cluster_variables: Iterable[Variable] = (),
    ) -> Launch:
        """Return the script's command on one host, and its plans."""
        name, weights = order.engine, order.weights
        engine = ENGINES[name]
        launcher_flag, torchrun, engine_plan = engine.SCRIPT_LAUNCHER, tuple[Flag, ...](), plan
        if launcher_flag:
            engine_plan = plan.replace(node_process=None, replicas=1)
            torchrun = tuple(_list_torchrun_flags(plan)) if plan.replicas == 1 else ()
        flags = [
            *engine.list_flags(order.serving, engine_plan, table, weights.model),
            *order.model_extras.list_flags(name),
        ]
        if torchrun and launcher_flag:
            flags.append(launcher_flag)
        arguments = convert_to_arguments(name, weights.target, flags)
        plans = dict(self._write_plans(name, weights.name, plan, arguments))
        files = {**plans, str(self.path): self.text}
        words, extra_words = (str(self.path), *self.arguments), order.engine_flags
        if torchrun:
            words, extra_words = (str(tools.program_folder / "torchrun"),), (*words, *extra_words)
        elif _starts_replicas(name, plan):
            words = (str(tools.program_folder / "python"), str(_REPLICAS_PROGRAM), *plans, "--", *words)
            files[str(_REPLICAS_PROGRAM)] = _REPLICAS_PROGRAM.read_text(encoding="utf-8")
        else:
            words = (str(tools.program_folder / "python"), *words)
        plan_variable = Variable(PLAN_VARIABLE, next(iter(plans)), "the file of the script's arguments")
        # Medley's safe path leaves out the script's folder, which python would put first.
        folder = Variable("PYTHONPATH", str(self.path.parent), "the script imports modules of its own folder")
        variables = list_launch_variables(
            order,
            plan,
            table,
            tools,
            environ,
            cluster_variables=cluster_variables,
            engine_plan=engine_plan,
            script_variables=(folder, plan_variable, *engine.SCRIPT_VARIABLES),
        )
        command = AnnotatedCommand(words, torchrun, variables, extra_words)
        return Launch(plan, command, order.model_extras, files, tuple(list_argument_reasons(arguments)))

    def _write_plans(
        self, name: EngineName, model: str, plan: Plan, arguments: tuple[Argument, ...]
    ) -> Iterator[tuple[str, str]]:
        """Yield a plan file and its text for each process with its own plan."""
        is_parallel, process_count = _starts_replicas(name, plan), 1
        if is_parallel:
            process_count = plan.replicas if plan.launcher == "solo" else plan.replicas_here
        for index in range(process_count):
            text = json.dumps(
                {
                    "engine": name,
                    "model": model,
                    "arguments": build_argument_table(arguments),
                    "replica": plan.replicas_before + index if is_parallel else 0,
                    "replicas": plan.replicas if is_parallel else 1,
                    "variables": self._list_replica_variables(plan, index) if is_parallel else {},
                },
                indent=1,
            )
            digest = hashlib.sha256(text.encode()).hexdigest()[:12]
            yield (
                str(storage.find_state_folder() / "runs" / f"{model.rpartition('/')[2]}-{digest}.json"),
                text,
            )

    def _list_replica_variables(self, plan: Plan, index: int) -> dict[str, str]:
        """Return the variables of one replica; vLLM 0.32.0 refuses VLLM_DP_* for a dense model."""
        if not self.has_experts:
            ranks = plan.tensor_parallel * plan.stages
            gpus = plan.gpus[index * ranks : (index + 1) * ranks]
            return {"CUDA_VISIBLE_DEVICES": ",".join(map(str, gpus))} if gpus else {}
        return {
            "VLLM_DP_SIZE": str(plan.replicas),
            "VLLM_DP_RANK": str(plan.replicas_before + index),
            "VLLM_DP_RANK_LOCAL": str(index),
            "VLLM_DP_MASTER_IP": plan.node_process.address if plan.node_process else "127.0.0.1",
            "VLLM_DP_MASTER_PORT": str(plan.node_process.port if plan.node_process else self.port),
        }


def _starts_replicas(name: EngineName, plan: Plan) -> bool:
    """Return whether replicas are separate processes, because the engine's class starts no replicas."""
    return ENGINES[name].SCRIPT_LAUNCHER is not None and plan.replicas > 1


def _list_torchrun_flags(plan: Plan) -> Iterator[Flag]:
    if plan.node_process is None:
        return
    ranks = plan.tensor_parallel * plan.stages // plan.node_process.node_count
    yield Flag(("--nnodes",), str(plan.node_process.node_count), "each host starts its own ranks")
    yield Flag(("--node-rank",), str(plan.node_process.rank), "this host's place among them")
    yield Flag(
        ("--master-addr",), plan.node_process.address, "the first host, where the ranks find each other"
    )
    yield Flag(("--master-port",), str(plan.node_process.port), "the same")
    yield Flag(("--nproc-per-node",), str(ranks), "the script runs once per rank of this host")


def read_script_plan(launch: Launch) -> dict[str, Any]:
    """Return the first plan of a script's launch."""
    variables = launch.annotated_command.variables
    text = launch.files[next(variable.value for variable in variables if variable.name == PLAN_VARIABLE)]
    plan: dict[str, Any] = json.loads(text)
    return plan


def restrict_placement(placement: PlacementOptions, launcher: Launcher | None) -> PlacementOptions:
    """Restrict the placement of a script: over Ray one engine has all ranks, without replicas."""
    engine = ENGINES[placement.engine]
    if obstacle := engine.SCRIPT_OBSTACLES.get(launcher or ""):
        raise Problem(
            f"a script with {engine.TITLE} runs on one host",
            cause=obstacle,
            fix=f"--hosts 1; or --engine {DEFAULT_ENGINE}; "
            "or serve it over the hosts, and let the script use that server",
        )
    if launcher != "ray":
        return placement
    replicas = placement.sizes.replicas or 1
    if replicas > 1:
        raise Problem(
            f"--dp {replicas} is not available over Ray",
            cause="each replica of a script is its own process, which Ray does not start",
            fix=f"end the cluster (medley ray-stop), then: --dp {replicas} --launcher mp --hosts N",
        )
    return placement.replace(sizes=placement.sizes.replace(replicas=1))


def container_problem() -> Problem:
    """Return the Problem of a script in a cluster whose Ray runs in a container."""
    return Problem(
        "a script cannot run in a container",
        cause="this cluster's Ray runs in a container, which does not have the script's files",
        fix="on all hosts: medley ray-stop; then: medley ray-head without --image, or --launcher mp",
    )


def read_script(name: str, model: str, words: tuple[str, ...]) -> Script:
    """Read the script of this name; raise a Problem for one that is missing, unreadable or too large."""
    if not name:
        raise Problem(
            "missing argument SCRIPT.py",
            cause=f"medley run starts a script with {model}; serve and chat need none",
            fix=f"medley serve {model}  # then, in another terminal: medley chat",
        )
    path = Path(name).absolute()
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{name} cannot be read",
            cause=describe_error(error),
            fix="name a Python script: medley run MODEL SCRIPT.py",
        ) from error
    if len(text) > _MAX_SCRIPT_BYTES:
        raise Problem(
            f"{name} is too large to be a script",
            cause=f"it is larger than {_MAX_SCRIPT_BYTES} bytes",
            fix=f"medley run {model} SCRIPT.py  # see medley run --help",
        )
    if not name.endswith(".py"):
        raise Problem(
            f"{name} is not a Python script",
            cause="its name does not end in .py",
            fix=f"medley run {model} SCRIPT.py  # see medley run --help",
        )
    return Script(path, text, words)
