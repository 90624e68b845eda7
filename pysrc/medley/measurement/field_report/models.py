"""Measure models for a field report: what is served already, or each in turn, started and ended here."""

import contextlib
import os
import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medley import config, serving, storage
from medley.cluster import self_command
from medley.cluster.remote import Server
from medley.command import Command
from medley.errors import Problem
from medley.measurement.bench import BenchLoad, record
from medley.measurement.bench.run import measure
from medley.measurement.bench.target import BenchTarget, TargetOptions, find_target, require_room
from medley.measurement.collective.run import now
from medley.measurement.field_report import MODEL_NAME, PlanRequest
from medley.measurement.field_report.backends import backends
from medley.measurement.field_report.draft import Draft
from medley.measurement.field_report.replay import planned, reported
from medley.model.resolve import weights
from medley.network import tcp
from medley.planner import hosts_of
from medley.process import Process, wait_until
from medley.serving.prepare import shape_of

_NCCL = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Upon this NCCL logs, at its start, its version and which transport it takes."""
_SERVE_LIMIT_S, _END_LIMIT_S = 2 * 3600, 60
"""Weights may have to be fetched, and hosts may load them slowly."""
_LOG_BYTES = 16 << 20
_LAST = 8
_USUAL = PlanRequest()
_JOINED = re.compile(r" \(\d+(?:\.\d+){3}\)")
"""The address that a cluster's host has beside its name."""
_NAME, _ODD, _LONGEST = re.compile(MODEL_NAME), re.compile(r"[^\w.-]+"), 95


@dataclass(frozen=True)
class MeasuredModel:
    name: str
    asked: PlanRequest = _USUAL
    server: Server | None = None

    def words(self, port: int) -> tuple[str, ...]:
        """What starts it, on an engine that is named where it is not the usual one."""
        hosts = ("--hosts", str(self.asked.hosts)) if self.asked.hosts else ()
        spread = ("--dp", "1") if self.asked.spread else ()
        engine = ("--engine", self.asked.engine) if self.asked.engine != _USUAL.engine else ()
        return ("serve", self.name, "--port", str(port), *hosts, *spread, *engine)


def ready_server() -> Server | None:
    return next((each for each in serving.servers() if each.state == "ready"), None)


def shown_name(word: str) -> str:
    """The name of a model's table, ORG/NAME, or of a folder the last part alone."""
    if _NAME.fullmatch(word):
        return word
    return _ODD.sub("-", Path(word).name).strip("-.")[:_LONGEST] or "model"


def add_model(draft: Draft, model: MeasuredModel, load: BenchLoad, run_limit_s: float) -> None:
    """Its plan, its bench and what its engine's log says of kernels, as far as each can be had."""
    part: dict[str, Any] = {"name": shown_name(model.name), "by_report": model.server is None}
    draft.parts["models"].append(part)
    with draft.step(f"plan of {model.name}"):
        _add_plan(draft, model, part)
    with draft.step(model.name), _served(draft, model) as server:
        target = find_target(TargetOptions(server.url), draft.progress)
        if target.what and target.what.layout:
            ran = reported(target.what.layout, lambda text: draft.redactor.text(_JOINED.sub("", text)))
            part["ran"] = ran.model_dump(mode="json")
        try:
            _add_bench(draft, target, load, run_limit_s, part)
        finally:
            part["backends"] = _backends(draft, target, server)


def _add_plan(draft: Draft, model: MeasuredModel, part: dict[str, Any]) -> None:
    what = serving.description_of(_port(model.server)) if model.server else None
    word, asked = model.name, model.asked
    if what:  # of a folder its name is not enough
        word = (
            what.target if what.model not in config.models() and what.target.startswith("/") else what.model
        )
        asked = PlanRequest(engine=what.engine, hosts=len(hosts_of(what.layout)) if what.layout else None)
    found = weights(word, config.models(), storage.cache())
    part["name"] = shown_name(found.name)
    told = planned(part["name"], shape_of(found, draft.progress), draft.answers, draft.wishes, asked)
    part["plan"] = told.model_dump(mode="json")


@contextlib.contextmanager
def _served(draft: Draft, model: MeasuredModel) -> Iterator[Server]:
    """Yield its server, which is ended with all that it started, if it was started here."""
    if model.server:
        yield model.server
        return
    words, said, progress = model.words(port := tcp.free_port()), list[str](), draft.progress
    told = {name: value for name, value in _NCCL.items() if name not in os.environ}

    def heard(line: str) -> None:
        said.append(line)
        (progress.note if line.startswith("medley: ") and " $ " not in line else progress.line)(line)

    child = Process(Command((*self_command.own_command(), *words), told), heard)
    try:
        with progress.stage(f"medley {' '.join(words)}"):
            wait_until(lambda: child.poll() or serving.is_ready(port), _SERVE_LIMIT_S, every_s=0.5)
        server = next((each for each in serving.servers() if _port(each) == port), None)
        if server is None or server.state != "ready":
            why = "\n".join(said[-_LAST:]) if child.poll() else "it did not answer in time"
            raise Problem(f"{model.name} is not served", cause=why, fix=f"medley serve {model.name}")
        yield server
    finally:
        with progress.stage(f"end {model.name}"):
            child.stop(_END_LIMIT_S)


def _port(server: Server) -> int:
    return urlsplit(server.url).port or 0


def _add_bench(
    draft: Draft, target: BenchTarget, load: BenchLoad, run_limit_s: float, part: dict[str, Any]
) -> None:
    """Add the record; where it is cut off, what there is of it."""
    began = now()
    require_room(load, target.served.model, target.longest)
    try:
        measure(target, load, run_limit_s, draft.progress, draft.others)
    finally:
        kept = next((each for each in record.every() if each.when >= began), None)
        if kept and kept.counted:
            # The report has the hosts' facts already, and results follow from the runs.
            table = asdict(replace(kept, about={**kept.about, "hosts": []}))
            part["bench"] = {
                **table,
                "expected": {str(many): each for many, each in table["expected"].items()},
            }


def _backends(draft: Draft, target: BenchTarget, server: Server) -> list[dict[str, Any]]:
    try:
        with serving.log_file(f"serve-{_port(server)}").open(encoding="utf-8", errors="replace") as log:
            lines = log.read(_LOG_BYTES).splitlines()
    except OSError:
        return []
    return [each.model_dump() for each in backends(target.engine, lines, draft.redactor.text)]
