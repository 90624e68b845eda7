"""A bench without a server: the engine's own latency and throughput modes, by the plan for this host."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from medley import facts
from medley.bench import running
from medley.bench.load import Load, Run
from medley.bench.measuring import begun, kept
from medley.bench.record import Done, Record
from medley.bench.surroundings import surroundings
from medley.command import Command
from medley.described import Description
from medley.engine.client import Offline
from medley.engines import CLIENTS
from medley.launch import Launch
from medley.transcript import Transcript
from medley.watch import Watch


@dataclass(frozen=True)
class Alone:
    """A model on this host, as it would be served."""

    what: Description
    launch: Launch
    vocabulary: int
    said: tuple[str, Transcript]
    """This host's name, and what it says of itself."""

    def commands(self, load: Load, watch: Watch) -> Iterator[tuple[Offline, Run]]:
        """Those modes that can be run with this model."""
        modes: tuple[tuple[Offline, Iterator[Run]], ...] = (
            ("latency", load.batches()),
            ("throughput", load.heaps()),
        )
        for mode, runs in modes:
            why = CLIENTS[self.what.engine].unable(mode, self.vocabulary)
            if why:
                watch.note(f"{mode} is left out: {why}")
                continue
            for run in runs:
                yield mode, run

    def command(self, mode: Offline, run: Run, result: Path) -> Command:
        """The plan's own flags, less those of a server alone."""
        client, made = CLIENTS[self.what.engine], self.launch.reasoned
        words = client.offline(self.what.programs, self.what.target, mode, run, result)
        flags = tuple(flag for flag in made.flags if not client.only_served(flag))
        return replace(made, words=words, flags=flags).command


def measured(alone: Alone, load: Load, limit_s: float, watch: Watch) -> Record:
    """All of it; every start of the engine is kept as soon as it has measured."""
    name, said = alone.said
    made = Record(
        *begun(alone.what.model),
        engine=alone.what.engine,
        load=load,
        about=surroundings(alone.what.engine, alone.what.programs, {name: said}, alone.what),
    )
    gpus = bool(facts.facts(said).gpus)
    with kept(made, watch) as keep:
        for mode, run in alone.commands(load, watch):
            found = _done(alone, mode, run, watch, gpus=gpus, limit_s=limit_s)
            made = keep(replace(made, done=(*made.done, *found)))
        return keep(replace(made, whole=True))


def _done(
    alone: Alone, mode: Offline, run: Run, watch: Watch, *, gpus: bool, limit_s: float
) -> tuple[Done, ...]:
    def start(run: Run, result: Path) -> Command:
        return alone.command(mode, run, result)

    client = CLIENTS[alone.what.engine]
    return running.offline(run, mode, start, client, watch, gpus=gpus, limit_s=limit_s)
