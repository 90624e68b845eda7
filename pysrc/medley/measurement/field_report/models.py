"""Measure models for a field report: the one that is served already, or each in turn on a new server."""

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from medley import config, storage
from medley.cluster import self_command
from medley.cluster.remote import Server
from medley.command import Command
from medley.errors import Problem
from medley.measurement.bench import record
from medley.measurement.bench.load import BenchLoad
from medley.measurement.bench.run import measure_server
from medley.measurement.bench.target import BenchTarget, TargetOptions, prepare_target, require_context_room
from medley.measurement.collective.run import format_now
from medley.measurement.field_report.backends import find_backends
from medley.measurement.field_report.draft import Draft
from medley.measurement.field_report.replay import plan_model, report_layout
from medley.measurement.field_report.report import MODEL_NAME, PlanRequest
from medley.model.resolve import resolve_weights
from medley.model.shape import find_shape
from medley.network.free_port import find_free_port
from medley.planner import list_hosts
from medley.process import Process, wait_until
from medley.serving import server_description, server_records
from medley.unusable_file import skip_unusable_file
from medley.values import Value

_NCCL_VARIABLES = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
"""Variables that make NCCL log, at its start, its version and its transport."""
_SERVE_LIMIT_S, _END_LIMIT_S = 2 * 3600, 60
"""The limits to start, which may include a download of the weights, and to end."""
_MAX_LOG_BYTES = 16 << 20
_MAX_ERROR_LINES = 8
_DEFAULT_REQUEST = PlanRequest()
_HOST_ADDRESS_PATTERN = re.compile(r" \(\d+(?:\.\d+){3}\)")
"""The address that follows a cluster host's name."""
_NAME, _NAME_GAP, _MAX_NAME_CHARS = re.compile(MODEL_NAME), re.compile(r"[^\w.-]+"), 95


class MeasuredModel(Value):
    """A model to measure: on a server that runs, or on one that the report starts."""

    name: str
    request: PlanRequest = _DEFAULT_REQUEST
    server: Server | None = None

    def build_arguments(self, port: int) -> tuple[str, ...]:
        """Return the arguments of `medley` that start its server."""
        hosts = ("--hosts", str(self.request.hosts)) if self.request.hosts else ()
        spread = ("--dp", "1") if self.request.spread else ()
        is_default_engine = self.request.engine == _DEFAULT_REQUEST.engine
        engine = () if is_default_engine else ("--engine", self.request.engine)
        return ("serve", self.name, "--port", str(port), *hosts, *spread, *engine)


def find_ready_server() -> Server | None:
    return next((server for server in server_records.list_servers() if server.state == "ready"), None)


def format_model_name(name: str) -> str:
    """Return the name for the report: unchanged for a table or ORG/NAME, the last part for a folder."""
    if _NAME.fullmatch(name):
        return name
    return _NAME_GAP.sub("-", Path(name).name).strip("-.")[:_MAX_NAME_CHARS] or "model"


def add_model(draft: Draft, model: MeasuredModel, load: BenchLoad, run_limit_s: float) -> None:
    """Add the model's plan, its benchmark and the backends from its log; each may fail by itself."""
    part: dict[str, Any] = {"name": format_model_name(model.name), "by_report": model.server is None}
    draft.parts["models"].append(part)
    with draft.step(f"plan of {model.name}"):
        _add_plan(draft, model, part)
    with draft.step(model.name), _serve_model(draft, model) as server:
        target = prepare_target(TargetOptions(server.url), draft.progress)
        if target.description and target.description.layout:
            layout = report_layout(
                target.description.layout,
                lambda text: draft.redactor.text(_HOST_ADDRESS_PATTERN.sub("", text)),
            )
            part["ran"] = layout.to_table()
        try:
            _add_bench(draft, target, load, run_limit_s, part)
        finally:
            part["backends"] = _list_backends(draft, target, server)


def _add_plan(draft: Draft, model: MeasuredModel, part: dict[str, Any]) -> None:
    description = server_description.read_description(_get_port(model.server)) if model.server else None
    name, request = model.name, model.request
    if description:
        is_folder = description.model not in config.load_models() and description.target.startswith("/")
        name = description.target if is_folder else description.model  # a folder needs its whole path
        hosts = len(list_hosts(description.layout)) if description.layout else None
        request = PlanRequest(engine=description.engine, hosts=hosts)
    files = resolve_weights(name, config.load_models(), storage.find_cache_folder())
    part["name"] = format_model_name(files.name)
    plan = plan_model(part["name"], find_shape(files, draft.progress), draft.answers, draft.wishes, request)
    part["plan"] = plan.to_table()


@contextlib.contextmanager
def _serve_model(draft: Draft, model: MeasuredModel) -> Iterator[Server]:
    """Yield the model's server; start one if none runs, and end it with all its processes."""
    if model.server:
        yield model.server
        return
    port, output, progress = find_free_port(), list[str](), draft.progress
    arguments = model.build_arguments(port)
    variables = {name: value for name, value in _NCCL_VARIABLES.items() if name not in os.environ}

    def read_line(line: str) -> None:
        output.append(line)
        (progress.note if line.startswith("medley: ") and " $ " not in line else progress.line)(line)

    child = Process(Command((*self_command.get_own_command(), *arguments), variables), read_line)
    try:
        with progress.stage(f"medley {' '.join(arguments)}"):
            wait_until(lambda: child.poll() or server_records.is_ready(port), _SERVE_LIMIT_S, every_s=0.5)
        server = next((server for server in server_records.list_servers() if _get_port(server) == port), None)
        if server is None or server.state != "ready":
            cause = "\n".join(output[-_MAX_ERROR_LINES:]) if child.poll() else "it did not answer in time"
            raise Problem(f"{model.name} is not served", cause=cause, fix=f"medley serve {model.name}")
        yield server
    finally:
        with progress.stage(f"end {model.name}"):
            child.stop(_END_LIMIT_S)


def _get_port(server: Server) -> int:
    return urlsplit(server.url).port or 0


def _add_bench(
    draft: Draft, target: BenchTarget, load: BenchLoad, run_limit_s: float, part: dict[str, Any]
) -> None:
    """Add the record of the benchmark; if that is cut off, the runs so far."""
    start = format_now()
    require_context_room(load, target.served.model, target.max_tokens)
    try:
        measure_server(target, load, run_limit_s, draft.progress, draft.other_hosts)
    finally:
        saved = next((bench for bench in record.list_records() if bench.when >= start), None)
        if saved and saved.counted:
            # The report has the hosts' facts already, and results follow from the runs.
            table = saved.replace(about={**saved.about, "hosts": []}).to_table()
            expected = {str(concurrency): row for concurrency, row in table["expected"].items()}
            part["bench"] = {**table, "expected": expected}


def _list_backends(draft: Draft, target: BenchTarget, server: Server) -> list[dict[str, Any]]:
    lines: list[str] = []
    with skip_unusable_file():
        if log := storage.open_file(server_records.get_log_file(f"serve-{_get_port(server)}")):
            with log:
                lines = log.read(_MAX_LOG_BYTES).decode(errors="replace").splitlines()
    return [backend.to_table() for backend in find_backends(target.engine, lines, draft.redactor.text)]
