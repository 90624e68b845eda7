"""Medley's side of a scenario: every flag and variable of its dry run, by host."""

from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

from medley import config, credentials
from medley.command import AnnotatedCommand, Flag, Variable
from medley.engine import hidden_variables
from medley.engine.launch import LaunchOrder
from medley.engine.python_arguments import convert_to_arguments
from medley.engine.server_spec import ServerSpec
from medley.environment import container
from medley.environment.container import UNLIMITED, ContainerSpec, Image
from medley.measurement.bench.clients import CLIENTS, ServedModel
from medley.measurement.bench.load import BenchRun
from medley.model.extra_files import ModelExtras, list_extras, require_usable_extras
from medley.model.resolve import Weights
from medley.network.link_backends import build_netplan_change
from medley.network.link_setup import RING_HOSTS, LinkRequest, choose_settings
from medley.planner.placement import place_model
from medley.planner.site import Site
from medley.planner.site_network import SiteNetwork
from medley.serving.typed_commands import LaunchStep, list_ray_steps, list_steps
from tests.planner.imagined import shape
from tools.guides.scenarios import Scenario, table
from tools.guides.sites import site

ENVIRONMENT, ENGINE, RAY, CONTAINER, LINK = "environment", "engine", "ray start", "container", "link"
PYTHON, BENCH = "python", "bench"
_SHORT = 24


@dataclass
class DryRun:
    """Values by group, item and host; an item stands under each of its spellings."""

    typed: list[str] = field(default_factory=list)
    values: dict[tuple[str, str], dict[str, list[str]]] = field(default_factory=dict)

    names: dict[tuple[str, str], tuple[str, ...]] = field(default_factory=dict)
    """All spellings of an item, by the first."""

    def add(self, group: str, names: Iterable[str], host: str, value: str) -> None:
        names = tuple(names)
        self.names.setdefault((group, names[0]), names)
        for name in names:
            found = self.values.setdefault((group, name), {}).setdefault(host, [])
            if value not in found:
                found.append(value)

    def beside(self, rows: Container[tuple[str, str]]) -> Iterator[str]:
        """Yield the flags and variables that are none of these items, with a value that all hosts share."""
        for (group, name), spelled in self.names.items():
            if (
                name != "MODEL"
                and group in {ENVIRONMENT, ENGINE}
                and not any((group, each) in rows for each in spelled)
            ):
                values = {", ".join(each) for each in self.of(group, name).values()}
                value = next(iter(values)) if len(values) == 1 else ""
                apart = " " if name.startswith("-") else "="
                yield f"{name}{apart}{value}" if value and len(value) <= _SHORT else name

    def of(self, group: str, item: str) -> dict[str, list[str]]:
        return self.values.get((group, item), {})


def dry_run(scenario: Scenario) -> DryRun:
    """Return what `medley plan` and `serve --dry-run` print for this scenario, as values."""
    hosts = site(table(), scenario.hosts, scenario.wanted, scenario.image)
    made = DryRun([*scenario.typed])
    if scenario.links:
        _add_links(made, hosts)
        return made
    if scenario.bench:
        _add_bench(made, scenario)
        return made
    found = _steps(scenario, hosts)
    if not scenario.only_typed:
        made.typed += [f"on {each.host}: {each.shell_text}" for each in found]
    for each in found:
        _add_step(made, each, hosts, scenario)
    _add_environment(made, found)
    return made


def _steps(scenario: Scenario, hosts: Site) -> list[LaunchStep]:
    model = config.load_models()[scenario.model]
    target = scenario.stands_for or str(model.repository)
    weights = Weights(scenario.stands_for or scenario.model, target, None if scenario.stands_for else model)
    files = require_usable_extras(list_extras(model, {}), scenario.engine, trusted=False)
    refused = not scenario.stands_for and bool(model.remote_code and model.remote_code.needed)
    name, key = (
        scenario.served or weights.name,
        credentials.choose_keys(None, scenario.address, make=False),
    )
    serving = ServerSpec(target, name, scenario.address, scenario.port, key)
    beside = ModelExtras(files=files, is_code_refused=refused)
    order = LaunchOrder(weights, serving, scenario.wanted, scenario.extra, beside)
    made = shape(scenario.model)
    if len(hosts.hosts) == 1 or scenario.launcher == "mp":
        return list(list_steps(order, place_model(made, hosts, order.placement), hosts))
    # The guide's head is Medley's too: that of a cluster that runs.
    wishes = hosts.complete_options(order.placement.network, scenario.engine)
    ends = SiteNetwork(hosts.facts, wishes).find_endpoints(hosts.hosts)
    names = tuple(ends)
    there = hosts.replace(
        rank_order=names,
        free_slots=dict.fromkeys(names, 1),
        addresses={host: end.address for host, end in ends.items()},
    )
    serve = list_steps(order, place_model(made, there, order.placement), there)
    return [*list_ray_steps(wishes, hosts, ends, scenario.engine), *serve]


