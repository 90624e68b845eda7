"""`medley bench --field-report`: hosts, links, collectives and models of a cluster in one file to send."""

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from medley import config, json_shape, storage
from medley.cli import output
from medley.cluster import Cluster, membership, ray_serving
from medley.cluster.fleet import Fleet, is_this_host
from medley.doctor import report as doctor_report
from medley.doctor.case import examine_cluster, examine_this_host
from medley.doctor.checks import GROUP, Case
from medley.doctor.registry import run_checks
from medley.errors import Problem
from medley.measurement import link as link_test
from medley.measurement.bench import BenchLoad
from medley.measurement.field_report import FieldReport, PlanRequest, list_contents
from medley.measurement.field_report.draft import Draft, run_verb
from medley.measurement.field_report.models import MeasuredModel, add_model, find_ready_server
from medley.measurement.link.far import measure_cluster_link
from medley.model.resolve import resolve_weights
from medley.network.fabric import report as fabric_report
from medley.progress import Progress
from medley.schema import EngineName

_DEMO = "demo"
_UP_LIMIT_S, _DOWN_LIMIT_S, _COLLECTIVE_LIMIT_S = 3600, 240, 900
_ASK_LIMIT_S, _STEP_LIMIT_S, _LINK_SECONDS = 45, 30, 3


@dataclass(frozen=True)
class FieldReportOptions:
    file: str
    load: BenchLoad
    run_limit_s: int
    model: str | None
    """To be measured besides the demo."""
    engine: EngineName
    cluster: Cluster | None = None
    """Of several hosts."""
    cluster_words: tuple[str, ...] = ()
    """--cluster, where it was typed."""

    @property
    def collective(self) -> tuple[str, ...]:
        alone = () if self.cluster or membership.find_membership() else ("--only", "speed")
        return ("collective-test", "--json", "--limit", str(_STEP_LIMIT_S), *alone)

    def models(self, hosts: int) -> Iterator[MeasuredModel]:
        """What is served already, or else the demo over all hosts, and then the one that was named."""
        if server := find_ready_server():
            yield MeasuredModel(server.model, server=server)
            return
        found = membership.find_membership()
        engine = ray_serving.choose_engine(found, None) if found else self.engine
        yield MeasuredModel(_DEMO, PlanRequest(engine=engine, hosts=hosts, spread=hosts > 1))
        if self.model and self.model != _DEMO:
            yield MeasuredModel(self.model, PlanRequest(engine=engine, hosts=None if hosts > 1 else 1))

    def commands(self) -> Iterator[str]:
        """Each command that it comes to, and what it is for."""
        yield "medley doctor --json; medley facts --transcript   # of each host"
        hosts = self.cluster.hosts if self.cluster else {}
        for name in hosts:
            if self.cluster and not is_this_host(self.cluster, name):
                there = f"on {name} meanwhile: medley link test --serve"
                yield f"medley link test {name} --seconds {_LINK_SECONDS}   # {there}"
        if hosts and not membership.find_membership():
            yield "medley up   # and at the end: medley down"
        for model in self.models(len(hosts) or 1):
            if not model.server:
                yield f"medley {' '.join(model.build_arguments(8000))}   # at a free port"
            many = ",".join(map(str, self.load.concurrencies))
            yield f"medley bench --concurrency {many} --repeats {self.load.repeats}   # of {model.name}"
        yield f"medley {' '.join(self.collective)}"


def make(options: FieldReportOptions, seen: Progress) -> None:
    """Measure, write the file after each step, and print what is in it."""
    if options.model:
        resolve_weights(
            options.model, config.models(), storage.cache()
        )  # a Problem before anything is measured
    draft = Draft(lambda text: output.save_text(options.file, text, "--field-report report.json"), seen)
    try:
        _measure(options, draft)
        draft.parts["whole"] = True
    finally:
        draft.save()
        if draft.parts["hosts"] and not draft.parts["whole"]:
            output.say(f"stopped; what was measured is kept in {options.file}")
    size = Path(options.file).stat().st_size
    print(f"{options.file}: {-(-size // 1000)} kB, and nothing of it was sent\n")
    for line in list_contents(FieldReport.model_validate_json(json.dumps(draft.parts))):
        print(output.fit(line))
    print("\nreplaced: names, public addresses, serial numbers, secrets; private addresses are in it")
    print(f"read it before you send it: less {options.file}")


