"""`medley bench --field-report`: hosts, links, collectives and models of a cluster in one file to send."""

import contextlib
import json
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from medley import config, json_shape, storage
from medley.cli import output
from medley.cluster import membership, ray_serving
from medley.cluster.cluster_file import Cluster
from medley.cluster.fleet import Fleet, is_this_host
from medley.doctor import report as doctor_report
from medley.doctor.checks import ALL_HOSTS_NAME, Examination
from medley.doctor.examination import examine_cluster, examine_this_host
from medley.doctor.registry import run_checks
from medley.errors import Problem
from medley.measurement.bench.load import BenchLoad
from medley.measurement.field_report.draft import Draft, run_verb
from medley.measurement.field_report.models import MeasuredModel, add_model, find_ready_server
from medley.measurement.field_report.report import FieldReport, PlanRequest, list_contents
from medley.measurement.link.far import measure_cluster_link
from medley.measurement.link.verdict import find_problems
from medley.model.resolve import resolve_weights
from medley.network.fabric import report as fabric_report
from medley.network.ports import API_PORT
from medley.progress import Progress
from medley.schema import EngineName

_DEMO_MODEL = "demo"
_UP_LIMIT_S, _DOWN_LIMIT_S, _COLLECTIVE_LIMIT_S = 3600, 240, 900
_ANSWER_LIMIT_S, _STEP_LIMIT_S, _LINK_TEST_S = 45, 30, 3


@dataclass(frozen=True)
class FieldReportOptions:
    file: str
    load: BenchLoad
    run_limit_s: int
    model: str | None
    """A model to measure after the demo."""
    engine: EngineName
    cluster: Cluster | None = None
    """The cluster, if it has several hosts."""
    cluster_words: tuple[str, ...] = ()
    """--cluster with its file, if the user gave it."""

    @property
    def collective_words(self) -> tuple[str, ...]:
        speed_only = () if self.cluster or membership.find_membership() else ("--only", "speed")
        return ("collective-test", "--json", "--limit", str(_STEP_LIMIT_S), *speed_only)

    def list_models(self, hosts: int) -> Iterator[MeasuredModel]:
        """Yield the served model; if there is none, the demo over all hosts, then the user's model."""
        if server := find_ready_server():
            yield MeasuredModel(server.model, server=server)
            return
        member = membership.find_membership()
        engine = ray_serving.choose_engine(member, None) if member else self.engine
        yield MeasuredModel(_DEMO_MODEL, PlanRequest(engine=engine, hosts=hosts, spread=hosts > 1))
        if self.model and self.model != _DEMO_MODEL:
            yield MeasuredModel(self.model, PlanRequest(engine=engine, hosts=None if hosts > 1 else 1))

    def list_commands(self) -> Iterator[str]:
        """Yield each command of the report, and its purpose."""
        yield "medley doctor --json; medley facts --transcript   # of each host"
        hosts = self.cluster.hosts if self.cluster else {}
        for name in hosts:
            if self.cluster and not is_this_host(self.cluster, name):
                far_command = f"on {name} meanwhile: medley link test --serve"
                yield f"medley link test {name} --seconds {_LINK_TEST_S}   # {far_command}"
        if hosts and not membership.find_membership():
            yield "medley up   # and at the end: medley down"
        for model in self.list_models(len(hosts) or 1):
            if not model.server:
                yield f"medley {' '.join(model.build_arguments(API_PORT))}   # at a free port"
            streams = ",".join(map(str, self.load.concurrencies))
            yield f"medley bench --concurrency {streams} --repeats {self.load.repeats}   # of {model.name}"
        yield f"medley {' '.join(self.collective_words)}"


def write_field_report(options: FieldReportOptions, progress: Progress) -> None:
    """Measure, write the file after each step, and print what is in it."""
    if options.model:
        resolve_weights(
            options.model, config.load_models(), storage.find_cache_folder()
        )  # a Problem before anything is measured
    draft = Draft(lambda text: output.save_text(options.file, text, "--field-report report.json"), progress)
    try:
        _measure(options, draft)
        draft.parts["whole"] = True
    finally:
        draft.save()
        if draft.parts["hosts"] and not draft.parts["whole"]:
            output.print_message(f"stopped; what was measured is kept in {options.file}")
    size = Path(options.file).stat().st_size
    print(f"{options.file}: {-(-size // 1000)} kB, and nothing of it was sent\n")
    for line in list_contents(FieldReport.from_json(json.dumps(draft.parts))):
        print(output.fit(line))
    print("\nreplaced: names, public addresses, serial numbers, secrets; private addresses are in it")
    print(f"read it before you send it: less {options.file}")


