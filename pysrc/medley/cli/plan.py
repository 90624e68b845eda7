"""`medley plan`."""

import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import groupby
from shlex import join, quote

from rich.text import Text

from medley import config, storage, user
from medley.cli import Verb, build_suffix_check, flag, group, output, switch, terminal
from medley.cli.launch_options import TRUST_SWITCHES, PlanningOptions, read_site
from medley.cli.output import build_step_table, compute_command_width, fit, print_result
from medley.cli.progress import start_progress
from medley.cluster import cluster_file, membership, ray_serving
from medley.cluster.host_facts import find_planned_site
from medley.command import Command, drop_switches
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.environment.engine_source import EngineRequest
from medley.errors import Problem
from medley.model.extra_files import ModelExtras
from medley.model.resolve import resolve_weights
from medley.model.shape import find_shape
from medley.model.trust import Trust
from medley.planner import join_names, list_hosts, report
from medley.planner.choose import Choice
from medley.planner.loading import LoadTime, compute_load_time
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.progress import SILENT, Progress
from medley.schema import DEFAULT_ENGINE
from medley.serving import alternatives
from medley.serving.alternatives import Quantization, plan_order
from medley.serving.chat_parsers import find_format
from medley.serving.engine_sources import add_engine_gaps, add_engine_sources
from medley.serving.extras import find_extras
from medley.serving.typed_commands import LaunchStep, list_steps

_JSON_KEYS = {"bottleneck": "bound", "is_calibrated": "fitted", "other_pipelines": "replicas"}
"""Keys of the JSON that differ from the names of fields."""

PLAN_HINTS = "every reason: --why   full commands and variables: --commands   picture: --svg plan.svg"


