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
_THOR_L4T = "38"
"""The first L4T that runs on Thor."""


class ReleaseMismatch(NamedTuple):
    """The two releases in words, and the image to take; None if they match or are unknown."""

    l4t: str | None = None
    l4t_image: str | None = None


def compare_releases(figures: Mapping[str, str]) -> ReleaseMismatch:
    """Return what differs between the host's L4T and that of its container image."""
    revision = "." + figures["revision"] if "revision" in figures else ""
    host = figures["host_l4t"] + revision if "host_l4t" in figures else None
    host = host or _KERNELS.get(figures.get("tegra_kernel", "")) or (_THOR_L4T if "thor" in figures else None)
    image = figures.get("image_l4t") or (_THOR_L4T if "image_thor" in figures else None)
    if (
        not host
        or not image
        or not (host_jetpack := _find_jetpack(host))
        or not (image_jetpack := _find_jetpack(image))
        or host_jetpack == image_jetpack
    ):
        return ReleaseMismatch()
    return ReleaseMismatch(
        f"the image is for L4T {image} (JetPack {image_jetpack}), "
        f"and the host has L4T {host} (JetPack {host_jetpack})",
        f"an image for JetPack {host_jetpack}: {_IMAGES[host_jetpack]}",
    )


def describe_host(figures: Mapping[str, str]) -> str | None:
    """Return the release of the host in words, if the log prints it."""
    if "host_l4t" not in figures:
        return None
    release = figures["host_l4t"] + ("." + figures["revision"] if "revision" in figures else "")
    jetpack = _find_jetpack(release)
    return f"L4T R{release}" + (f" (JetPack {jetpack})" if jetpack else "")


def _find_jetpack(release: str) -> int | None:
    major = int(release.partition(".")[0])
    return next((jetpack for first_l4t, jetpack in _JETPACKS.items() if major >= first_l4t), None)