def _add_step(made: DryRun, step: LaunchStep, hosts: Site, scenario: Scenario) -> None:
    group = RAY if step.started_process.words[0] == "ray" else ENGINE
    for flag in step.started_process.flags:
        made.add(group, flag.names, step.host, flag.value or "")
    if group == ENGINE:
        made.add(ENGINE, ("MODEL",), step.host, step.started_process.words[2])
        _add_words(made, ENGINE, step.host, step.started_process.extra)
        given = (*step.started_process.flags, *(_flag(*each) for each in _pairs(step.started_process.extra)))
        for argument in (
            convert_to_arguments(scenario.engine, step.started_process.words[2], given)
            if scenario.python
            else ()
        ):
            made.add(PYTHON, (argument.name,), step.host, str(argument.value))
    image = step.image or scenario.image
    if image:
        for flag in _contained(step, image, hosts):
            group = ENVIRONMENT if flag.names == ("--env",) else CONTAINER
            made.add(group, _spellings(flag), step.host, _value(flag))
        made.add(CONTAINER, ("IMAGE",), step.host, image)


def _pairs(words: Iterable[str]) -> Iterator[tuple[str, str | None]]:
    for word, following in pairwise((*words, "-")):
        if word.startswith("-"):
            yield word, None if following.startswith("-") else following


def _flag(name: str, value: str | None) -> Flag:
    return Flag((name,), value, "the user's own")


def _add_words(made: DryRun, group: str, host: str, words: Iterable[str]) -> None:
    for name, value in _pairs(words):
        made.add(group, (name,), host, value or "")


def _contained(step: LaunchStep, image: str, hosts: Site) -> Iterator[Flag]:
    """The flags of the container that this step runs in, before the program's own."""
    facts, kind = hosts.hosts[step.host]
    spec = ContainerSpec(
        "docker", Image(image), tuple(container.list_host_flags("docker", kind.table, facts, UNLIMITED))
    )
    role = "ray" if step.started_process.words[0] == "ray" else "8000"
    program = AnnotatedCommand(step.started_process.words, (), step.started_process.variables)
    name = f"medley-{role}"
    for flag in spec.wrap(program, name, {}, detached=role == "ray").flags:
        if flag.names[0] == "--entrypoint":
            return
        yield flag


def _spellings(flag: Flag) -> tuple[str, ...]:
    """A flag that is given several times is several items, as a guide's are (`extract._KEYED`)."""
    if flag.names == ("--ulimit",):
        return (f"--ulimit {str(flag.value).partition('=')[0]}",)
    if flag.names == ("--volume",):
        return (f"-v {str(flag.value).partition(':')[0]}",)
    if flag.names == ("--env",):
        return (str(flag.value).partition("=")[0],)
    return flag.names


def _value(flag: Flag) -> str:
    value = flag.value or ""
    if flag.names in {("--ulimit",), ("--env",)}:
        return value.partition("=")[2]
    return value.partition(":")[2] if flag.names == ("--volume",) else value


def _add_environment(made: DryRun, found: list[LaunchStep]) -> None:
    """The variables of each host's ranks: its own, and those that the first process carries to it."""
    ray = [each for each in found if each.started_process.words[0] == "ray"]
    ranks = [each for each in found if each.started_process.words[0] != "ray"]
    for each in (*ray, *ranks):
        _add_variables(made, each.host, each.started_process.variables)
    if not ray:
        return
    first = ranks[0]
    for host in dict.fromkeys(each.host for each in ray):
        if host != first.host:
            has = {each.name for step in ray if step.host == host for each in step.started_process.variables}
            _add_variables(made, host, _carried(first.started_process.variables, has))


def _carried(variables: tuple[Variable, ...], has: set[str]) -> Iterator[Variable]:
    everywhere = {each.name for each in variables if each.everywhere}
    stays = hidden_variables.list_hidden_names((each.name for each in variables), everywhere)
    return (each for each in variables if each.name not in has and each.name not in stays)


def _add_variables(made: DryRun, host: str, variables: Iterable[Variable]) -> None:
    for each in variables:
        made.add(ENVIRONMENT, (each.name,), host, each.value)


def _add_bench(made: DryRun, scenario: Scenario) -> None:
    """What `medley bench` starts: against a server, and without one."""
    client, model = CLIENTS[scenario.engine], str(config.load_models()[scenario.model].repository)
    run, result, binary = BenchRun(8, 20, 512, 2000, 0, 1), Path("result.json"), Path()
    served = ServedModel("http://192.168.200.1:8000", "/v1", model, model)
    _add_words(made, BENCH, "spark-1", client.build_command(binary, served, run, result).argv)
    for mode in ("latency", "throughput"):
        _add_words(made, BENCH, "spark-1", client.build_offline_argv(binary, model, mode, run, result))


def _add_links(made: DryRun, hosts: Site) -> None:
    """What `medley link setup` writes for netplan on each host, whose fast ports have no address before."""
    of_ring = len(hosts.hosts) == RING_HOSTS
    for place, (host, (facts, _)) in enumerate(hosts.hosts.items(), 1):
        asked = LinkRequest(ring=place if of_ring else None)
        found = choose_settings(
            facts, asked, {link.name: "the LAN" for link in facts.net.links if link.name == "enP7s7"}
        )
        change = build_netplan_change(found, None)
        for each in found:
            made.add(LINK, ("address",), host, f"{each.interface} {each.address}")
        for line in change.file.text.splitlines() if change.file else ():
            key, _, value = line.strip().partition(": ")
            if key in {"dhcp4", "link-local"}:
                made.add(LINK, (key,), host, value)
        made.typed.append(f"on {host}: medley link setup")
