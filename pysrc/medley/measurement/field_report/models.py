"""Measure models for a field report: what is served already, or each in turn, started and ended here."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from medley import config, serving, storage
from medley.cluster import self_command
from medley.cluster.remote import Server
from medley.command import Command
from medley.errors import Problem
from medley.measurement.bench import BenchLoad, record
from medley.measurement.bench.record import Record
from medley.measurement.bench.run import measure
from medley.measurement.bench.target import BenchTarget, TargetOptions, find_target, require_room
from medley.measurement.field_report import MODEL_NAME
from medley.measurement.field_report.backends import backends
from medley.measurement.field_report.draft import Draft, now
from medley.measurement.field_report.replay import planned, reported
from medley.model.resolve import weights
from medley.network import tcp
from medley.planner import hosts_of
from medley.process import Process, wait_until
from medley.schema import EngineName
from medley.serving.prepare import shape_of

DEMO = "demo"
SMALL = ("qwen3-4b-instruct-2507", "qwen3-4b-instruct-2507-fp8", "gpt-oss-20b", "qwen3-8b")
"""Measured instead of the demo on hosts with GPUs that have its weights: nothing is fetched unasked."""
_NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Upon this NCCL logs, at its start, its version and which transport it takes."""
_SERVE_LIMIT_S, _END_LIMIT_S = 2 * 3600, 60
"""Weights may have to be fetched, and hosts may load them slowly."""
_LOG_BYTES = 16 << 20
_LAST = 8
_NAME, _ODD, _LONGEST = re.compile(MODEL_NAME), re.compile(r"[^\w.-]+"), 95


@dataclass(frozen=True)
class MeasuredModel:
    name: str
    hosts: int | None = None
    """How many it is to take; None: as many as are best."""
    engine: EngineName | None = None
    spread: bool = False
    """Whether it is one replica over all of its hosts, so that the engine's ranks use the network."""
    server: Server | None = None
    """Which serves it already."""

    @property
    def port(self) -> int | None:
        return int(self.server.url.rpartition(":")[2].partition("/")[0]) if self.server else None

    def words(self, port: int) -> tuple[str, ...]:
        """What starts it."""
        many = ("--hosts", str(self.hosts)) if self.hosts else ()
        many = (*many, "--dp", "1") if self.spread else many
        engine = ("--engine", self.engine) if self.engine else ()
        return ("serve", self.name, "--port", str(port), *many, *engine)


def ready_server() -> Server | None:
    """The newest that is served on this host and answers."""
    return next((each for each in serving.servers() if each.state == "ready"), None)


def add_model(draft: Draft, model: MeasuredModel, load: BenchLoad, run_limit_s: float) -> None:
    """Its plan, its bench and what its engine's log says of kernels, as far as each can be had."""
    what = serving.description_of(model.port) if model.port else None
    part: dict[str, Any] = {"name": shown_name(model.name), "by_report": model.server is None}
    draft.parts["models"].append(part)
    with draft.step(f"plan of {model.name}"):
        _add_plan(draft, model, what, part)
    with draft.step(model.name), _served(draft, model) as port:
        target = find_target(TargetOptions(f"http://127.0.0.1:{port}/v1"), draft.progress)
        if target.what and target.what.layout:
            ran = reported(target.what.layout, lambda host: draft.redactor.text(host.partition(" (")[0]))
            part["ran"] = json.loads(ran.model_dump_json())
        try:
            part["bench"] = _bench(draft, target, load, run_limit_s, part)
        finally:
            part["backends"] = _backends(draft, target, port)


def shown_name(word: str) -> str:
    """The name of a model's table, ORG/NAME, or of a folder the last part alone."""
    if _NAME.fullmatch(word):
        return word
    return _ODD.sub("-", Path(word).name).strip("-.")[:_LONGEST] or "model"


def _add_plan(
    draft: Draft, model: MeasuredModel, what: serving.Description | None, part: dict[str, Any]
) -> None:
    known = what is None or what.model in config.models() or not what.target.startswith("/")
    word = model.name if what is None else what.model if known else what.target
    found = weights(word, config.models(), storage.cache())
    part["name"] = shown_name(found.name)
    told = planned(
        part["name"],
        shape_of(found, draft.progress),
        draft.answers,
        draft.wishes,
        engine=what.engine if what else model.engine or "vllm",
        hosts=len(hosts_of(what.layout)) if what and what.layout else model.hosts,
        spread=model.spread,
    )
    part["plan"] = json.loads(told.model_dump_json())


@contextlib.contextmanager
def _served(draft: Draft, model: MeasuredModel) -> Iterator[int]:
    """Yield the port of its server, which is ended with all that it started, if it was started here."""
    if model.port:
        yield model.port
        return
    port, said, progress = tcp.free_port(), list[str](), draft.progress
    told = {name: value for name, value in _NCCL.items() if name not in os.environ}

    def heard(line: str) -> None:
        said.append(line)
        (progress.note if line.startswith("medley: ") and " $ " not in line else progress.line)(line)

    child = Process(Command((*self_command.own_command(), *model.words(port)), told), heard)
    try:
        with progress.stage(f"medley {' '.join(model.words(port))}"):
            wait_until(lambda: child.poll() or serving.is_ready(port), _SERVE_LIMIT_S, every_s=0.5)
        if not serving.is_ready(port):
            raise _not_served(model, child, said)
        yield port
    finally:
        with progress.stage(f"end {model.name}"):
            child.stop(_END_LIMIT_S)


def _not_served(model: MeasuredModel, child: Process, said: list[str]) -> Problem:
    at = max((nth for nth, line in enumerate(said) if line.startswith("  cause:")), default=len(said) - _LAST)
    cause = "\n".join(said[max(0, at - 1) :][:_LAST]) if child.poll() else "it did not answer in time"
    return Problem(f"{model.name} is not served", cause=cause, fix=f"medley serve {model.name}")


def _bench(
    draft: Draft, target: BenchTarget, load: BenchLoad, run_limit_s: float, part: dict[str, Any]
) -> dict[str, Any]:
    """The record; where it is cut off, `part` has what there is of it."""
    began = now()
    require_room(load, target.served.model, target.longest)
    try:
        return _without_facts(measure(target, load, run_limit_s, draft.progress, draft.others))
    except BaseException:
        kept = next((each for each in record.every() if each.when >= began), None)
        if kept and kept.counted:
            part["bench"] = _without_facts(kept)
        raise


def _without_facts(found: Record) -> dict[str, Any]:
    """The report has the hosts' already; results follow from the runs."""
    table = json.loads(json.dumps(replace(found, about={**found.about, "hosts": []}).table))
    return {name: each for name, each in table.items() if name not in {"format", "results"}}


def _backends(draft: Draft, target: BenchTarget, port: int) -> list[dict[str, Any]]:
    try:
        with serving.log_file(f"serve-{port}").open(encoding="utf-8", errors="replace") as log:
            lines = log.read(_LOG_BYTES).splitlines()
    except OSError:
        return []
    found = backends(target.engine, lines, draft.redactor.text)
    return [json.loads(each.model_dump_json()) for each in found]
