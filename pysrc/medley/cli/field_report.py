"""`medley bench --field-report`: hosts, links, collectives and models of a cluster in one file to send."""

import contextlib
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from medley import config, json_shape, storage
from medley.cli import output
from medley.cli.output import say
from medley.cluster import Cluster, membership
from medley.cluster.fleet import Fleet, is_here
from medley.doctor import report as doctor_report
from medley.doctor.case import of_cluster, of_this
from medley.doctor.checks import Case
from medley.doctor.registry import checks
from medley.errors import Problem
from medley.measurement import link as link_test
from medley.measurement.bench import BenchLoad
from medley.measurement.field_report import contents, read
from medley.measurement.field_report.draft import Draft, verb
from medley.measurement.field_report.models import DEMO, SMALL, MeasuredModel, add_model, ready_server
from medley.measurement.link.far import measure_far
from medley.model import hub
from medley.model.resolve import weights
from medley.network.fabric import report as fabric_report
from medley.progress import Progress
from medley.schema import EngineName

_UP_LIMIT_S, _DOWN_LIMIT_S, _COLLECTIVE_LIMIT_S = 3600, 240, 900
_ASK_LIMIT_S, _STEP_LIMIT_S, _LINK_SECONDS = 45, 30, 3


@dataclass(frozen=True)
class FieldReportOptions:
    file: str
    load: BenchLoad
    run_limit_s: int
    model: str | None
    """To be measured besides what is served or a small one."""
    engine: EngineName | None
    cluster: Cluster | None
    cluster_file: str | None = None
    """As --cluster names it."""

    def of_cluster(self, word: str) -> tuple[str, ...]:
        return (word, *(("--cluster", self.cluster_file) if self.cluster_file else ()))

    @property
    def several(self) -> bool:
        return self.cluster is not None and len(self.cluster.hosts) > 1

    def commands(self) -> Iterator[str]:
        """Each command that it comes to, and what it is for."""
        many, server = self.load.concurrencies, ready_server()
        bench = f"medley bench --concurrency {','.join(map(str, many))} --repeats {self.load.repeats}"
        yield "medley doctor --json; medley facts --transcript   # of each host"
        if self.cluster and self.several:
            for name in self.cluster.hosts:
                if not is_here(self.cluster, name):
                    there = f"on {name} meanwhile: medley link test --serve"
                    yield f"medley link test {name} --seconds {_LINK_SECONDS}   # {there}"
            if not membership.noted():
                yield "medley up   # and at the end: medley down"
        if server:
            yield f"{bench}   # of {server.model}, which is served"
        for name in () if server else filter(None, (DEMO, self.model)):
            every = len(self.cluster.hosts) if self.cluster and name == DEMO else None
            model = MeasuredModel(name, every, self.engine, spread=(every or 1) > 1)
            yield f"medley {' '.join(model.words(8000))}   # at a free port"
            yield f"{bench}   # of {name}"
        yield f"medley {' '.join(self.collective)}"

    @property
    def collective(self) -> tuple[str, ...]:
        alone = () if self.several or membership.noted() else ("--only", "speed")
        return ("collective-test", "--json", "--limit", str(_STEP_LIMIT_S), *alone)


def make(options: FieldReportOptions, seen: Progress) -> None:
    """Measure, write the file after each step, and print what is in it."""
    if options.model:
        weights(options.model, config.models(), storage.cache())  # a Problem before anything is measured
    draft = Draft(lambda text: output.save(options.file, text, "--field-report report.json"), seen)
    try:
        _measure(options, draft)
        draft.parts["whole"] = True
    finally:
        draft.save()
        if draft.parts["hosts"] and not draft.parts["whole"]:
            say(f"stopped; what was measured is kept in {options.file}")
    path = Path(options.file)
    print(f"{path}: {-(-path.stat().st_size // 1000)} kB, and nothing of it was sent\n")
    for line in contents(read(path)):
        print(output.fit(line))
    print("\nreplaced: names, public addresses, serial numbers, secrets; private addresses are in it")
    print(f"read it before you send it: less {path}")


def _measure(options: FieldReportOptions, draft: Draft) -> None:
    case, small = _hosts(options, draft)
    here, *others = draft.called
    for name in others:
        with draft.step(f"link to {name}"):
            _add_link(options, draft, name, case, here)
    with _cluster(options, draft):
        for model in _models(options, draft, small):
            add_model(draft, model, options.load, options.run_limit_s)
        with draft.step("collective-test"):
            if options.several and not membership.noted():
                raise Problem("no collective-test", cause="the cluster is not up", fix="medley up")
            # Exit code 1: a host or a pair is slow or broken, and all of it is printed.
            said = verb(options.collective, _COLLECTIVE_LIMIT_S, draft.progress, fine=(0, 1))
            draft.parts["collective"] = draft.clean(json_shape.last_table(said))