class PlanVerb(Verb):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    planning: PlanningOptions = group(PlanningOptions)
    trust: Trust = group(Trust, **TRUST_SWITCHES)
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
    picture: str | None = switch(
        "--svg FILE", "SVG file to draw the plan in", check=build_suffix_check(".svg")
    )

    def main(self, model: str, *more: str) -> None:
        model_files = resolve_weights(
            model, config.load_models(), storage.find_cache_folder(), self.typed_words
        )
        cluster_table = self._read_cluster(more)
        placement = self._build_placement(cluster_table)
        extras = find_extras(
            model_files, self.trust, (), placement.engine, is_start=False, refuses_untrusted=False
        )
        serving = ServerSpec(model_files.target, model_files.name)
        notes = _Notes(start_progress(), [])
        if model_files.notice:
            notes.note(model_files.notice)
        model_shape = find_shape(model_files, notes)
        serving = serving.replace(chat=find_format(model_files, ()))
        order = LaunchOrder(
            model_files, serving, placement, model_extras=extras, user_command=self.typed_words
        )
        site = self._find_site(cluster_table, more, order, notes)
        choice = plan_order(order, model_shape, site)
        builds = alternatives.list_faster_quantizations(order, site, choice)
        steps, load_time = tuple(list_steps(order, choice, site)), compute_load_time(choice, site)
        if self.picture is not None:
            from medley.planner.picture import draw_layout

            output.save_text(
                self.picture,
                draw_layout(model_files.name, choice, join(drop_switches(self.typed_words, ["--svg"]))),
            )
            output.print_message(f"the plan is drawn in {self.picture}")
        prediction = choice.prediction
        result = {
            "model": model_files.name,
            "layout": _rename_keys(choice.layout.to_table()),
            "fit": choice.fit.to_table(),
            "prediction": _rename_keys(prediction.to_table()) | {"ttft_range_s": prediction.ttft_range_s},
            "loading": load_time.to_table() if load_time else None,
            "cabling": choice.cabling.table,
            "why": choice.why,
            "warnings": choice.warnings,
            "rejected": [
                {"what": rejection.candidate, "because": rejection.reason} for rejection in choice.rejected
            ],
            "notes": notes.notes,
            "beside": list(extras.list_reasons()),
            "builds": [_build_table(build, choice) for build in builds],
            "steps": [build_step_table(step) for step in steps],
        }
        if self.as_json:
            print_result(result, (), as_json=True)
            return
        width = compute_command_width(PLAN_COLUMNS)
        four_bit_tokens_per_s = alternatives.predict_four_bit_tokens_per_s(order, site, choice)
        engine_name = None if placement.engine == DEFAULT_ENGINE else placement.engine
        settings = {"link": self.link, "engine": engine_name}
        used_hosts = list_hosts(choice.layout)
        warned = " ".join(line for line in choice.warnings if "not used" in line.partition(":")[0])
        unused_hosts = [host for host in site.hosts if host not in used_hosts and host not in warned]
        commands = _list_step_lines(steps, settings)
        if self.commands:
            commands = map(Text, list_command_lines(steps, width))
        blocks = (
            report.format_summary(model_files.name, choice, width, extras.warnings, unused_hosts),
            report.format_section("Alternatives", report.format_alternatives(choice)),
            report.format_section("Faster builds", _list_build_lines(builds, choice, four_bit_tokens_per_s)),
            report.format_reasons(choice, self._list_more_reasons(extras, load_time)) if self.why else (),
            report.format_section("Run it", commands),
            (Text(), Text(PLAN_HINTS, "dim")),
        )
        _print(line for block in blocks for line in block)

    def _list_more_reasons(self, extras: ModelExtras, load_time: LoadTime | None) -> Iterator[str]:
        if load_time:
            yield str(load_time)
        files = extras.replace(warnings=())
        yield from (reason.replace(f"{user.find_home()}/", "~/") for reason in files.list_reasons())

    def _read_cluster(self, more: tuple[str, ...]) -> cluster_file.Cluster | None:
        """Return the cluster of cluster.toml if its hosts must be asked, because this host heads none."""
        if more or self.replayed or self.imagined is not None or cluster_file.find_cluster_file() is None:
            return None
        member = membership.find_membership()
        return None if member and member.role == "head" else cluster_file.read_cluster()

    def _build_placement(self, table: cluster_file.Cluster | None) -> PlacementOptions:
        """Return the placement options of the switches, and of cluster.toml where a switch is missing."""
        if table is None:
            return self.planning.build_placement(link=self.link)
        planning = replace(self.planning, engine=self.planning.engine or table.engine)
        placement, network = planning.build_placement(link=self.link), table.network_options
        network = network.replace(link=self.link or network.link, transport=placement.network.transport)
        return placement.replace(network=network)

    def _find_site(
        self, table: cluster_file.Cluster | None, more: tuple[str, ...], order: LaunchOrder, notes: Progress
    ) -> Site:
        """Return the hosts to plan for, with their engines."""
        request = EngineRequest(self.image, self.environment)
        if table is None:
            return add_engine_sources(self._read_hosts(more), order.placement, request, order.weights.model)
        site = find_planned_site(table, notes)
        if request == EngineRequest():
            return add_engine_gaps(site, order.engine, order.weights.model)
        return add_engine_sources(site, order.placement, request, order.weights.model)

    def _read_hosts(self, more: tuple[str, ...]) -> Site:
        """Return the hosts of --from or --hosts, else the running cluster's, else this host."""
        if more and not self.replayed:
            raise Problem(
                f"plan takes one model: {more[0]!r} is a second",
                cause="more words are files after --from",
                fix="medley plan MODEL --from FILE FILE",
            )
        member = membership.find_membership() if self.imagined is None and not self.replayed else None
        if member and member.role == "head":
            return ray_serving.wait_for_site(member, None, 0, SILENT)
        return read_site((*self.replayed, *more), self.imagined)


@dataclass
class _Notes:
    """A progress that keeps its notes for --json."""

    progress: Progress
    notes: list[str]

    def stage(self, name: str) -> AbstractContextManager[None]:
        return self.progress.stage(name)

    def line(self, text: str) -> None:
        self.progress.line(text)

    def moved(self, text: str) -> None:
        self.progress.moved(text)

    def note(self, text: str) -> None:
        self.notes.append(text)
        self.progress.note(text)


def _rename_keys(fields: Mapping[str, object]) -> dict[str, object]:
    return {_JSON_KEYS.get(name, name): value for name, value in fields.items()}


def _build_table(quantization: Quantization, choice: Choice) -> dict[str, object]:
    speed, other_speed = choice.prediction.tokens_per_s, quantization.choice.prediction.tokens_per_s
    return {
        "name": quantization.name,
        "tokens_per_s": other_speed,
        "instead_of": speed,
        "type": quantization.command,
    }


def _list_build_lines(
    builds: Iterable[Quantization], choice: Choice, four_bit_tokens_per_s: float | None
) -> Iterator[Text]:
    comparison = f"instead of {choice.prediction.tokens_per_s:.1f}"
    rows = [(build.name, f"{build.speed_text} {comparison}", build.command) for build in builds]
    if four_bit_tokens_per_s:
        rows.append(
            (
                "a 4-bit build",
                f"about {four_bit_tokens_per_s:.1f} tok/s {comparison}",
                "if the hub has one: medley models add ORG/NAME",
            )
        )
    return report.format_table([tuple(map(Text, row)) for row in rows])


