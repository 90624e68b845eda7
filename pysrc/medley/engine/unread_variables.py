"""Refuse environment variables that the engine's release no longer reads, and name their replacements.

vLLM silently ignores unknown names, so settings from old guides have no effect. The names were removed from
vllm/envs.py between two minor releases from 0.10 to 0.33; no other file of 0.33 reads them. Those of ROCm,
XPU and TPU are left out. SGLang warns about old names and still reads most (srt/environ.py of 0.5.23).
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from medley.environment.engine_source import numbers
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.schema import TITLES, EngineName

_MINOR = 2
"""Parts of a release to compare: 0.24 of 0.24.1."""
_FILE = Path(__file__).with_suffix(".toml")
GONE: Mapping[str, Mapping[str, str | Mapping[str, str]]] = tomllib.loads(_FILE.read_text(encoding="utf-8"))
"""The replacement of each variable, or one for each of its values, by the release of vLLM that removed it."""
_NO = {"0", "false", "no", "off", ""}


def require_read(
    environ: Mapping[str, str] | Iterable[str],
    engine: EngineName,
    version: str | None,
    *,
    file: str | None = None,
) -> None:
    """Raise a Problem that names each ignored variable of the shell, or of the table `file`."""
    found = list(unread(environ, version)) if engine == "vllm" and version else []
    if not found:
        return
    names = [name for name, _, _ in found]
    releases = ", ".join(f"{release} removed {name}" for name, release, _ in found)
    away = f"remove {', '.join(names)} from {file}" if file else f"unset {' '.join(names)}"
    raise Problem(
        f"{TITLES[engine]} {version} does not read {', '.join(names)}",
        cause=f"it ignores the setting silently; {releases}",
        fix="\n".join((away, *(f"{name}: {_typed(instead)}" for name, _, instead in found))),
    )


def require_launch_read(
    environ: Mapping[str, str], weights: Weights, engine: EngineName, version: str | None
) -> None:
    require_read(environ, engine, version)
    if weights.model:
        table = weights.model.env.get(engine, {})
        require_read(table, engine, version, file=f"models/{weights.name}.toml")


def _typed(instead: str) -> str:
    return f"medley serve MODEL -- {instead}" if instead.startswith("--") else instead


def unread(environ: Mapping[str, str] | Iterable[str], version: str) -> Iterator[tuple[str, str, str]]:
    """Yield each name that this vLLM does not read, the release that removed it, and its value's replacement.

    Of names without values it is the replacement for every value.
    """
    values: Mapping[str, str | None] = environ if isinstance(environ, Mapping) else dict.fromkeys(environ)
    for release, names in GONE.items():
        if numbers(version)[:_MINOR] >= numbers(release):
            for name, instead in names.items():
                if name in values:
                    yield name, release, _replacement(instead, values[name])


def _replacement(instead: str | Mapping[str, str], value: str | None) -> str:
    if isinstance(instead, str):
        return instead.replace("{value}", value or "VALUE")
    if value is None:
        yes, no = instead.get("yes") or instead["other"], instead.get("no", "")
        return (f"{yes}  # for 0: {no}" if no.startswith("--") else yes).replace("{value}", "VALUE")
    says = "no" if value.strip().lower() in _NO else "yes"
    found = instead.get(value.lower().replace("_", "-")) or instead.get(value) or instead.get(says)
    return (found or instead.get("other", "nothing replaces it")).replace("{value}", value)