def _hosts(options: FieldReportOptions, draft: Draft) -> tuple[Case, str]:
    """What they are, what the doctor finds, their network; and which small model is here."""
    repositories = {name: str(config.models()[name].repository) for name in SMALL}
    wanted = options.cluster
    if wanted is None or not options.several:
        case = of_this(platform.node())
        held = {name: bool(hub.snapshots(each)) for name, each in repositories.items()}
        _describe(draft, case, {}, ())
        return case, _small(case, held)
    with Fleet(wanted, draft.progress) as fleet:
        case = of_cluster(fleet, draft.progress)
        held = {name: _everywhere(fleet, case, each) for name, each in repositories.items()}
    others = {
        name: (name, str(case.hosts[name].greeting.get("host", "")), _named(wanted.target(name)))
        for name in case.hosts
        if not is_here(wanted, name)
    }
    users = [user for name in others if (user := wanted.target(name).rpartition("@")[0].rpartition("/")[2])]
    _describe(draft, case, others, users)
    return case, _small(case, held)


def _everywhere(fleet: Fleet, case: Case, repository: str) -> bool:
    """Whether every host has these weights."""
    asked = {"step": "has", "target": repository}
    said = fleet.ask("transfer", lambda _: asked, limit_s=_ASK_LIMIT_S)
    return set(said) == set(case.hosts) and all(each["here"] for each in said.values())


def _small(case: Case, held: Mapping[str, bool]) -> str:
    gpus = all(host.gpu_kind for host in case.hosts.values())
    return next((name for name in SMALL if gpus and held[name]), DEMO)


def _named(target: str) -> str:
    """The host's name in a target of ssh; an address is none."""
    name = target.rpartition("@")[2].rpartition("/")[2].partition(":")[0]
    return name if any(letter.isalpha() for letter in name) else ""


def _describe(
    draft: Draft, case: Case, others: Mapping[str, tuple[str, ...]], users: list[str] | tuple[str, ...]
) -> None:
    ordered = [*(name for name in case.hosts if name not in others), *others]
    hosts = {name: case.hosts[name] for name in ordered}
    told = {name: (host.answers, host.kind.name if host.kind else None) for name, host in hosts.items()}
    draft.describe(told, others, users, case.wishes)
    draft.parts["doctor"] = draft.clean(doctor_report.table(tuple(checks(case))))
    if case.fabric:
        facts = {name: host.facts for name, host in hosts.items()}
        draft.parts["fabric"] = draft.clean(fabric_report.table(case.fabric, facts))
    for name, problem in case.silent.items():
        draft.skip(f"host {name}", problem)
    for problem in case.apart.values():
        draft.skip("network", problem)
    draft.save()


def _add_link(options: FieldReportOptions, draft: Draft, name: str, case: Case, here: str) -> None:
    end = case.fabric.ends.get(name) if case.fabric else None
    if options.cluster is None or end is None:
        raise Problem("no link to measure", cause="these hosts share no network", fix="medley doctor")
    found = measure_far(
        options.cluster,
        name,
        end.address,
        case.hosts[here].facts,
        seconds=_LINK_SECONDS,
        progress=draft.progress,
    )
    problems = [draft.clean(each.table) for each in link_test.problems(found)]
    told = {"host": draft.called[name], "measured": draft.clean(asdict(found)), "problems": problems}
    draft.parts["links"].append(told)


@contextlib.contextmanager
def _cluster(options: FieldReportOptions, draft: Draft) -> Iterator[None]:
    """Bring the cluster up where nothing of medley's runs on its hosts, and end it afterwards."""
    wanted = options.cluster
    if wanted is None or not options.several or membership.noted() or ready_server():
        yield
        return
    with Fleet(wanted, draft.progress) as fleet:
        there = fleet.ask("tell", lambda _: {"nodes": False}, limit_s=_ASK_LIMIT_S)
    if busy := [name for name, each in there.items() if each["membership"] or each["servers"]]:
        draft.skip("cluster", f"it is not brought up, because {', '.join(busy)} runs something of medley's")
        yield
        return
    try:
        with draft.step("cluster"):
            verb(options.of_cluster("up"), _UP_LIMIT_S, draft.progress)
        yield
    finally:
        with draft.step("end of the cluster"):
            verb(options.of_cluster("down"), _DOWN_LIMIT_S, draft.progress)


def _models(options: FieldReportOptions, draft: Draft, small: str) -> Iterator[MeasuredModel]:
    """What is served already, or else a small one over all hosts, and then the one that was named."""
    server, asked, engine = ready_server(), options.model, options.engine
    if server:
        if asked and asked != server.model:
            draft.skip(asked, f"{server.model} is served already; medley stop ends it")
        yield MeasuredModel(server.model, server=server)
        return
    found = membership.noted()
    living = sum(node["alive"] for node in found.ask("read")["nodes"]) if found else 1
    yield MeasuredModel(small, living, engine, spread=living > 1)
    if asked and asked != small:
        yield MeasuredModel(asked, None if found else 1, engine)
