"""Read facts that the log may show only below the line of a failure."""

import re
from collections.abc import Mapping, Sequence

from medley.explain.jetson_release import describe_host

_FIGURES = ("host_gpu", "pulled_image")
_LIBRARY_GROUPS = ("host_lacks", "listed_library", "library_place", "library_absent", "library_causes")
WHOLE_LOG_GROUPS = frozenset(
    {*_FIGURES, *_LIBRARY_GROUPS, "host_release", "context_left", "installed_versions"}
)
"""Groups that are filled in when the whole log is read."""
_USUAL = "Usual causes: its package is not installed, or its folder is not in LD_LIBRARY_PATH"
_MAX_LINE_CHARS = 400
_SHARE = re.compile(r"(?<![\w.])(0\.\d+)(?! lower)")


def read_whole_log(
    figures: Mapping[str, str], groups: Mapping[str, str | None], tail: Sequence[str]
) -> dict[str, str | None]:
    """Return the groups of WHOLE_LOG_GROUPS, each None if the log does not show it."""
    return {
        **{name: figures.get(name) for name in _FIGURES},
        "host_release": describe_host(figures),
        "installed_versions": ", ".join(
            f"{name.removeprefix('version_')} {version}"
            for name, version in figures.items()
            if name.startswith("version_") and name not in ("version_nccl", "version_hfxet")
        )
        or None,
        "context_left": _compute_context(figures, groups),
        **(_read_library(groups["file"], tail) if groups.get("file") else {}),
    }


def _read_library(file: str | None, tail: Sequence[str]) -> dict[str, str | None]:
    """Return what commands of the log show about a library: a search, a path, or a list of mounts."""
    name = re.escape(file or "")
    lines = [line[:_MAX_LINE_CHARS].strip() for line in tail]
    listed = next((line for line in lines if re.match(rf"lib, \S+/{name}$", line)), None)
    place = next((line for line in lines if re.match(rf"/\S+/{name}$", line)), None)
    is_searched = any(re.match(rf"(?:\S*[$#] )+(?:sudo )?find /(?: |\S*/ ).*{name}", line) for line in lines)
    absent = f"find shows no {file} on this host, so no search path is the reason: it is not installed"
    is_listing = any(
        re.match(r"(?:\S*[$#] )+ls (?:-\S+ )?/usr/lib/\S+/(?:nvidia|tegra)/?(?: |$)", line) for line in lines
    )
    has_file = any(
        re.match(rf"(?:\S+ )*(?:/\S+/)?{name}$", line) for line in lines if not line.startswith("lib, ")
    )
    lacks = f"ls shows that the host does not have {file}: the image is for another release"
    return {
        "host_lacks": lacks if is_listing and not has_file else None,
        "listed_library": listed and listed.removeprefix("lib, "),
        "library_place": place,
        "library_absent": absent if is_searched and not place else None,
        "library_causes": None if place or is_searched else _USUAL,
    }


def _compute_context(figures: Mapping[str, str], groups: Mapping[str, str | None]) -> str | None:
    """Return the tokens of the KV cache that the smaller share leaves, by the size that the log prints."""
    shares = [_SHARE.search(groups.get(name) or "") for name in ("utilization", "less_share")]
    try:
        tokens, cache = int(figures["kv_tokens"].replace(",", "")), float(figures["kv_gib"])
        share, smaller = (float(match[1]) for match in shares if match)
        left = cache - (share - smaller) * float(figures["gpu"])
        return f"{int(tokens * left / cache) // 1000 * 1000:,}" if 0 < left < cache else None
    except (KeyError, ValueError, ZeroDivisionError):
        return None
