"""`medley plan`."""

import dataclasses
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from shlex import quote

from medley import config, engine, storage
from medley.cli import Verb, ending, flag, group, output, switch
from medley.cli.launch_options import TRUST, Planning, site
from medley.cli.output import fit, print_result, step_table, wide
from medley.cli.progress import watch
from medley.cluster import membership, ray_serving
from medley.command import Command
from medley.engine.launch import Order
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.model.resolve import weights
from medley.model.trust import Trust
from medley.planner.choose import Choice
from medley.planner.loading import load_time
from medley.planner.report import lines
from medley.planner.topology import Topology
from medley.progress import SILENT, Progress
from medley.serving import alternatives
from medley.serving import steps as launch_steps
from medley.serving.alternatives import Build, placed
from medley.serving.prepare import extras, shape_of


class PlanVerb(Verb):
    DESCRIPTION_MORE = """
Without --from or --hosts it plans for this host, or for the cluster that this host is the head of. serve uses
the same plan. Predicted speeds come from published measurements and vendors' numbers, and have a range. plan
reads the headers of the weights and downloads no model.

Examples:
    medley plan gpt-oss-120b --hosts spark:2
    medley plan qwen2.5-72b-instruct --hosts spark:2,thor:2 --concurrency 16
    medley plan gpt-oss-20b --from orin-1.txt rtx.txt --context 32768
    medley plan gpt-oss-20b --hosts orin:2 --tp 2 --json
"""
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    planning: Planning = group(Planning)
    trust: Trust = group(Trust, **TRUST)
    replayed: list[str] = switch("--from FILE", "transcript of a host to plan for")
    imagined: str | None = switch(
        "--hosts KINDS", "kinds of hosts to plan for: spark:2,thor:1", excludes=["--from"]
    )
    link: str | None = switch("--link LINK", "interface, address or network to use")
    image: str | None = switch(
        "--image IMAGE",
        "container image for every host; default takes the one of each kind",
        excludes=["--env"],
    )
    environment: str | None = switch("--env ENV", "engine environment or virtualenv of every host")
    all_: bool = flag("--all", "list every rejected layout")
    as_json: bool = flag("--json", "one JSON object")
    picture: str | None = switch("--svg FILE", "SVG file to draw the plan in", check=ending(".svg"))

    def main(self, model: str, *more: str) -> None:
        found = weights(model, config.models(), storage.cache(), self.typed)
        listens = engine.Serving(found.target, found.name)
        wanted = self.planning.wanted(link=self.link)
        beside = extras(found, self.trust, (), wanted.engine, starts=False, refuses=False)
        order = Order(found, listens, wanted, beside=beside, typed=self.typed)
        noted = _Notes(watch(), [])
        made = shape_of(found, noted)
        asked = EngineRequest(self.image, self.environment)
        site = alternatives.with_engine_sources(self._site(more), order.wanted, asked, found.model)
        choice = placed(order, made, site)
        builds = alternatives.faster_builds(order, site, choice)
        to_do, loads = tuple(launch_steps.steps(order, choice, site)), load_time(choice, site)
        if self.picture is not None:
            from medley.planner.picture import drawn  # rich is for those who ask for a picture

            output.save(self.picture, drawn(found.name, choice))
        table = {
            "model": found.name,
            "layout": dataclasses.asdict(choice.layout),
            "fit": dataclasses.asdict(choice.fit),
            "prediction": {
                **dataclasses.asdict(choice.prediction),
                "ttft_range_s": choice.prediction.ttft_range_s,
            },
            "loading": dataclasses.asdict(loads) if loads else None,
            "cabling": choice.cabling.table,
            "why": choice.why,
            "warnings": choice.warnings,
            "rejected": [{"what": each.what, "because": each.because} for each in choice.rejected],
            "notes": noted.notes,
            "beside": list(beside.why()),
            "builds": [_build_table(each, choice) for each in builds],
            "steps": [step_table(each) for each in to_do],
        }
        loading = (str(loads),) if loads else ()
        told = (
            *loading,
            *_build_lines(builds, choice),
            *(f"beside the weights: {each}" for each in beside.why()),
        )
        text = (*lines(found.name, choice, everything=self.all_), *told, "", *typed(to_do, wide(WIDE)))
        print_result(table, map(fit, text), as_json=self.as_json)

    def _site(self, more: tuple[str, ...]) -> Topology:
        if more and not self.replayed:
            raise Problem(
                f"{more[0]!r} is one model too many",
                cause="plan takes one model; more words are files after --from",
                fix="medley plan MODEL --from FILE FILE",
            )
        joined = membership.noted() if self.imagined is None and not self.replayed else None
        if joined and joined.role == "head":
            return ray_serving.site(joined, None, 0, SILENT)
        return site((*self.replayed, *more), self.imagined)


@dataclass
class _Notes:
    """Keeps what the user should know of the model for --json, too."""

    watch: Progress
    notes: list[str]

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self.watch.stage(name)

    def line(self, text: str) -> None:
        self.watch.line(text)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.watch.note(text)


def _build_table(build: Build, choice: Choice) -> dict[str, object]:
    now, then = choice.prediction.tokens_per_s, build.choice.prediction.tokens_per_s
    return {"name": build.name, "tokens_per_s": then, "instead_of": now, "type": build.typed}


def _build_lines(builds: Iterable[Build], choice: Choice) -> Iterator[str]:
    now = choice.prediction.tokens_per_s
    yield from (f"faster: {each.name}: {each.rate} instead of {now:.1f}: {each.typed}" for each in builds)


_INDENT, WIDE = 3, 100


def typed(steps: "Iterable[launch_steps.Step]", wide: int = WIDE) -> Iterator[str]:
    for step in steps:
        yield f"on {step.host}: {step.typed}"
        if step.image:
            yield f"{' ' * _INDENT} # in a container of {step.image}"
        yield from _wrapped(step.starts.command, wide)


def _wrapped(command: Command, wide: int) -> Iterator[str]:
    """One variable or flag after the other, as many as a line holds."""
    line = " " * _INDENT
    for word in _words(command):
        if len(line) + len(word) > wide:
            yield f"{line} \\"
            line = " " * _INDENT
        line += f" {word}"
    yield line


def _words(command: Command) -> Iterator[str]:
    """Its parts as a shell reads them, a flag and its value together."""
    if command.unset:
        yield " ".join(("env", *(f"-u {name}" for name in command.unset)))
    yield from command.assignments()
    program, *rest = command.argv
    found = [quote(program)]
    for word in rest:
        if word.startswith("-"):
            yield " ".join(found)
            found = []
        found.append(quote(word))
    yield " ".join(found)
