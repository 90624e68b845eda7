"""Replace a detached server by a new one, and start the old one again where the new one does not answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from medley import serving, storage
from medley.cluster import events, units
from medley.cluster.unit_file import UNIT, Unit
from medley.engine import flags, parser
from medley.environment import container_image, packaged_model, tools, virtualenv
from medley.errors import Problem
from medley.network import tcp
from medley.progress import Output
from medley.serving import weights
from medley.serving.prepare import prepare_job
from medley.serving.request import LaunchRequest
from medley.serving.site import find_this_host

_SOURCES = ("--env", "--image")


@dataclass(frozen=True)
class RunningServer:
    """The server that is to be replaced."""

    unit: Unit
    engine: str
    """Its engine and version, or its environment's name."""


def find_running_server(port: int) -> RunningServer:
    """Return the detached server of this port; raise a Problem if none is ready."""
    state = units.state(f"{UNIT}{port}")
    if not (state and state.kept and serving.is_ready(port)):
        raise Problem(
            f"there is no server to replace on port {port}",
            cause="only one that serve --detach started, and that is ready, can be",
            fix=f"medley serve MODEL --port {port} --detach",
        )
    return RunningServer(_pinned(units.read(state.name), port), engine_of(port))


def engine_of(port: int) -> str:
    found = serving.description_of(port)
    if found is None:
        return "an engine of an earlier medley"
    version = virtualenv.read_versions(found.programs.parent, (found.engine,))[found.engine]
    return f"{found.engine} {version or found.programs.parent.name}"


def _pinned(unit: Unit, port: int) -> Unit:
    """Name its environment where the lock has changed since: its command alone would take the new one."""
    found, argv = serving.description_of(port), unit.command.argv
    there = found and virtualenv.read_environment(found.programs.parent)
    named = any(word.partition("=")[0] in _SOURCES for word in argv)
    if not (found and there) or named or virtualenv.is_current(there) or found.plan.get("launcher") == "ray":
        return unit
    at = argv.index("serve") + 1
    argv = (*argv[:at], "--env", str(there.path), *argv[at:])
    return replace(unit, command=replace(unit.command, argv=argv))


def prepare_host(request: LaunchRequest, output: Output) -> None:
    """Fetch and build what a server needs on this host, while another has its port and its memory."""
    other_port = replace(request.listen, port=tcp.find_free_port())
    job = prepare_job(replace(request, listen=other_port), output)
    order = job.order
    (host,) = find_this_host(request.kind, output.say).hosts.values()
    if request.image:
        container_image.prepare_requested_image(
            request.image, host, order.engine, dry_run=False, watch=output.watch
        )
    elif not (job.cluster and job.cluster.image):
        environment = request.environment or (job.cluster.environment if job.cluster else None)
        programs = tools.prepare_tools(
            host[1], environment, engine=order.engine, nccl=request.nccl, watch=output.watch
        )
        version = virtualenv.read_versions(programs.binary.parent, (order.engine,))[order.engine]
        engine_parser = parser.read_programs_parser(
            order.engine, programs.binary, version, ask=True, watch=output.watch
        )
        flags.require_known_flags(engine_parser, (), order.engine_flags)
        packaged_model.build_model(order.weights, programs.binary / "python", output.watch)
    weights.fetch(order.weights.name, weights.find_hub_files(order), output.watch)


def replace_server(
    old: RunningServer, new: Unit, port: int, ready: Callable[[], list[str]]
) -> tuple[list[str], float]:
    """Return what `ready` did for the new server, and the seconds without an answer.

    Where the new server does not answer, or Ctrl-C ends this, start the old one as it was.
    """
    subject, began = f"port {port}", time.monotonic()
    with _or_back(old, subject, ready):
        units.start(new)
        lines = ready()
    gap_s = time.monotonic() - began
    events.note("upgrade", subject, f"{old.engine} → {engine_of(port)}, {gap_s:.0f} s without an answer")
    return lines, gap_s


@contextmanager
def _or_back(old: RunningServer, subject: str, ready: Callable[[], list[str]]) -> Iterator[None]:
    began = time.monotonic()
    try:
        yield
    except BaseException as failure:
        units.start(old.unit)
        if not isinstance(failure, Problem):
            events.note("upgrade", subject, f"cut off; {old.engine} starts again")
            raise
        try:
            ready()
        except Problem as another:
            cause = f"new: {failure.what}: {failure.cause}\nold: {another.what}: {another.cause}"
            events.note("fault", subject, f"neither the new nor the old server answers: {cause}")
            raise Problem(
                "neither the new nor the old server answers", cause=cause, fix=another.fix
            ) from failure
        gap_s = time.monotonic() - began
        back = f"{old.engine} serves again, after {gap_s:.0f} s without an answer"
        events.note("upgrade", subject, f"{back}: {failure.what}: {failure.cause}")
        raise Problem(
            f"the new server did not answer; {back}",
            cause=f"{failure.what}: {failure.cause}",
            fix=failure.fix,
        ) from failure


def environments_in_use() -> set[Path]:
    """Find the environments' folders of this host's servers."""
    found = (
        serving.description_of(int(file.stem)) for file in storage.list_folder(serving.folder(), "*.what")
    )
    return {each.programs.parent for each in found if each}
