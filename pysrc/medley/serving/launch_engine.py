"""Find the engine of a launch on its first host: container image or environment, version and NCCL."""

from medley.cluster.membership import Membership
from medley.environment import (
    container_image,
    engine_source,
    packaged_model,
    tools,
    user_nccl,
    virtualenv,
)
from medley.environment.container_image import ContainerEnvironment, ImageRequest, ImageSelection
from medley.environment.tools import NO_TOOLS, Tools
from medley.errors import Problem
from medley.host.kind import Kind, SiteHost
from medley.progress import Progress
from medley.schema import EngineName
from medley.serving.prepare import Job
from medley.values import Value


class HostEngine(Value):
    """The engine that a host runs: from a container image, or the programs of an environment."""

    image: ContainerEnvironment | None
    tools: Tools
    version: str | None
    """The engine's version; None for an image whose content is unknown."""


def prepare_engine(job: Job, host: SiteHost, cluster: Membership | None, progress: Progress) -> HostEngine:
    """Find the engine of this host, and build its environment unless in a dry run.

    `cluster`: the Ray cluster that starts the ranks. Its engine is from the environment or image whose Ray
    runs, whatever this host would choose now.
    """
    request, engine = job.request, job.order.placement.engine
    image = find_image(
        request.image,
        job.cluster if cluster or not request.environment else None,
        host,
        engine,
        over_ray=cluster is not None,
        is_other_host=request.other_site is not None,
        dry_run=request.dry_run,
        progress=progress,
    )
    environment = request.environment or (cluster.environment if cluster else None)
    programs = NO_TOOLS
    if image is None:
        programs = tools.prepare_tools(
            host[1],
            environment,
            engine=engine,
            is_multi_host=cluster is not None,
            nccl=choose_nccl(request.nccl, cluster),
            dry_run=request.dry_run,
            progress=progress,
        )
        if not request.dry_run:
            packaged_model.build_model(job.order.weights, programs.program_folder / "python", progress)
    elif not request.dry_run:
        packaged_model.require_model(job.order.weights)
    return HostEngine(image, programs, find_version(image, programs, host[1], engine, environment))


def find_image(
    request: ImageRequest | None,
    cluster: Membership | None,
    host: SiteHost,
    engine: EngineName,
    *,
    over_ray: bool,
    is_other_host: bool,
    dry_run: bool,
    progress: Progress,
) -> ContainerEnvironment | None:
    """Return the image to use; over a cluster that of its Ray."""
    if cluster is None:
        return container_image.prepare_requested_image(
            request, host, engine, dry_run=dry_run, is_other_host=is_other_host, progress=progress
        )
    selection = request.select_image(host.kind, dry_run=dry_run, progress=progress) if request else None
    if over_ray or selection is None:
        requested, selection = selection, ImageSelection.parse(cluster.image) if cluster.image else None
        if requested and (selection is None or requested.image.id != selection.image.id):
            raise _other_image_problem(cluster, requested, selection)
    if selection is None:
        return None
    return container_image.prepare_image(selection, host, engine, dry_run=dry_run, progress=progress)


def _other_image_problem(
    cluster: Membership, requested: ImageSelection, running: ImageSelection | None
) -> Problem:
    runs = f"{running.image.name} ({running.image.short_id})" if running else cluster.environment
    name = requested.image.name
    return Problem(
        "--image must name the image of the running Ray",
        cause=f"this cluster runs {runs}, and --image names {name} ({requested.image.short_id})",
        fix="leave --image out, or start the cluster with it: "
        f"medley ray-stop; medley ray-head --image {name}",
    )


def find_version(
    image: ContainerEnvironment | None,
    programs: Tools,
    kind: Kind,
    engine: EngineName,
    environment: str | None,
) -> str | None:
    """Return the engine's version, if known, as installed, as locked, or as the host's table has it."""
    if image is None:
        installed = None
        if programs.program_folder.parts:
            installed = virtualenv.read_versions(programs.program_folder.parent, (engine,))[engine]
        lock = environment or kind.table.environments.get(engine, "")
        return installed or engine_source.read_locked_versions().get(lock, {}).get(engine)
    if image.contents:
        return image.find_versions((engine,))[engine]
    default = kind.table.container
    return default.holds.get(engine) if image.selection.image.name == default.image else None


def choose_nccl(requested: str | None, cluster: Membership | None) -> str | None:
    """Return the NCCL file of this host's ranks: the user's, over Ray the one of this host's Ray."""
    file = str(user_nccl.expand_path(requested)) if requested else None
    if cluster is None:
        return requested
    if file in {None, cluster.nccl}:
        return cluster.nccl
    ray_nccl = cluster.nccl or "the engine environment's own"
    raise Problem(
        "--nccl must name the NCCL of this host's Ray",
        cause=f"ranks inherit it from Ray, which uses {ray_nccl}",
        fix=f"medley ray-stop; medley ray-head --nccl {file}   # or nccl = in cluster.toml",
    )


def override_with_host_variables(
    programs: Tools, cluster: Membership, environ_names: frozenset[str]
) -> Tools:
    """Return the programs with the cluster's own variables, without those that the user's shell sets."""
    table = {name: value for name, value in cluster.table.items() if name not in environ_names}
    return programs.replace(host_variables=table)
