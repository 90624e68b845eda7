"""Choose the container image of a kind of host: the newest that the host's L4T runs."""

import re
from typing import TYPE_CHECKING

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host_schema import HostTable, Image

if TYPE_CHECKING:
    from medley.host.kind import Kind


def choose_image(table: HostTable, facts: Facts) -> tuple[HostTable, str | None]:
    """Return the table with the newest image that this host's L4T runs, else the reason why it has none.

    An image for a newer L4T ends with "device kernel image is invalid" (jetson-containers issue 1655).
    """
    images, l4t = (table.container, *table.container.older), facts.board.l4t
    if l4t is None or table.container.l4t is None:
        return table, None
    release = (int(l4t.major), *_parse_numbers(l4t.revision))
    oldest = min(_parse_numbers(image.l4t) for image in images if image.l4t)
    newest = next((image for image in images if _parse_numbers(image.l4t or "") <= release), Image())
    values = newest.to_table() | {"nvidia_runtime": table.container.nvidia_runtime, "older": ()}
    fitted = table.replace(container=table.container.replace(**values))
    if newest.image:
        return fitted, None
    oldest_text = ".".join(map(str, oldest))
    return (
        fitted,
        f"its images need L4T {oldest_text} or later, and this host has {l4t.release.removeprefix('r')}",
    )


def _parse_numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def get_default_image(kind: "Kind") -> str:
    if not kind.table.container.image:
        raise Problem(
            f"there is no image for hosts of the kind {kind.name}",
            cause=kind.no_image_reason or f"hosts/{kind.name}.toml names none",
            fix="--image NAME, of one that holds vLLM and Ray",
        )
    return kind.table.container.image
