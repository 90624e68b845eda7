"""A launch is the command that serves a model here, and the reason for every part of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from medley.command import Command
from medley.engine import Flag, Serving, chosen, vllm
from medley.plan import Plan
from medley.tables import Host
from medley.variables import UNSET, Variable, of_toolkit, variables
from medley.weights import Weights


@dataclass(frozen=True)
class Launch:
    """One process to start; `str` is what --dry-run prints and what is run."""

    command: Command
    plan: Plan
    flags: tuple[Flag, ...]
    variables: tuple[Variable, ...]

    def why(self) -> list[tuple[str, str]]:
        """Each decision and its reason, in the order of the command."""
        return [
            *(("plan", reason) for reason in self.plan.why),
            *((f"{each.name}={_short(each.value)}", each.why) for each in self.variables),
            *((" ".join(flag.argv()), flag.why) for flag in self.flags),
        ]


@dataclass(frozen=True)
class Tools:
    """What an engine is started with: its environment's programs, and what the host's toolchain adds."""

    binary: Path
    """The folder of the engine environment's programs."""
    settings: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """More folders of programs, first to last."""


def launch(
    weights: Weights,
    host: Host,
    plan: Plan,
    serving: Serving,
    *,
    tools: Tools,
    path: str,
    cluster: Iterable[Variable] = (),
    extra: tuple[str, ...] = (),
) -> Launch:
    """How vLLM serves these weights by this plan; `path` is our own PATH, `extra` the user's flags.

    `cluster` is what an engine needs that places its ranks with Ray.
    """
    given = tuple(chosen(vllm.flags(serving, plan, host, weights.model), extra))
    ours = _merged(
        (
            *of_toolkit(tools.settings, (str(tools.binary), *tools.path), path),
            *variables(plan, host, local=weights.local),
            *cluster,
        )
    )
    command = vllm.command(tools.binary, serving, given, extra)
    return Launch(Command(command.argv, {each.name: each.value for each in ours}, UNSET), plan, given, ours)


def _merged(found: Iterable[Variable]) -> tuple[Variable, ...]:
    """The last of each name wins."""
    return tuple({each.name: each for each in found}.values())


def _short(value: str, limit: int = 60) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"
