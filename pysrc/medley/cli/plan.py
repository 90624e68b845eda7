"""`medley plan`."""

import dataclasses
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import join, quote

from rich.text import Text

from medley import cluster, config, engine, storage, user
from medley.cli import Verb, ending, flag, group, output, switch, terminal
from medley.cli.launch_options import TRUST, Planning, site
from medley.cli.output import fit, print_result, step_table, wide
from medley.cli.progress import watch
from medley.cluster import membership, ray_serving
from medley.cluster.host_facts import ask_hosts
from medley.command import Command, without
from medley.engine.launch import Order
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.model.extra_files import ModelExtras
from medley.model.resolve import weights
from medley.model.trust import Trust
from medley.planner import join_names, list_hosts, report
from medley.planner.choose import Choice
from medley.planner.loading import LoadTime, compute_load_time
from medley.planner.placement import PlacementOptions
from medley.planner.topology import Topology
from medley.progress import SILENT, Progress
from medley.serving import alternatives
from medley.serving.alternatives import Build, placed
from medley.serving.chat_parsers import format_of
from medley.serving.extras import find_extras
from medley.serving.prepare import shape_of
from medley.serving.steps import Step
from medley.serving.steps import steps as steps_of

HINTS = "every reason: --why   full commands and variables: --commands   picture: --svg plan.svg"


class PlanVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    planning: Planning = group(Planning)
    trust: Trust = group(Trust, **TRUST)
    replayed: list[str] = switch("--from FILE", "hosts, as transcripts")
    imagined: str | None = switch(
        "--hosts KINDS", "hosts you need not own: spark:2,thor:1", excludes=["--from"]
    )
    link: str | None = switch("--link LINK", "the network between hosts: an interface, address or network")
    image: str | None = switch(
        "--image IMAGE", "container image for every host [default: each kind's own]", excludes=["--env"]
    )
    environment: str | None = switch("--env ENV", "engine environment or your own virtualenv, on every host")
    why: bool = flag("--why", "print every reason and every rejected layout")
    commands: bool = flag("--commands", "print the full commands with their variables")
    as_json: bool = flag("--json", "print one JSON object")
    picture: str | None = switch("--svg FILE", "SVG file to draw the plan in", check=ending(".svg"))

    def main(self, model: str, *more: str) -> None:
        found = weights(model, config.models(), storage.cache(), self.typed)
        listens = engine.Serving(found.target, found.name)
        table = self._table(more)
        wanted = self._wanted(table)
        beside = find_extras(found, self.trust, (), wanted.engine, starts=False, refuses=False)
        order = Order(found, listens, wanted, model_extras=beside, user_command=self.typed)
        noted = _Notes(watch(), [])
        if found.notice:
            noted.note(found.notice)
        made = shape_of(found, noted)
        order = replace(order, serving=replace(listens, chat=format_of(found, ())))
        asked = EngineRequest(self.image, self.environment)
        site = ask_hosts(table, noted) if table else self._site(more)
        if table and asked == EngineRequest():
            site = alternatives.of_model(site, wanted.engine, found.model)
        else:
            site = alternatives.with_engine_sources(site, order.placement, asked, found.model)
        choice = placed(order, made, site)
        builds = alternatives.faster_builds(order, site, choice)
        to_do, loads = tuple(steps_of(order, choice, site)), compute_load_time(choice, site)
        if self.picture is not None:
            from medley.planner.picture import draw_layout

            output.save(self.picture, draw_layout(found.name, choice, join(without(self.typed, ["--svg"]))))
            output.say(f"the plan is drawn in {self.picture}")
        told = choice.prediction
        result = {
            "model": found.name,
            "layout": dataclasses.asdict(choice.layout),
            "fit": dataclasses.asdict(choice.fit),
            "prediction": dataclasses.asdict(told) | {"ttft_range_s": told.ttft_range_s},
            "loading": dataclasses.asdict(loads) if loads else None,
            "cabling": choice.cabling.table,
            "why": choice.why,
            "warnings": choice.warnings,
            "rejected": [{"what": each.candidate, "because": each.reason} for each in choice.rejected],
            "notes": noted.notes,
            "beside": list(beside.why()),
            "builds": [_build_table(each, choice) for each in builds],
            "steps": [step_table(each) for each in to_do],
        }
        if self.as_json:
            print_result(result, (), as_json=True)
            return
        shown = wide(WIDE)
        engine_name = None if wanted.engine == "vllm" else wanted.engine
        settings = {"link": self.link, "engine": engine_name}
        used = list_hosts(choice.layout)
        named = " ".join(each for each in choice.warnings if "not used" in each.partition(":")[0])
        unused = [host for host in site.hosts if host not in used and host not in named]
        blocks = (
            report.format_summary(found.name, choice, shown, beside.warnings, unused),
            report.format_section("Alternatives", report.format_alternatives(choice)),
            report.format_section(
                "Faster builds", _build_lines(builds, choice, alternatives.four_bit_rate(order, site, choice))
            ),
            report.format_reasons(choice, self._more(beside, loads)) if self.why else (),
            report.format_section(
                "Run it", map(Text, typed(to_do, shown)) if self.commands else _to_type(to_do, settings)
            ),
            (Text(), Text(HINTS, "dim")),
        )
        _print(line for block in blocks for line in block)

    def _more(self, beside: ModelExtras, loads: LoadTime | None) -> Iterator[str]:
        yield from [str(loads)] if loads else []
        files = dataclasses.replace(beside, warnings=())
        yield from (each.replace(f"{user.home()}/", "~/") for each in files.why())

    def _table(self, more: tuple[str, ...]) -> cluster.Cluster | None:
        """The cluster of cluster.toml, where its hosts are to be asked because this host heads none."""
        if more or self.replayed or self.imagined is not None or cluster.file() is None:
            return None
        joined = membership.noted()
        return None if joined and joined.role == "head" else cluster.read()

    def _wanted(self, table: cluster.Cluster | None) -> PlacementOptions:
        """What is asked of the placement; what is not typed is as in cluster.toml."""
        if table is None:
            return self.planning.wanted(link=self.link)
        planning = dataclasses.replace(self.planning, engine=self.planning.engine or table.engine)
        wanted, own = planning.wanted(link=self.link), table.wishes
        wishes = dataclasses.replace(own, link=self.link or own.link, transport=wanted.network.transport)
        return dataclasses.replace(wanted, network=wishes)

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

    def moved(self, text: str) -> None:
        self.watch.moved(text)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.watch.note(text)


