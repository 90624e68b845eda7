"""Replace a detached server by a new one, and start the old one again if the new one does not answer."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from medley import storage
from medley.cluster import events, units
from medley.cluster.unit_file import SERVER_UNIT_PREFIX, Unit
from medley.engine import refused_flags
from medley.engine.accepted_flags import read_programs_flags
from medley.environment import container_image, packaged_model, tools, virtualenv
from medley.errors import Problem
from medley.network.free_port import find_free_port
from medley.progress import Output
from medley.serving import server_description, server_records, weights
from medley.serving.prepare import prepare_job
from medley.serving.request import LaunchRequest
from medley.serving.site import find_this_host
from medley.values import Value

_SOURCE_FLAGS = ("--env", "--image")


class RunningServer(Value):
    """The server that is to be replaced."""

    unit: Unit
    engine_title: str
    """The engine and its version, or the environment's name."""


def find_running_server(port: int) -> RunningServer:
    """Return the detached server of this port; raise a Problem if none is ready."""
    state = units.read_state(f"{SERVER_UNIT_PREFIX}{port}")
    if not (state and state.kept and server_records.is_ready(port)):
        raise Problem(
            f"there is no server to replace on port {port}",
            cause="only one that serve --detach started, and that is ready, can be",
            fix=f"medley serve MODEL --port {port} --detach",
        )
    return RunningServer(_pin_environment(units.read_unit(state.name), port), describe_engine(port))


def describe_engine(port: int) -> str:
    description = server_description.read_description(port)
    if description is None:
        return "an engine of an earlier medley"
    version = virtualenv.read_versions(description.programs_folder.parent, (description.engine,))[
        description.engine
    ]
    return f"{description.engine} {version or description.programs_folder.parent.name}"


def _pin_environment(unit: Unit, port: int) -> Unit:
    """Return the unit; if the lock changed since its start, its command names the old environment."""
    description, argv = server_description.read_description(port), unit.command.argv
    environment = description and virtualenv.read_environment(description.programs_folder.parent)
    has_source = any(word.partition("=")[0] in _SOURCE_FLAGS for word in argv)
    if (
        not (description and environment)
        or has_source
        or virtualenv.is_current(environment)
        or description.plan.get("launcher") == "ray"
    ):
        return unit
    position = argv.index("serve") + 1
    argv = (*argv[:position], "--env", str(environment.path), *argv[position:])
    return unit.replace(command=unit.command.replace(argv=argv))


def prepare_host(request: LaunchRequest, output: Output) -> None:
    """Fetch and build what a server needs on this host, while another has its port and its memory."""
    other_port = request.listen.replace(port=find_free_port())
    job = prepare_job(request.replace(listen=other_port), output)
    order = job.order
    (host,) = find_this_host(request.kind, output.say).hosts.values()
    if request.image:
        container_image.prepare_requested_image(
            request.image, host, order.engine, dry_run=False, progress=output.progress
        )
    elif not (job.cluster and job.cluster.image):
        environment = request.environment or (job.cluster.environment if job.cluster else None)
        programs = tools.prepare_tools(
            host.kind, environment, engine=order.engine, nccl=request.nccl, progress=output.progress
        )
        version = virtualenv.read_versions(programs.program_folder.parent, (order.engine,))[order.engine]
        accepted_flags = read_programs_flags(
            order.engine, programs.program_folder, version, can_run=True, progress=output.progress
        )
        refused_flags.require_known_flags(accepted_flags, (), order.engine_flags)
        packaged_model.build_model(order.weights, programs.program_folder / "python", output.progress)
    weights.fetch_weights(order.weights.name, weights.find_hub_files(order), output.progress)


def replace_server(
    old: RunningServer, new: Unit, port: int, wait_until_ready: Callable[[], list[str]]
) -> tuple[list[str], float]:
    """Return the lines of `wait_until_ready` for the new server, and the seconds without an answer.

    If the new server does not answer, or Ctrl-C ends this, start the old one as it was.
    """
    subject, started_s = f"port {port}", time.monotonic()
    with _restart_old_on_failure(old, subject, wait_until_ready):
        units.start_unit(new)
        lines = wait_until_ready()
    gap_s = time.monotonic() - started_s
    events.record_event(
        "upgrade", subject, f"{old.engine_title} → {describe_engine(port)}, {gap_s:.0f} s without an answer"
    )
    return lines, gap_s


@contextmanager
def _restart_old_on_failure(
    old: RunningServer, subject: str, wait_until_ready: Callable[[], list[str]]
) -> Iterator[None]:
    started_s = time.monotonic()
    try:
        yield
    except BaseException as failure:
        units.start_unit(old.unit)
        if not isinstance(failure, Problem):
            events.record_event("upgrade", subject, f"cut off; {old.engine_title} starts again")
            raise
        try:
            wait_until_ready()
        except Problem as old_problem:
            cause = f"new: {failure.what}: {failure.cause}\nold: {old_problem.what}: {old_problem.cause}"
            events.record_event("fault", subject, f"neither the new nor the old server answers: {cause}")
            raise Problem(
                "neither the new nor the old server answers", cause=cause, fix=old_problem.fix
            ) from failure
        gap_s = time.monotonic() - started_s
        restored = f"{old.engine_title} serves again, after {gap_s:.0f} s without an answer"
        events.record_event("upgrade", subject, f"{restored}: {failure.what}: {failure.cause}")
        raise Problem(
            f"the new server did not answer; {restored}",
            cause=f"{failure.what}: {failure.cause}",
            fix=failure.fix,
        ) from failure


def list_environments_in_use() -> set[Path]:
    """Return the environments' folders of this host's servers."""
    descriptions = (
        server_description.read_description(int(file.stem))
        for file in storage.list_folder(server_records.get_records_folder(), "*.what")
    )
    return {description.programs_folder.parent for description in descriptions if description}