def _measure(options: FieldReportOptions, draft: Draft) -> None:
    case, others = _hosts(options, draft)
    for name in others:
        with draft.step(f"link to {name}"):
            _add_link(options, draft, name, case)
    with _cluster(options, draft):
        found, server = membership.find_membership(), find_ready_server()
        living = sum(node["alive"] for node in found.ask("read")["nodes"]) if found else 1
        if server and options.model not in {None, server.model}:
            draft.skip(str(options.model), f"{server.model} is served already; medley stop ends it")
        for model in options.models(living):
            add_model(draft, model, options.load, options.run_limit_s)
        with draft.step("collective-test"):
            if options.cluster and not membership.find_membership():
                raise Problem("no collective-test", cause="the cluster is not up", fix="medley up")
            # Exit code 1: a host or a pair is slow or broken, and all of it is printed.
            said = run_verb(options.collective, _COLLECTIVE_LIMIT_S, draft.progress, accepted_codes=(0, 1))
            draft.parts["collective"] = draft.redact(json_shape.last_table(said))


Others = Mapping[str, tuple[str, ...]]
"""All names of each other host."""


def _hosts(options: FieldReportOptions, draft: Draft) -> tuple[Case, Others]:
    wanted, others = options.cluster, {}
    if wanted is None:
        case = examine_this_host(platform.node())
    else:
        with Fleet(wanted, draft.progress) as fleet:
            case = examine_cluster(fleet, draft.progress)
        others = {
            name: (name, str(host.greeting.get("host", "")), *_named(wanted.get_ssh_target(name)))
            for name, host in case.hosts.items()
            if not is_this_host(wanted, name)
        }
    _describe(draft, case, others, wanted)
    return case, others


def _named(target: str) -> Iterator[str]:
    """Yield the host's name in a target of ssh; an address is none."""
    name = target.rpartition("@")[2].rpartition("/")[2].partition(":")[0]
    if any(letter.isalpha() for letter in name):
        yield name


def _describe(draft: Draft, case: Case, others: Others, wanted: Cluster | None) -> None:
    ordered = [*(name for name in case.hosts if name not in others), *others]
    hosts = {name: case.hosts[name] for name in ordered}
    told = {name: (host.answers, host.kind.name if host.kind else None) for name, host in hosts.items()}
    targets = [wanted.get_ssh_target(name) for name in others] if wanted else []
    users = [each.rpartition("@")[0].rpartition("/")[2] for each in targets]
    draft.describe(told, others, users, case.wishes)
    draft.parts["doctor"] = draft.redact(doctor_report.build_table(tuple(run_checks(case))))
    if case.fabric:
        facts = {name: host.facts for name, host in hosts.items()}
        draft.parts["fabric"] = draft.redact(fabric_report.build_fabric_table(case.fabric, facts))
    for name, problem in {**case.silent_hosts, **case.network_problems}.items():
        draft.skip("network" if name == GROUP else f"host {name}", problem)
    draft.save()


def _add_link(options: FieldReportOptions, draft: Draft, name: str, case: Case) -> None:
    end = case.fabric.endpoints.get(name) if case.fabric else None
    if options.cluster is None or end is None:
        raise Problem("no link to measure", cause="these hosts share no network", fix="medley doctor")
    here, seen = case.hosts[next(iter(draft.report_names))].facts, draft.progress
    found = measure_cluster_link(
        options.cluster, name, end.address, here, seconds=_LINK_SECONDS, progress=seen
    )
    told = {"measured": asdict(found), "problems": [each.table for each in link_test.find_problems(found)]}
    draft.parts["links"].append({"host": draft.report_names[name], **draft.redact(told)})


@contextlib.contextmanager
def _cluster(options: FieldReportOptions, draft: Draft) -> Iterator[None]:
    """Bring the cluster up where nothing of medley's runs on its hosts, and end it afterwards."""
    if options.cluster is None or membership.find_membership() or find_ready_server():
        yield
        return
    with Fleet(options.cluster, draft.progress) as fleet:
        there = fleet.ask("tell", lambda _: {"nodes": False}, limit_s=_ASK_LIMIT_S)
    if busy := [name for name, each in there.items() if each["membership"] or each["servers"]]:
        draft.skip("medley up", f"{', '.join(busy)} runs something of medley's already")
        yield
        return
    try:
        with draft.step("medley up"):
            run_verb(("up", *options.cluster_words), _UP_LIMIT_S, draft.progress)
        yield
    finally:
        with draft.step("medley down"):
            run_verb(("down", *options.cluster_words), _DOWN_LIMIT_S, draft.progress)
