"""Refuse environment variables that the engine's release no longer reads, and name their replacements.

vLLM silently ignores unknown names, so settings from old guides have no effect. The names were removed from
vllm/envs.py between two minor releases from 0.10 to 0.33; no other file of 0.33 reads them. Those of ROCm,
XPU and TPU are left out. SGLang warns about old names and still reads most (srt/environ.py of 0.5.23).
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from medley.environment.engine_source import parse_version
from medley.errors import Problem
from medley.model.resolve import Weights
from medley.schema import TITLES, EngineName

_COMPARED_VERSION_PARTS = 2
"""Parts of a release to compare: 0.24 of 0.24.1."""
_FILE = Path(__file__).with_suffix(".toml")
REMOVED_VARIABLES: Mapping[str, Mapping[str, Mapping[str, str | Mapping[str, str]]]] = tomllib.loads(
    _FILE.read_text(encoding="utf-8")
)
"""The replacement of each variable, or one for each value, by the engine and the release that removed it."""
_FALSE_VALUES = {"0", "false", "no", "off", ""}


class UnreadVariable(NamedTuple):
    """A variable that the engine's release ignores."""

    name: str
    release: str
    """The release that removed it."""
    replacement: str
    """The flag or variable to use instead, or a sentence."""


def require_read_variables(
    environ: Mapping[str, str] | Iterable[str],
    engine: EngineName,
    version: str | None,
    *,
    file: str | None = None,
) -> None:
    """Raise a Problem that names each variable of the shell, or of the table `file`, that is not read."""
    unread = list(list_unread_variables(environ, engine, version)) if version else []
    if not unread:
        return
    names = [variable.name for variable in unread]
    releases = ", ".join(f"{variable.release} removed {variable.name}" for variable in unread)
    removal = f"remove {', '.join(names)} from {file}" if file else f"unset {' '.join(names)}"
    raise Problem(
        f"{TITLES[engine]} {version} does not read {', '.join(names)}",
        cause=f"it ignores the setting silently; {releases}",
        fix="\n".join(
            (
                removal,
                *(f"{variable.name}: {_format_replacement(variable.replacement)}" for variable in unread),
            )
        ),
    )


def require_read_launch_variables(
    environ: Mapping[str, str], weights: Weights, engine: EngineName, version: str | None
) -> None:
    """Raise a Problem that names each variable of the shell or of the model's table that is not read."""
    require_read_variables(environ, engine, version)
    if weights.model:
        table = weights.model.env.get(engine, {})
        require_read_variables(table, engine, version, file=f"models/{weights.name}.toml")


def _format_replacement(replacement: str) -> str:
    return f"medley serve MODEL -- {replacement}" if replacement.startswith("--") else replacement


def list_unread_variables(
    environ: Mapping[str, str] | Iterable[str], engine: EngineName, version: str
) -> Iterator[UnreadVariable]:
    """Yield each variable that this release of the engine does not read, with its replacement.

    The replacement is for the value; for a name without a value it is the one for every value.
    """
    values: Mapping[str, str | None] = environ if isinstance(environ, Mapping) else dict.fromkeys(environ)
    for release, names in REMOVED_VARIABLES.get(engine, {}).items():
        if parse_version(version)[:_COMPARED_VERSION_PARTS] >= parse_version(release):
            for name, replacement in names.items():
                if name in values:
                    yield UnreadVariable(name, release, _choose_replacement(replacement, values[name]))


def _choose_replacement(replacements: str | Mapping[str, str], value: str | None) -> str:
    """Return the replacement of a variable for its value; None: for every value."""
    if isinstance(replacements, str):
        return replacements.replace("{value}", value or "VALUE")
    if value is None:
        if_true, if_false = replacements.get("yes") or replacements["other"], replacements.get("no", "")
        text = f"{if_true}  # for 0: {if_false}" if if_false.startswith("--") else if_true
        return text.replace("{value}", "VALUE")
    meaning = "no" if value.strip().lower() in _FALSE_VALUES else "yes"
    replacement = (
        replacements.get(value.lower().replace("_", "-"))
        or replacements.get(value)
        or replacements.get(meaning)
    )
    return (replacement or replacements.get("other", "nothing replaces it")).replace("{value}", value)
