"""A chosen image is what somebody wants to run out of on a host, by a switch or by cluster.toml."""

from dataclasses import dataclass
from typing import Any

from medley import imaged, images, own_nccl
from medley.container import Image, Runtime
from medley.facts import Facts
from medley.imaged import Choice, Imaged
from medley.kind import Kind
from medley.origin import default_image
from medley.tables import Engine
from medley.watch import SILENT, Watch


@dataclass(frozen=True)
class Wanted:
    image: str
    """Its name, or `default`: the one that hosts/ names for the kind of host."""
    container: Runtime | None = None
    nccl: str | None = None
    mounts: tuple[str, ...] = ()

    def name(self, kind: Kind) -> str:
        return default_image(kind) if self.image == "default" else self.image

    def choice(self, kind: Kind, *, dry_run: bool, watch: Watch = SILENT) -> Choice:
        """As this host has it; dry, it may have to be fetched yet."""
        name = self.name(kind)
        runtime = images.runtime(self.container, name)
        found = images.find(runtime, name)
        if dry_run and found is None:
            watch.note(f"{name} is not here, and would be fetched first: {runtime} pull {name}")
        return Choice(runtime, found or Image(name), self.nccl, self.mounts)


def wanted(table: dict[str, Any]) -> Wanted:
    """Out of the JSON that one medley tells another."""
    return Wanted(table["image"], table["container"], table["nccl"], tuple(table["mounts"]))


def ready(
    choice: Choice, host: tuple[Facts, Kind], engine: Engine, *, dry_run: bool, watch: Watch = SILENT
) -> Imaged:
    """Looked at, with a host's own NCCL in it where one is named; dry, only what can be said without."""
    facts, kind = host
    if dry_run:
        return imaged.expected(choice, kind, facts)
    found = imaged.ready(choice, kind, facts, engine=engine, watch=watch)
    return own_nccl.mounted(found, choice.nccl, watch=watch) if choice.nccl else found
