"""The switches of verbs that run out of an image: which one, and what it is given of this host."""

from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported when a verb runs, to keep `medley --help` fast
    from medley.chosen import Wanted
    from medley.facts import Facts
    from medley.imaged import Choice, Imaged
    from medley.kind import Kind
    from medley.membership import Membership
    from medley.tables import Engine

_NEEDS = ["--image"]


class FromImage(Verb):
    image = cli.SwitchAttr(
        "--image",
        str,
        argname="IMAGE",
        excludes=["--env"],
        help="run it in a container of this image; default: the one that hosts/ names for this kind of host",
    )
    container = cli.SwitchAttr(
        "--container",
        cli.Set("docker", "podman"),
        argname="PROGRAM",
        requires=_NEEDS,
        help="docker or podman; default: the one that has the image, else docker where it answers",
    )
    nccl = cli.SwitchAttr(
        "--nccl",
        str,
        argname="FILE",
        requires=_NEEDS,
        help="this host's libnccl.so.2 in the place of the image's own",
    )
    mounts = cli.SwitchAttr(
        "--mount",
        str,
        list=True,
        argname="PATH[:INSIDE]",
        requires=_NEEDS,
        help="what the engine shall find in the container too",
    )

    def clear(self, port: int) -> None:
        """End what a killed medley and a killed client left on this port."""
        from medley import imaged, images
        from medley.cli.progress import watch

        if self.image is not None and images.left(imaged.role(port)):
            watch().note(f"a container that was left on port {port} is ended")

    def imaged(
        self,
        host: "tuple[Facts, Kind]",
        engine: "Engine",
        *,
        dry_run: bool,
        joined: "Membership | None" = None,
        spread: bool = False,
        elsewhere: bool = False,
    ) -> "Imaged | None":
        """The image to run out of, ready for use; None where the engine environment serves.

        Over a cluster it is the one whose Ray runs: there nothing needs to be said again. `elsewhere`: these
        are the facts of another host, so that nothing is asked of this one.
        """
        from medley import chosen, imaged, passed
        from medley.cli.progress import watch
        from medley.container import Image
        from medley.imaged import Choice

        facts, kind = host
        wanted = self._wanted()
        if elsewhere and wanted:
            runtime = wanted.container or "docker"
            return imaged.expected(Choice(runtime, Image(wanted.name(kind))), kind, facts, passed.ANY)
        choice = wanted.choice(kind, dry_run=dry_run, watch=watch()) if wanted else None
        if joined and (spread or choice is None):
            choice = _of_cluster(joined, choice)
        if choice is None:
            return None
        return chosen.ready(choice, host, engine, dry_run=dry_run, watch=watch())

    def _wanted(self) -> "Wanted | None":
        from medley.chosen import Wanted

        image: Any = self.image
        named: Any = self.container  # plumbum has seen to it that it is of its set
        return Wanted(image, named, self.nccl, tuple(self.mounts)) if image is not None else None


def _of_cluster(joined: "Membership", asked: "Choice | None") -> "Choice | None":
    from medley.imaged import Choice

    there = Choice.of(joined.image) if joined.image else None
    if asked and (there is None or asked.image.id != there.image.id):
        runs = f"{there.image.name} ({there.image.short})" if there else joined.environment
        raise Problem(
            "the engine must be of the image whose Ray runs",
            cause=f"this cluster runs {runs}, and --image says {asked.image.name} ({asked.image.short})",
            fix="leave --image out, or start the cluster with it: "
            f"medley ray-stop; medley ray-head --image {asked.image.name}",
        )
    return there
