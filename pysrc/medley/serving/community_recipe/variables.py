"""Decide which variables of a recipe the engine gets."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from medley import engine
from medley.credentials import is_secret
from medley.engine.parser import EngineParser, read_locked_parser
from medley.engine.unread_variables import list_unread_variables
from medley.host_schema import ENGINE_TABLES
from medley.network.fabric.variables import LEFT_UNSET, NOT_CARRIED
from medley.schema import (
    DEFAULT_ENGINE,
    ENGINE_VARIABLE,
    EngineName,
    flag_refusal,
    variable_refusal,
)
from medley.serving.community_recipe import Entry, reasons
from medley.serving.community_recipe.shell_command import needs_shell

_DECIDED = reasons("variables", "decided")
_LISTED = reasons("variables", "refused")
_REFUSED: Mapping[str, str] = {
    **dict.fromkeys(NOT_CARRIED, _LISTED["MASTER_ADDR"]),  # as this one, they are of one host
    **{name: f"medley leaves it unset: {why}" for name, why in LEFT_UNSET.items()},
    **_LISTED,
}
NOT_BY_RAY = "Ray does not send it to other hosts: set it there before ray-worker or join"
_OF_RAY = "it must be set for medley ray-head and ray-worker, which start Ray"
_NO_RECIPES = "a recipe must not hold secrets: export it yourself, or for requests use --api-key FILE"
# A folder: not a switch that only ends so, as TORCHINDUCTOR_AUTOGRAD_CACHE=0.
_PATHS = re.compile(r"(PATH|PRELOAD|_DIR|_HOME|_ROOT|_CACHE|_FOLDER|VIRTUAL_ENV)$")
_SWITCH = re.compile(r"[01]|true|false|on|off", re.IGNORECASE)
_ENGINE_PREFIXES = tuple(prefix for table in ENGINE_TABLES.values() for prefix in table.variable_prefixes)
_PLACEHOLDER = re.compile(r"\{[a-z]\w*(?:\.\w+)+\}")


def variables(
    table: Mapping[str, str], name: EngineName, flags: Iterable[str], key: str = "env."
) -> Iterator[Entry]:
    """Yield the outcome of each variable; `flags` are those of the command, which count first."""
    has, parser = set(flags), read_locked_parser(name)
    found = [variable(each, value, name, key=f"{key}{each}") for each, value in table.items()]
    values: dict[str, set[tuple[str, ...]]] = {}
    for each in found:
        if each.part == "flag":
            values.setdefault(each.becomes[0], set()).add(each.becomes)
    given: set[tuple[str, ...]] = set()
    for each in found:
        if each.part != "flag":
            yield each
            continue
        flag, words = each.becomes[0], each.becomes
        if flag in has or words in given:
            yield Entry(each.key, "decided", f"{each.why}, and the command has {flag}")
        elif (
            len(values[flag]) > 1
            or (parser and list(parser.list_faults(words)))
            or flag_refusal(name, flag, words[1:])
        ):
            yield Entry(each.key, "refused", f"{each.why}: {' '.join(words)}, if that is what you want")
        else:
            given.add(words)
            yield replace(each, why=f"{each.why}: {' '.join(words)} replaces it", changed=True)


def variable(name: str, value: str, of: EngineName = DEFAULT_ENGINE, *, key: str = "") -> Entry:
    """Return the outcome of one variable; `key` is its place in the recipe."""
    key, parser = key or f"env.{name}", read_locked_parser(of)
    if name in _DECIDED:
        return Entry(key, "decided", _DECIDED[name])
    if refusal := _refusal(name, value):
        return Entry(key, "refused", refusal)
    if parser and (gone := _gone(key, name, value, parser)):
        return gone
    if refusal := variable_refusal(name, value):
        return Entry(key, "refused", f"{refusal}: read it, and if you want it, set it yourself")
    why = "the engine's own variable"
    if engine.list_hidden_names((name,)):
        why += f"; {NOT_BY_RAY}"
    return Entry(key, "carried", why, (f"{name}={value}",), "variable")


def _refusal(name: str, value: str) -> str | None:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("RAY_") or is_secret(name):
        return _NO_RECIPES if is_secret(name) else _OF_RAY
    if needs_shell(value) or _PLACEHOLDER.search(value):
        knows = "it needs a shell" if needs_shell(value) else "only sparkrun knows it"
        return f"{value}: {knows}; set {name} yourself before the command"
    if (_PATHS.search(name) and not _SWITCH.fullmatch(value)) or value.startswith(("/", "~")):
        return f"{value} is a path in the recipe's image or host"
    if not re.match(ENGINE_VARIABLE, name):
        return "medley's engines do not read it; if yours does, set it before the command"
    return None


def _gone(key: str, name: str, value: str, parser: EngineParser) -> Entry | None:
    """Return what becomes of a variable that the locked release does not read: a flag, or nothing."""
    why = f"{parser.title} does not read it"
    if not name.startswith(_ENGINE_PREFIXES):
        return None
    if not name.startswith(ENGINE_TABLES[parser.engine].variable_prefixes):
        return Entry(key, "refused", f"{why}: it is the other engine's")
    gone = list(list_unread_variables({name: value}, parser.engine, parser.version))
    if gone:
        return _replaced(key, why, gone[0][2])
    return None if parser.reads_variable(name) else Entry(key, "refused", why, fork=True)


def _replaced(key: str, why: str, instead: str) -> Entry:
    words = tuple(instead.partition("  #")[0].split())
    if instead.startswith("--") and "'" not in instead:
        return Entry(key, "carried", why, words, "flag")
    nothing_lost = instead.startswith("nothing replaces it: ")
    return Entry(key, "decided" if nothing_lost else "refused", f"{why}: {instead}")