def _build_table(build: Build, choice: Choice) -> dict[str, object]:
    now, then = choice.prediction.tokens_per_s, build.choice.prediction.tokens_per_s
    return {"name": build.name, "tokens_per_s": then, "instead_of": now, "type": build.typed}


def _build_lines(builds: Iterable[Build], choice: Choice, four_bit: float | None) -> Iterator[Text]:
    now = f"instead of {choice.prediction.tokens_per_s:.1f}"
    rows = [(each.name, f"{each.rate} {now}", each.typed) for each in builds]
    if four_bit:
        rows.append(
            (
                "a 4-bit build",
                f"about {four_bit:.1f} tok/s {now}",
                "if the hub has one: medley models add ORG/NAME",
            )
        )
    return report.format_table([tuple(map(Text, row)) for row in rows])


def _bring_up(steps: list[Step], settings: Mapping[str, str | None]) -> Iterator[Text]:
    """What a person types to make one cluster of these hosts, from its head."""
    hosts = [step.host for step in steps]
    lead = f"  {hosts[0]} $ "
    if cluster.file() is None or not {*hosts} <= cluster.read().hosts.keys():
        yield Text.assemble(lead[:-2], ("$ ", "green"), join(("medley", "init", *hosts, "--head", hosts[0])))
        keys = "; ".join(f'{name} = "{value}"' for name, value in settings.items() if value)
        if keys:
            yield Text(f"    # then in cluster.toml: {keys}", "dim")
        for source, same in groupby((step for step in steps if step.source), lambda step: step.source):
            key = f'{source[0].removeprefix("--")} = "{source[1]}"'
            yield Text(
                f"    # then in cluster.toml, for {join_names([each.host for each in same])}: {key}", "dim"
            )
    yield Text.assemble(lead[:-2], ("$ ", "green"), "medley up")


def _to_type(steps: Iterable[Step], settings: Mapping[str, str | None]) -> Iterator[Text]:
    """What a person types, once for hosts where it is the same."""
    for joins, part in groupby(steps, lambda step: step.joins):
        same = list(part)
        yield from _bring_up(same, settings) if joins else _typed_at_hosts(same)


def _typed_at_hosts(steps: Iterable[Step]) -> Iterator[Text]:
    for (words, image), same in groupby(steps, lambda step: (step.typed, step.image)):
        hosts = f"  {join_names([step.host for step in same])}"
        gap = (
            " $ " if len(hosts) + len(words) + 3 <= WIDE else " $\n    "
        )  # a command stays whole on its line
        yield Text.assemble(hosts, (gap, "green"), words)
        if image:
            yield Text(f"    # in the container image {image}", "dim")


def _print(lines: Iterable[Text]) -> None:
    """Colored on a terminal and wrapped there; plain text elsewhere."""
    out = terminal.console(sys.stdout)
    for line in (each for text in lines for each in text.split(allow_blank=True)):
        for part in fit(line.plain).split("\n"):
            out.print(line if part == line.plain else Text(part, line.style), soft_wrap=True)


_INDENT, WIDE = 3, 100


def typed(steps: Iterable[Step], wide: int = WIDE) -> Iterator[str]:
    for step in steps:
        yield f"on {step.host}: {step.typed}"
        if step.image:
            yield f"{' ' * _INDENT} # in the container image {step.image}"
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
    yield from command.assignments(_quoted)
    program, *rest = command.argv
    found = [_quoted(program)]
    for word in rest:
        if word.startswith("-"):
            yield " ".join(found)
            found = []
        found.append(_quoted(word))
    yield " ".join(found)


def _quoted(word: str) -> str:
    """As a shell reads it, with "$HOME" for this user's home folder: on other hosts it is another."""
    home = re.compile(rf"(?<![^:=,]){re.escape(str(user.home()))}(?=/[^/])")
    return '"$HOME"'.join(quote(part) if part else "" for part in home.split(word)) or quote(word)
