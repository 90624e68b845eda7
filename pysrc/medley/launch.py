"""A launch is the command that serves a model here, and the reason for every part of it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from medley.beside import NOTHING, Beside
from medley.command import Command
from medley.engine import Engine, Serving, chosen, guarded
from medley.plan import Plan
from medley.reasoned import Reasoned, merged
from medley.tables import Host
from medley.variables import Variable, of_toolkit, variables
from medley.weights import Weights


@dataclass(frozen=True)
class Launch:
    """One process to start, and the plan behind it."""

    plan: Plan
    reasoned: Reasoned
    beside: Beside = NOTHING
    files: Mapping[str, str] = field(default_factory=dict)
    """What must stand in which file beside it."""
    told: tuple[tuple[str, str], ...] = ()
    """What the process is told in these, and why."""

    @property
    def command(self) -> Command:
        return self.reasoned.command

    def why(self) -> list[tuple[str, str]]:
        """Each decision and its reason, in the order of the command."""
        return [*(("plan", reason) for reason in self.plan.why), *self.reasoned.why(), *self.told]


@dataclass(frozen=True)
class Tools:
    """What an engine is started with: its environment's programs, and what the host's toolchain adds."""

    binary: Path
    """The folder of the engine environment's programs."""
    settings: Mapping[str, str] = field(default_factory=dict)
    path: tuple[str, ...] = ()
    """More folders of programs, first to last."""

    @property
    def programs(self) -> tuple[str, ...]:
        """Every folder of programs, first to last."""
        return (str(self.binary), *self.path) if self.binary.parts else self.path


BARE = Tools(Path())
"""Programs by their names alone, as on a host whose environment is not known."""


def launch(
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
    """How an engine serves these weights by this plan; `environ` and `extra` flags are the user's.

    `cluster` is what an engine needs whose ranks are on several hosts.
    """
    ours = merged(
        (
            *of_toolkit(tools.settings, tools.programs, environ.get("PATH", "")),
            *variables(plan, host, environ, local=weights.local),
            *cluster,
            *engine.variables(serving, plan, host),
            *beside.variables(),
        )
    )
    told = (*engine.flags(serving, plan, host, weights.model), *beside.flags(engine.PROGRAM))
    made = Reasoned(engine.words(tools.binary, serving, plan), tuple(chosen(told, extra)), ours, extra)
    if tools.binary.parts and not (plan.nodes and plan.nodes.rank):
        made = guarded(made, serving, str(tools.binary / "python"))
    return Launch(plan, made, beside)
