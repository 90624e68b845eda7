"""Prepare a job: find the model, the cluster and the launcher of a request."""

import os

from medley import config, credentials, storage
from medley.cluster import membership, ray_serving
from medley.cluster.membership import Membership
from medley.engine import launch, refused_flags
from medley.engine.launch import LaunchBuilder, LaunchOrder
from medley.engine.launcher import (
    choose_launcher,
    container_without_ray_problem,
    dry_run_without_ray_problem,
)
from medley.engine.server_spec import ServerSpec
from medley.environment import container_image, container_runtime
from medley.host_schema import ENGINE_TABLES
from medley.model import resolve, shape
from medley.model.resolve import Weights
from medley.network.free_port import find_free_port, require_free_port
from medley.planner.context import (
    allows_longer_context,
)
from medley.planner.cpu import read_dtype
from medley.planner.plan import Launcher
from medley.progress import Output, Progress
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.serving import chat_parsers
from medley.serving.extras import find_extras
from medley.serving.request import LaunchRequest
from medley.serving.script import container_problem, restrict_placement
from medley.values import Value


class Job(Value):
    """A request with its model, cluster and launcher, which can be planned and started."""

    request: LaunchRequest
    order: LaunchOrder
    cluster: Membership | None = None
    """The Ray cluster that it runs in."""
    launcher: Launcher | None = None
    """The launcher of its ranks; None for recorded or hypothetical hosts."""
    launcher_reason: str = ""

    @property
    def build_launch(self) -> LaunchBuilder:
        """The function that builds what one host starts."""
        return self.request.script.build_launch if self.request.script else launch.build_launch


def prepare_job(request: LaunchRequest, output: Output) -> Job:
    """Find model, cluster and launcher; raise a Problem early for what cannot be started."""
    is_start, progress = not request.dry_run, output.progress
    model_files = resolve.resolve_weights(
        request.model, config.load_models(), storage.find_cache_folder(), request.user_command
    )
    if model_files.notice:
        output.say(model_files.notice)
    if not request.script:
        refused_flags.require_no_server_flags(request.engine_flags)
    serving = _build_serving(request, model_files, progress)
    launcher, launcher_reason = (None, "") if request.other_site else _choose_launcher(request)
    cluster = ray_serving.find_cluster(request.host_count) if launcher in {"ray", "solo"} else None
    engine = (
        ray_serving.choose_engine(cluster, request.engine) if cluster else request.engine or DEFAULT_ENGINE
    )
    if request.script and cluster and cluster.image:
        raise container_problem()
    if is_start:
        resolve.prepare_weights(model_files)
    else:
        resolve.require_weights(model_files)
    extras = find_extras(
        model_files, request.trust, request.engine_flags, engine, is_start=is_start, progress=progress
    )
    placement = request.placement.replace(
        engine=engine,
        partition=os.environ.get(ENGINE_TABLES[engine].partition_variable),
        allows_longer_context=allows_longer_context(os.environ, engine),
        host_count=request.host_count,
        launcher=launcher or request.launcher,
        needs_one_server=True,
        dtype=read_dtype(request.engine_flags),
    )
    if request.script:
        placement = restrict_placement(placement, launcher)
        request = _connect_replicas(request, model_files, progress)
    else:
        serving = _add_chat_format(serving, request, model_files, engine, output)
    order = LaunchOrder(model_files, serving, placement, request.engine_flags, extras, request.user_command)
    return Job(request, order, cluster, launcher, launcher_reason)


def _connect_replicas(request: LaunchRequest, model_files: Weights, progress: Progress) -> LaunchRequest:
    """Return the request with a rendezvous port for the replicas of its script, if there may be several."""
    placement = request.placement
    if request.script is None or ((placement.sizes.replicas or 1) == 1 and placement.goal != "throughput"):
        return request
    has_experts = not request.is_unplanned and shape.find_shape(model_files, progress).experts > 0
    return request.replace(script=request.script.replace(has_experts=has_experts, port=find_free_port()))


def _add_chat_format(
    serving: ServerSpec, request: LaunchRequest, model_files: Weights, engine: EngineName, output: Output
) -> ServerSpec:
    chat = chat_parsers.find_format(model_files, request.engine_flags)
    for warning in chat_parsers.list_warnings(chat, launch.ENGINES[engine], request.engine_flags):
        output.say(warning)
    return serving.replace(chat=chat_parsers.add_user_parsers(chat, request.engine_flags))


def _build_serving(request: LaunchRequest, model_files: Weights, progress: Progress) -> ServerSpec:
    """Return address, name and keys of the API; raise a Problem if its port is not free."""
    if request.script:
        return ServerSpec(model_files.target, model_files.name)
    listen = request.listen
    if listen.origins:
        credentials.require_origins(listen.origins, listen.key)
    # The requests of allowed and of other pages come from the same browser, so a key has to tell them apart.
    reach = "0.0.0.0" if listen.origins else listen.address  # noqa: S104 - compared, not bound
    key = credentials.choose_keys(listen.key, reach, make=not request.dry_run)
    if not request.dry_run:
        if request.image and container_runtime.remove_leftover(
            container_image.name_serving_role(listen.port)
        ):
            progress.note(f"ended a leftover container on port {listen.port}")
        require_free_port(listen.address, listen.port)
    return ServerSpec(
        model_files.target,
        listen.name or model_files.name,
        listen.address,
        listen.port,
        key,
        origins=listen.origins,
        tls=listen.tls,
        socket_folder=None if request.other_site else storage.find_socket_folder() / str(listen.port),
    )


def _choose_launcher(request: LaunchRequest) -> tuple[Launcher, str]:
    """Return the launcher and the reason; raise a Problem if it cannot start this request."""
    cluster = membership.find_membership()
    role = cluster.role if cluster else None
    launcher, reason = choose_launcher(request.launcher, host_count=request.host_count, role=role)
    if launcher == "mp" and request.image:
        raise container_without_ray_problem()
    if launcher == "mp" and request.dry_run:
        hosts, is_script = request.host_count or 2, request.script is not None
        raise dry_run_without_ray_problem(hosts, is_script=is_script)
    return launcher, reason
