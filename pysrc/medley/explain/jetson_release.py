"""Compare the Jetson Linux (L4T) of a container image with that of its host."""

from collections.abc import Mapping
from typing import NamedTuple

# The first major release of L4T that each JetPack has.
_JETPACKS = {38: 7, 36: 6, 34: 5, 32: 4}
_IMAGES = {
    7: "a tag with r38 or newer and cu130, such as ghcr.io/nvidia-ai-iot/vllm:latest-jetson-thor for Thor",
    6: "a tag with r36 and cu126, such as ghcr.io/nvidia-ai-iot/vllm:latest-jetson-orin for Orin",
    5: "a tag with r35",
    4: "a tag with r32",
}
_KERNELS = {"4.9": "32", "5.10": "35", "5.15": "36", "6.8": "38"}
_THOR = "38"
"""The first L4T that runs on Thor."""


class ReleaseMismatch(NamedTuple):
    """The two releases in words, and the image to take; None if they match or are unknown."""

    l4t: str | None = None
    l4t_image: str | None = None


def compare_releases(facts: Mapping[str, str]) -> ReleaseMismatch:
    """Return what differs between the host's L4T and that of its container image."""
    revision = "." + facts["revision"] if "revision" in facts else ""
    host = facts["host_l4t"] + revision if "host_l4t" in facts else None
    host = host or _KERNELS.get(facts.get("tegra_kernel", "")) or (_THOR if "thor" in facts else None)
    image = facts.get("image_l4t") or (_THOR if "image_thor" in facts else None)
    if not host or not image or not (own := _jetpack(host)) or not (its := _jetpack(image)) or own == its:
        return ReleaseMismatch()
    return ReleaseMismatch(
        f"the image is for L4T {image} (JetPack {its}), and the host has L4T {host} (JetPack {own})",
        f"an image for JetPack {own}: {_IMAGES[own]}",
    )


def _jetpack(release: str) -> int | None:
    major = int(release.partition(".")[0])
    return next((jetpack for first, jetpack in _JETPACKS.items() if major >= first), None)
