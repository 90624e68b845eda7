"""Find the engine of a launch on this host: its image, its version and its NCCL."""

from medley.cluster.membership import Membership
from medley.environment import container_image, engine_source, own_nccl, virtualenv
from medley.environment.container_image import ContainerEnvironment, ImageRequest, ImageSelection
from medley.environment.tools import Tools
from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.kind import Kind
from medley.progress import Progress
from medley.schema import EngineName


def image_of(
    request: ImageRequest | None,
    cluster: Membership | None,
    host: tuple[Facts, Kind],
    engine: EngineName,
    *,
    over_ray: bool,
    elsewhere: bool,
    dry_run: bool,
    watch: Progress,
) -> ContainerEnvironment | None:
    """Return the image to use; over a cluster that of its Ray."""
    if cluster is None:
        return container_image.imaged_on(
            request, host, engine, dry_run=dry_run, elsewhere=elsewhere, watch=watch
        )
    choice = request.choice(host[1], dry_run=dry_run, watch=watch) if request else None
    if over_ray or choice is None:
        asked, choice = choice, ImageSelection.of(cluster.image) if cluster.image else None
        if asked and (choice is None or asked.image.id != choice.image.id):
            runs = f"{choice.image.name} ({choice.image.short})" if choice else cluster.environment
            raise Problem(
                "--image must name the image of the running Ray",
                cause=f"this cluster runs {runs}, and --image names {asked.image.name} ({asked.image.short})",
                fix="leave --image out, or start the cluster with it: "
                f"medley ray-stop; medley ray-head --image {asked.image.name}",
            )
    if choice is None:
        return None
    return container_image.ready(choice, host, engine, dry_run=dry_run, watch=watch)


def version_of(
    image: ContainerEnvironment | None, found: Tools, kind: Kind, engine: EngineName, named: str | None
) -> str | None:
    """Return the engine's version, if known: installed, of its lock, or of hosts/."""
    if image is None:
        there = virtualenv.versions(found.binary.parent, (engine,))[engine] if found.binary.parts else None
        lock = named or kind.host.environments.get(engine, "")
        return there or engine_source.locked().get(lock, {}).get(engine)
    if image.held:
        return image.versions((engine,))[engine]
    default = kind.host.container
    return default.holds.get(engine) if image.choice.image.name == default.image else None


def ranks_nccl(named: str | None, over_ray: Membership | None) -> str | None:
    """Return the NCCL of this host's ranks, as `named` by the user; over Ray the one of this host's Ray."""
    asked = str(own_nccl.absolute(named)) if named else None
    if over_ray is None or asked in {None, over_ray.nccl}:
        return over_ray.nccl if over_ray else named
    has = over_ray.nccl or "the engine environment's own"
    raise Problem(
        "--nccl must name the NCCL of this host's Ray",
        cause=f"ranks inherit it from Ray, which uses {has}",
        fix=f"medley ray-stop; medley ray-head --nccl {asked}   # or nccl = in cluster.toml",
    )