def _list_cluster_lines(steps: list[LaunchStep], settings: Mapping[str, str | None]) -> Iterator[Text]:
    """Yield the commands that make one cluster of these hosts, to type on its head."""
    hosts = [step.host for step in steps]
    lead = f"  {hosts[0]} $ "
    if cluster_file.find_cluster_file() is None or not {*hosts} <= cluster_file.read_cluster().hosts.keys():
        yield Text.assemble(lead[:-2], ("$ ", "green"), join(("medley", "init", *hosts, "--head", hosts[0])))
        keys = "; ".join(f'{name} = "{value}"' for name, value in settings.items() if value)
        if keys:
            yield Text(f"    # then in cluster.toml: {keys}", "dim")
        for source, same in groupby(
            (step for step in steps if step.source_switch), lambda step: step.source_switch
        ):
            key = f'{source[0].removeprefix("--")} = "{source[1]}"'
            yield Text(
                f"    # then in cluster.toml, for {join_names([step.host for step in same])}: {key}", "dim"
            )
    yield Text.assemble(lead[:-2], ("$ ", "green"), "medley up")


def _list_step_lines(steps: Iterable[LaunchStep], settings: Mapping[str, str | None]) -> Iterator[Text]:
    """Yield the commands to type, once for hosts where they are the same."""
    for is_ray_start, same_steps in groupby(steps, lambda step: step.is_ray_start):
        steps_of_kind = list(same_steps)
        yield from (
            _list_cluster_lines(steps_of_kind, settings) if is_ray_start else _list_host_lines(steps_of_kind)
        )


def _list_host_lines(steps: Iterable[LaunchStep]) -> Iterator[Text]:
    for (words, image), same in groupby(steps, lambda step: (step.shell_text, step.image)):
        hosts = f"  {join_names([step.host for step in same])}"
        gap = (
            " $ " if len(hosts) + len(words) + 3 <= PLAN_COLUMNS else " $\n    "
        )  # a command stays whole on its line
        yield Text.assemble(hosts, (gap, "green"), words)
        if image:
            yield Text(f"    # in the container image {image}", "dim")


def _print(lines: Iterable[Text]) -> None:
    """Print colored and wrapped lines on a terminal, and plain text elsewhere."""
    out = terminal.create_console(sys.stdout)
    for line in (single for text in lines for single in text.split(allow_blank=True)):
        for part in fit(line.plain).split("\n"):
            out.print(line if part == line.plain else Text(part, line.style), soft_wrap=True)


_INDENT_COLUMNS, PLAN_COLUMNS = 3, 100


def list_command_lines(steps: Iterable[LaunchStep], width: int = PLAN_COLUMNS) -> Iterator[str]:
    """Yield the full command of each step, wrapped to this width."""
    for step in steps:
        yield f"on {step.host}: {step.shell_text}"
        if step.image:
            yield f"{' ' * _INDENT_COLUMNS} # in the container image {step.image}"
        yield from _wrap_command(step.started_process.command, width)


def _wrap_command(command: Command, width: int) -> Iterator[str]:
    """Yield lines with as many variables and flags as each holds."""
    line = " " * _INDENT_COLUMNS
    for word in _list_words(command):
        if len(line) + len(word) > width:
            yield f"{line} \\"
            line = " " * _INDENT_COLUMNS
        line += f" {word}"
    yield line


def _list_words(command: Command) -> Iterator[str]:
    """Yield the command's parts as a shell reads them, a flag and its value together."""
    if command.unset:
        yield " ".join(("env", *(f"-u {name}" for name in command.unset)))
    yield from command.format_assignments(_quote_word)
    program, *rest = command.argv
    part = [_quote_word(program)]
    for word in rest:
        if word.startswith("-"):
            yield " ".join(part)
            part = []
        part.append(_quote_word(word))
    yield " ".join(part)


def _quote_word(word: str) -> str:
    """Quote a word for a shell, with "$HOME" for this user's home folder, which differs on other hosts."""
    home = re.compile(rf"(?<![^:=,]){re.escape(str(user.find_home()))}(?=/[^/])")
    return '"$HOME"'.join(quote(part) if part else "" for part in home.split(word)) or quote(word)
