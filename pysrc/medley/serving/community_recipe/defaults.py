"""Convert a recipe's defaults to flags as sparkrun does, and list the unused ones."""

from collections.abc import Iterator, Mapping

from medley.schema import TITLES, EngineName
from medley.serving.community_recipe.document import ScalarValue, is_yes
from medley.serving.community_recipe.engine_flags import CommandSource, list_flag_entries
from medley.serving.community_recipe.entries import RULES, RecipeEntry
from medley.serving.community_recipe.shell_command import EngineCommand, EngineFlag

_TABLES = RULES["defaults"]
_FLAGS: Mapping[EngineName, Mapping[str, str]] = {
    name: {
        **{key: f"--{key.replace('_', '-')}" for key in _TABLES[name]["plain"]},
        **_TABLES[name]["renamed"],
    }
    for name in TITLES
}
# Added to a recipe's command that has no such flag: generate_node_command and _augment_served_model_name.
_APPENDED_FLAGS: Mapping[str, str] = {
    "data_parallel": "--data-parallel-size",
    "served_model_name": "--served-model-name",
}


def list_generated_flags(engine: EngineName, defaults: Mapping[str, ScalarValue]) -> Iterator[EngineFlag]:
    """Yield the flags that sparkrun makes of the defaults of a recipe without a command."""
    switches, negatable = set(_TABLES[engine]["switches"]), set(_TABLES[engine]["negatable"])
    for key, flag in _FLAGS[engine].items():
        value = defaults.get(key)
        if value is None:
            continue
        if key not in switches:
            yield EngineFlag(flag, (str(value),))
        elif is_yes(value):
            yield EngineFlag(flag)
        elif key in negatable:
            yield EngineFlag(f"--no-{flag.removeprefix('--')}")


def list_unknown_defaults(engine: EngineName, defaults: Mapping[str, ScalarValue]) -> Iterator[RecipeEntry]:
    for key in defaults:
        if key not in _FLAGS[engine]:
            why = "sparkrun has no flag for it where a recipe has no command"
            yield RecipeEntry(f"defaults.{key}", "unused", why)


def list_unplaced_defaults(
    command: EngineCommand,
    defaults: Mapping[str, ScalarValue],
    placeholders: frozenset[str],
    source: CommandSource,
) -> Iterator[RecipeEntry]:
    command_flags = {flag.name for flag in command.flags}
    for key, value in defaults.items():
        if key in placeholders:
            continue
        appended_flag = _APPENDED_FLAGS.get(key)
        if appended_flag and appended_flag not in command_flags and value is not None:
            short_command = command.replace(flags=(EngineFlag(appended_flag, (str(value),)),))
            for entry in list_flag_entries(short_command, source):
                yield entry.replace(key=f"defaults.{key}")
        else:
            yield RecipeEntry(f"defaults.{key}", "unused", "the recipe's command has no placeholder for it")
