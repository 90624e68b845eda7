"""Decide which variables of a recipe the engine gets."""

import re
from collections.abc import Iterable, Iterator, Mapping

from medley.credentials import is_secret
from medley.engine import hidden_variables
from medley.engine.accepted_flags import AcceptedFlags, read_locked_flags
from medley.engine.unread_variables import list_unread_variables
from medley.host_schema import ENGINE_TABLES
from medley.network.fabric.variables import LEFT_UNSET, NOT_CARRIED_VARIABLES
from medley.schema import (
    DEFAULT_ENGINE,
    ENGINE_VARIABLE,
    EngineName,
    find_flag_refusal,
    find_variable_refusal,
)
from medley.serving.community_recipe.entries import RecipeEntry, read_reasons
from medley.serving.community_recipe.shell_command import needs_shell

_DECIDED_REASONS = read_reasons("variables", "decided")
_REFUSED_REASONS = read_reasons("variables", "refused")
_LEFT_OUT_REASONS: Mapping[str, str] = {
    **dict.fromkeys(
        NOT_CARRIED_VARIABLES, _REFUSED_REASONS["MASTER_ADDR"]
    ),  # like MASTER_ADDR, they belong to one host
    **{name: f"medley leaves it unset: {why}" for name, why in LEFT_UNSET.items()},
    **_REFUSED_REASONS,
}
NOT_SENT_BY_RAY = "Ray does not send it to other hosts: set it there before ray-worker or join"
_RAY_REASON = "it must be set for medley ray-head and ray-worker, which start Ray"
_EXPORT_YOURSELF = "a recipe must not hold secrets: export it yourself, or for requests use --api-key FILE"
# Names of folders; a switch may have the same ending, such as TORCHINDUCTOR_AUTOGRAD_CACHE=0.
_PATH_NAME_PATTERN = re.compile(r"(PATH|PRELOAD|_DIR|_HOME|_ROOT|_CACHE|_FOLDER|VIRTUAL_ENV)$")
_SWITCH_PATTERN = re.compile(r"[01]|true|false|on|off", re.IGNORECASE)
_ENGINE_PREFIXES = tuple(prefix for table in ENGINE_TABLES.values() for prefix in table.variable_prefixes)
_PLACEHOLDER_PATTERN = re.compile(r"\{[a-z]\w*(?:\.\w+)+\}")


def list_variable_entries(
    table: Mapping[str, str], name: EngineName, flags: Iterable[str], key: str = "env."
) -> Iterator[RecipeEntry]:
    """Yield the outcome of each variable; `flags` are those of the command, which count first."""
    command_flags, accepted_flags = set(flags), read_locked_flags(name)
    entries = [
        build_variable_entry(variable, value, name, key=f"{key}{variable}")
        for variable, value in table.items()
    ]
    values: dict[str, set[tuple[str, ...]]] = {}
    for entry in entries:
        if entry.word_kind == "flag":
            values.setdefault(entry.words[0], set()).add(entry.words)
    chosen_flags: set[tuple[str, ...]] = set()
    for entry in entries:
        if entry.word_kind != "flag":
            yield entry
            continue
        flag, words = entry.words[0], entry.words
        if flag in command_flags or words in chosen_flags:
            yield RecipeEntry(entry.key, "decided", f"{entry.why}, and the command has {flag}")
        elif (
            len(values[flag]) > 1
            or (accepted_flags and list(accepted_flags.list_faults(words)))
            or find_flag_refusal(name, flag, words[1:])
        ):
            yield RecipeEntry(
                entry.key, "refused", f"{entry.why}: {' '.join(words)}, if that is what you want"
            )
        else:
            chosen_flags.add(words)
            yield entry.replace(why=f"{entry.why}: {' '.join(words)} replaces it", is_changed=True)


def build_variable_entry(
    name: str, value: str, engine_name: EngineName = DEFAULT_ENGINE, *, key: str = ""
) -> RecipeEntry:
    """Return the outcome of one variable; `key` is its place in the recipe."""
    key, accepted_flags = key or f"env.{name}", read_locked_flags(engine_name)
    if name in _DECIDED_REASONS:
        return RecipeEntry(key, "decided", _DECIDED_REASONS[name])
    if refusal := _find_refusal(name, value):
        return RecipeEntry(key, "refused", refusal)
    if accepted_flags and (replacement := _find_replacement(key, name, value, accepted_flags)):
        return replacement
    if refusal := find_variable_refusal(name, value):
        return RecipeEntry(key, "refused", f"{refusal}: read it, and if you want it, set it yourself")
    why = "the engine's own variable"
    if hidden_variables.list_hidden_names((name,)):
        why += f"; {NOT_SENT_BY_RAY}"
    return RecipeEntry(key, "carried", why, (f"{name}={value}",), "variable")


def _find_refusal(name: str, value: str) -> str | None:
    if name in _LEFT_OUT_REASONS:
        return _LEFT_OUT_REASONS[name]
    if name.startswith("RAY_") or is_secret(name):
        return _EXPORT_YOURSELF if is_secret(name) else _RAY_REASON
    if needs_shell(value) or _PLACEHOLDER_PATTERN.search(value):
        reason = "it needs a shell" if needs_shell(value) else "only sparkrun knows it"
        return f"{value}: {reason}; set {name} yourself before the command"
    if (_PATH_NAME_PATTERN.search(name) and not _SWITCH_PATTERN.fullmatch(value)) or value.startswith(
        ("/", "~")
    ):
        return f"{value} is a path in the recipe's image or host"
    if not re.match(ENGINE_VARIABLE, name):
        return "medley's engines do not read it; if yours does, set it before the command"
    return None


def _find_replacement(key: str, name: str, value: str, accepted_flags: AcceptedFlags) -> RecipeEntry | None:
    """Return the outcome of a variable that the locked release does not read: a flag, or nothing."""
    why = f"{accepted_flags.title} does not read it"
    if not name.startswith(_ENGINE_PREFIXES):
        return None
    if not name.startswith(ENGINE_TABLES[accepted_flags.engine].variable_prefixes):
        return RecipeEntry(key, "refused", f"{why}: it is the other engine's")
    unread = list(list_unread_variables({name: value}, accepted_flags.engine, accepted_flags.version))
    if unread:
        return _build_replacement(key, why, unread[0].replacement)
    return None if accepted_flags.reads_variable(name) else RecipeEntry(key, "refused", why, needs_fork=True)


def _build_replacement(key: str, why: str, advice: str) -> RecipeEntry:
    words = tuple(advice.partition("  #")[0].split())
    if advice.startswith("--") and "'" not in advice:
        return RecipeEntry(key, "carried", why, words, "flag")
    is_harmless = advice.startswith("nothing replaces it: ")
    return RecipeEntry(key, "decided" if is_harmless else "refused", f"{why}: {advice}")
