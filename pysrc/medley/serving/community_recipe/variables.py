"""Decide which variables of a recipe the engine gets."""

import re
from collections.abc import Mapping

from medley import engine
from medley.credentials import is_secret
from medley.engine.unread_variables import unread
from medley.environment import engine_source
from medley.network.fabric.variables import LEFT_UNSET, NOT_CARRIED
from medley.schema import ENGINE_VARIABLE
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
_PATHS = re.compile(r"(PATH|PRELOAD|_DIR|_HOME|_ROOT|_CACHE|_FOLDER|VIRTUAL_ENV)$")


def variable(name: str, value: str, *, key: str = "") -> Entry:
    """Return the outcome of one variable; `key` is its place in the recipe."""
    key = key or f"env.{name}"
    if name in _DECIDED:
        return Entry(key, "decided", _DECIDED[name])
    if refusal := _refusal(name, value):
        return Entry(key, "refused", refusal)
    why = "the engine's own variable"
    if engine.stays((name,)):
        why += f"; {NOT_BY_RAY}"
    return Entry(key, "carried", why, (f"{name}={value}",), "variable")


def _refusal(name: str, value: str) -> str | None:
    if name in _REFUSED:
        return _REFUSED[name]
    if name.startswith("RAY_") or is_secret(name):
        return _NO_RECIPES if is_secret(name) else _OF_RAY
    if needs_shell(value):
        return f"{value} needs a shell: set {name} yourself before the command"
    if _PATHS.search(name) or value.startswith(("/", "~")):
        return f"{value} is a path in the recipe's image or host"
    if not re.match(ENGINE_VARIABLE, name):
        return "medley's engines do not read it; if yours does, set it before the command"
    return _gone(name)


def _gone(name: str) -> str | None:
    """Return what replaced a variable that the locked vLLM ignores, because serve would refuse it."""
    if not name.startswith("VLLM_"):
        return None
    version = engine_source.locked()["vllm-cuda"]["vllm"]
    return next(
        (f"vLLM {version} does not read it: {instead}" for _, _, instead in unread((name,), version)), None
    )