def _measure(options: FieldReportOptions, draft: Draft) -> None:
    examination, others = _examine_hosts(options, draft)
    for name in others:
        with draft.step(f"link to {name}"):
            _add_link(options, draft, name, examination)
    with _bring_cluster_up(options, draft):
        member, server = membership.find_membership(), find_ready_server()
        alive_count = sum(node["alive"] for node in member.ask("read")["nodes"]) if member else 1
        if server and options.model not in {None, server.model}:
            draft.skip(str(options.model), f"{server.model} is served already; medley stop ends it")
        for model in options.list_models(alive_count):
            add_model(draft, model, options.load, options.run_limit_s)
        with draft.step("collective-test"):
            if options.cluster and not membership.find_membership():
                raise Problem("no collective-test", cause="the cluster is not up", fix="medley up")
            # Exit code 1: a host or a pair is slow or broken, and all of it is printed.
            lines = run_verb(
                options.collective_words, _COLLECTIVE_LIMIT_S, draft.progress, accepted_codes=(0, 1)
            )
            draft.parts["collective"] = draft.redact(json_shape.parse_last_object(lines))


OtherHosts = Mapping[str, tuple[str, ...]]
"""All names of each other host."""


def _examine_hosts(options: FieldReportOptions, draft: Draft) -> tuple[Examination, OtherHosts]:
    known_cluster, others = options.cluster, {}
    if known_cluster is None:
        examination = examine_this_host(platform.node())
    else:
        with Fleet(known_cluster, draft.progress) as fleet:
            examination = examine_cluster(fleet, draft.progress)
        others = {
            name: (
                name,
                str(host.greeting.get("host", "")),
                *_list_host_names(known_cluster.get_ssh_target(name)),
            )
            for name, host in examination.hosts.items()
            if not is_this_host(known_cluster, name)
        }
    _describe_hosts(draft, examination, others, known_cluster)
    return examination, others


def _list_host_names(target: str) -> Iterator[str]:
    """Yield the host's name in a target of ssh; an address is none."""
    name = target.rpartition("@")[2].rpartition("/")[2].partition(":")[0]
    if any(letter.isalpha() for letter in name):
        yield name


def _describe_hosts(
    draft: Draft, examination: Examination, others: OtherHosts, known_cluster: Cluster | None
) -> None:
    ordered = [*(name for name in examination.hosts if name not in others), *others]
    hosts = {name: examination.hosts[name] for name in ordered}
    answers = {name: (host.answers, host.kind.name if host.kind else None) for name, host in hosts.items()}
    targets = [known_cluster.get_ssh_target(name) for name in others] if known_cluster else []
    users = [target.rpartition("@")[0].rpartition("/")[2] for target in targets]
    draft.describe(answers, others, users, examination.network_options)
    draft.parts["doctor"] = draft.redact(doctor_report.build_table(tuple(run_checks(examination))))
    if examination.fabric:
        facts = {name: host.facts for name, host in hosts.items()}
        draft.parts["fabric"] = draft.redact(fabric_report.build_fabric_table(examination.fabric, facts))
    for name, problem in {**examination.silent_hosts, **examination.network_problems}.items():
        draft.skip("network" if name == ALL_HOSTS_NAME else f"host {name}", problem)
    draft.save()


def _add_link(options: FieldReportOptions, draft: Draft, name: str, examination: Examination) -> None:
    endpoint = examination.fabric.endpoints.get(name) if examination.fabric else None
    if options.cluster is None or endpoint is None:
        raise Problem("no link to measure", cause="these hosts share no network", fix="medley doctor")
    own_facts, progress = examination.hosts[next(iter(draft.report_names))].facts, draft.progress
    measurement = measure_cluster_link(
        options.cluster, name, endpoint.address, own_facts, seconds=_LINK_TEST_S, progress=progress
    )
    table = {
        "measured": measurement.to_table(),
        "problems": [problem.table for problem in find_problems(measurement)],
    }
    draft.parts["links"].append({"host": draft.report_names[name], **draft.redact(table)})


@contextlib.contextmanager
def _bring_cluster_up(options: FieldReportOptions, draft: Draft) -> Iterator[None]:
    """Bring the cluster up where nothing of medley's runs on its hosts, and end it afterwards."""
    if options.cluster is None or membership.find_membership() or find_ready_server():
        yield
        return
    with Fleet(options.cluster, draft.progress) as fleet:
        statuses = fleet.ask("tell", lambda _: {"nodes": False}, limit_s=_ANSWER_LIMIT_S)
    if busy_hosts := [name for name, status in statuses.items() if status["membership"] or status["servers"]]:
        draft.skip("medley up", f"{', '.join(busy_hosts)} runs something of medley's already")
        yield
        return
    try:
        with draft.step("medley up"):
            run_verb(("up", *options.cluster_words), _UP_LIMIT_S, draft.progress)
        yield
    finally:
        with draft.step("medley down"):
            run_verb(("down", *options.cluster_words), _DOWN_LIMIT_S, draft.progress)
