"""List what an engine release accepts: its flags, their values and keys, and the variables it reads.

`locks/parsers/ENGINE-VERSION.json` describes the release of each lock (`python -m tools.engine_parsers`). An
image or a virtualenv of the user's own may be a fork, so the same script reads its own parser once.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any, TypedDict

from msgspec import field

from medley import config, json_shape, process, storage
from medley.command import UNSET_VARIABLES, Command
from medley.environment import engine_source, payload, virtualenv
from medley.environment.container_image import ContainerEnvironment
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName
from medley.unusable_file import skip_unusable_file
from medley.values import Value

PARSERS_FOLDER = "locks/parsers"
FLAG_REPLACEMENTS: Mapping[str, Mapping[str, str]] = config.read_module_table(__file__, "renamed_flags.toml")
"""For each engine the flags that its release lacks, and the flag or the sentence that replaces each."""
PLUGIN_FLAGS: Mapping[str, str] = {
    "--reasoning-parser": "--reasoning-parser-plugin",
    "--tool-call-parser": "--tool-parser-plugin",
}
"""The flag of a file that may define further values of a flag."""
_NEGATIVE_NUMBER_PATTERN = re.compile(r"^-[\d.]")
# vLLM's -O3, -O.mode and -cc.mode stand for keys of --compilation-config.
_OPTIMIZATION_FLAG_PATTERN = re.compile(r"^-O(?:=?\w+)?$|^-O[.=]")
_PARSE_LIMIT_S = 300
_MAX_NAMES_SHOWN = 8
_MIN_NAME_SIMILARITY, _MIN_FLAG_SIMILARITY = 0.7, 0.8
"""Below this likeness difflib's nearest name is unrelated."""


class ArgumentFault(Value):
    """The reason why an engine would refuse an argument, and the advice what to write instead."""

    argument: str
    cause: str
    advice: str
    value: str | None = None
    """The value that the engine refuses; None if it refuses the flag."""


class FlagRule(TypedDict, total=False):
    """What an engine accepts for a flag, or for a key of its JSON, as `parse_flags.py` writes it."""

    names: list[str]
    """All names of a flag; a key has none."""
    takes: int | str
    """The number of its values, or argparse's sign for it: `?`, `*` or `+`; only of a flag."""
    values: list[str]
    """The values that it accepts, if they are limited."""
    any_case: bool
    """Whether it ignores case, and - for _, in these values."""
    keys: "dict[str, FlagRule]"
    """The rules of the keys of its JSON, if they are limited."""


class AcceptedFlags(Value):
    """The flags that an engine release accepts, and the variables that it reads."""

    engine: EngineName
    version: str
    flags: tuple[FlagRule, ...]
    variables: frozenset[str]
    source: str = ""
    """The lock, image or folder whose parser accepts them."""
    flags_by_name: Mapping[str, FlagRule] = field(default_factory=dict)
    """The rule of each flag, by each of its names."""

    @cached_property
    def title(self) -> str:
        """The engine's name and version for people."""
        return f"{TITLES[self.engine]} {self.version}".strip()

    def list_faults(self, argv: Sequence[str]) -> Iterator[ArgumentFault]:
        """Yield a fault for each argument of its command that the engine would refuse."""
        given_names = {self.find_full_name(argument) for argument in argv if is_flag(argument)}
        for index, argument in enumerate(argv):
            if not is_flag(argument):
                continue
            plugin_flag = PLUGIN_FLAGS.get(self.find_full_name(argument) or "")
            has_plugin = plugin_flag is not None and plugin_flag in given_names
            if not has_plugin:
                values = list(takewhile(lambda value: not is_flag(value), argv[index + 1 :]))
                yield from self._list_argument_faults(argument, values)

    def reads_variable(self, name: str) -> bool:
        """Return whether the engine reads this variable of its own; True if its variables are unknown."""
        return not self.variables or name in self.variables

    def find_full_name(self, argument: str) -> str | None:
        """Return the flag of an argument: parsers accept _ for -, and a prefix of only one name."""
        name = _normalize_name(argument)
        if name in self.flags_by_name:
            return name
        matches = self._list_names_with_prefix(name)
        return matches[0] if len(matches) == 1 else None

    def _list_names_with_prefix(self, prefix: str) -> list[str]:
        return [name for name in self.flags_by_name if prefix.startswith("--") and name.startswith(prefix)]

    def _list_argument_faults(self, argument: str, values: list[str]) -> Iterator[ArgumentFault]:
        if self.engine == "vllm" and _OPTIMIZATION_FLAG_PATTERN.match(argument):
            return
        name = self.find_full_name(argument)
        if name is None:
            yield self._build_unknown_fault(argument)
            return
        rule, (_, equals, value) = self.flags_by_name[name], argument.partition("=")
        values = [value, *values] if equals else values
        flag = argument.partition("=")[0]
        keys = flag.split(".")[1:] if "keys" in rule else []
        if keys:
            yield from _list_key_faults(flag, rule, keys, values)
        elif count_fault := _describe_wrong_count(rule["takes"], values):
            yield ArgumentFault(
                flag, f"{self.title} {count_fault}", f"write {flag} as in {self.engine} serve --help"
            )
        else:
            for flag_value in values:
                yield from _list_value_faults(flag, rule, flag_value)

    def _build_unknown_fault(self, argument: str) -> ArgumentFault:
        name = _normalize_name(argument)
        matches = self._list_names_with_prefix(name)
        cause = f"{self.title} does not have it"
        if replacement := FLAG_REPLACEMENTS.get(self.engine, {}).get(name):
            return ArgumentFault(
                argument, cause, f"write {replacement}" if replacement.startswith("--") else replacement
            )
        if len(matches) > 1:
            cause = f"{self.title} has {len(matches)} flags that begin so"
            return ArgumentFault(
                argument, cause, f"write it in full: {' or '.join(matches[:_MAX_NAMES_SHOWN])}"
            )
        close_names = difflib.get_close_matches(
            name, list(self.flags_by_name), n=1, cutoff=_MIN_FLAG_SIMILARITY
        )
        return ArgumentFault(
            argument, cause, f"did you mean {close_names[0]}?" if close_names else "remove it"
        )


def is_flag(argument: str) -> bool:
    """Return whether an argument is a flag, and no value or negative number."""
    return argument.startswith("-") and len(argument) > 1 and not _NEGATIVE_NUMBER_PATTERN.match(argument)


def _normalize_name(argument: str) -> str:
    """Remove value and key, and use dashes: --Compilation_config.mode=2 is --Compilation-config."""
    name = re.split(r"[=.]", argument, maxsplit=1)[0].rstrip("+")
    return name if not name.startswith("--") else f"--{name[2:].replace('_', '-')}"


def _describe_wrong_count(value_count: int | str, values: Sequence[str]) -> str | None:
    """Return what is wrong with the number of values; None if argparse accepts it."""
    if value_count == 0 and values:
        return f"takes no value, and this is {' '.join(values)}"
    if value_count in {1, "+"} and not values:
        return "needs a value"
    if isinstance(value_count, int) and value_count >= 1 and len(values) != value_count:
        noun = "value" if value_count == 1 else "values"
        return f"takes {value_count} {noun}, and these are {' '.join(values)}"
    return None


def _list_value_faults(name: str, rule: FlagRule, value: str) -> Iterator[ArgumentFault]:
    """Yield why a value, or a key of the JSON in it, is refused."""
    allowed = rule.get("values")
    if allowed and not _is_allowed_value(value, allowed, ignores_case=rule.get("any_case", False)):
        yield ArgumentFault(name, f"{value} is not one of its values", _suggest_values(value, allowed), value)
    if "keys" in rule and value.lstrip().startswith("{"):
        try:
            table = json.loads(value)
        except ValueError as error:
            yield ArgumentFault(name, f"its JSON does not parse: {error}", "write it in single quotes", value)
            return
        yield from _list_table_faults(name, rule, table)


def _list_table_faults(name: str, rule: FlagRule, table: Mapping[str, Any]) -> Iterator[ArgumentFault]:
    for key, value in table.items():
        yield from _list_key_faults(f"{name}.{key}", rule, [key], [value])


def _list_key_faults(
    flag: str, rule: FlagRule, keys: Sequence[str], values: Sequence[Any]
) -> Iterator[ArgumentFault]:
    """Yield the faults of a key in a configuration: --speculative-config.method, or the same in JSON."""
    keys = [key.rstrip("+") for key in keys]
    for depth, key in enumerate(keys):
        known_keys = rule.get("keys")
        if known_keys is None:
            return
        if (name := key.replace("-", "_")) not in known_keys:
            close_keys = difflib.get_close_matches(name, known_keys, n=1, cutoff=_MIN_NAME_SIMILARITY)
            advice = f"its keys: {', '.join(list(known_keys)[:_MAX_NAMES_SHOWN])} …"
            if close_keys:
                advice = f"did you mean {close_keys[0]}?"
            yield ArgumentFault(flag, f"it has no key {'.'.join(keys[: depth + 1])}", advice, key)
            return
        rule = known_keys[name]
    for value in values:
        if isinstance(value, Mapping):
            if "keys" in rule:
                yield from _list_table_faults(flag, rule, value)
        elif isinstance(value, str):
            yield from _list_value_faults(flag, rule, value)


def _is_allowed_value(value: str, allowed: Sequence[str], *, ignores_case: bool) -> bool:
    if value in allowed:
        return True
    return ignores_case and _normalize_value(value) in {_normalize_value(candidate) for candidate in allowed}


def _normalize_value(value: str) -> str:
    return value.lower().replace("-", "_")


def _suggest_values(value: str, allowed: Sequence[str]) -> str:
    close_values = difflib.get_close_matches(value, allowed, n=3, cutoff=_MIN_NAME_SIMILARITY)
    return (
        f"did you mean {' or '.join(close_values)}?" if close_values else f"its values: {', '.join(allowed)}"
    )


def read_flags_table(engine: EngineName, table: Mapping[str, Any], source: str) -> AcceptedFlags:
    """Return the flags in the output of `parse_flags.py`, or in its file in locks/."""
    flags = tuple(table["flags"])
    names = {name: rule for rule in flags for name in rule["names"]}
    return AcceptedFlags(engine, table["version"], flags, frozenset(table["variables"]), source, names)


@lru_cache(maxsize=8)
def read_release_flags(engine: EngineName, version: str) -> AcceptedFlags | None:
    """Return the flags of a lock's release; None if no lock has this version."""
    path = config.find_table_files(PARSERS_FOLDER, ".json").get(f"{engine}-{version.partition('+')[0]}")
    if path is None:
        return None
    table = json.loads(path.read_text(encoding="utf-8"))
    return read_flags_table(engine, table, f"{PARSERS_FOLDER}/{path.name}")


def read_locked_flags(engine: EngineName, device: str = "cuda") -> AcceptedFlags | None:
    """Return the flags of medley's own environment for GPUs."""
    versions = engine_source.read_locked_versions().get(f"{engine}-{device}", {})
    return read_release_flags(engine, versions[engine]) if engine in versions else None


def read_programs_flags(
    engine: EngineName,
    program_folder: Path,
    version: str | None,
    *,
    can_run: bool,
    progress: Progress = SILENT,
) -> AcceptedFlags | None:
    """Return the flags of the engine in a folder of programs; run the user's own parser once."""
    # A dry run names the folder of an environment that is not built yet: it will have the lock's release.
    is_from_lock = virtualenv.read_environment(program_folder.parent) is not None or not storage.exists(
        program_folder / "python"
    )
    if is_from_lock and version and (release_flags := read_release_flags(engine, version)):
        return release_flags
    packages = program_folder.parent.glob(f"lib/python*/site-packages/{engine}*.dist-info")
    identity = "\n".join((str(program_folder), *sorted(path.name for path in packages)))

    def wrap_command(command: Command) -> Command:
        return Command((str(program_folder / "python"), *command.argv[1:]), command.env, UNSET_VARIABLES)

    return _read_cached_flags(
        engine, identity, str(program_folder.parent), wrap_command if can_run else None, progress
    )


def read_image_flags(
    engine: EngineName, image: ContainerEnvironment, *, can_run: bool, progress: Progress = SILENT
) -> AcceptedFlags | None:
    """Return the flags of an image, stored by its digest; without `can_run` only stored ones."""
    if not image.image.id:
        return None
    return _read_cached_flags(
        engine, image.image.id, image.image.name, image.wrap_command if can_run else None, progress
    )


def read_source_flags(
    engine: EngineName,
    source: ContainerEnvironment | Path,
    version: str | None,
    *,
    can_run: bool,
    progress: Progress = SILENT,
) -> AcceptedFlags | None:
    """Return the flags of an engine source, which is an image or a folder of programs."""
    if isinstance(source, Path):
        return read_programs_flags(engine, source, version, can_run=can_run, progress=progress)
    return read_image_flags(engine, source, can_run=can_run, progress=progress)


def _read_cached_flags(
    engine: EngineName,
    identity: str,
    source: str,
    wrap_command: Callable[[Command], Command] | None,
    progress: Progress,
) -> AcceptedFlags | None:
    """Return the stored flags, else run the script once by `wrap_command` and store its answer."""
    path = (
        storage.find_cache_folder()
        / "parsers"
        / f"{engine}-{storage.hash_bytes(identity.encode())[:16]}.json"
    )
    stored_bytes = None
    with skip_unusable_file():
        stored_bytes = storage.read_bytes(path)
    if stored_bytes is None and wrap_command:
        with progress.stage(f"read the flags of {TITLES[engine]} in {source}"):
            script = payload.FOLDER / "parse_flags.py"
            lines: list[str] = []  # all lines, because the answer is long
            finished = process.run(
                wrap_command(Command(("python3", str(script), engine))),
                limit_s=_PARSE_LIMIT_S,
                on_line=lines.append,
            )
        table = json_shape.parse_last_object(lines) if finished.status == 0 else None
        if table is None:
            progress.note(f"the flags of {source} are not checked: its parser does not run")
            return None
        stored_bytes = json.dumps(table).encode()
        with skip_unusable_file():
            storage.write_text(path, stored_bytes.decode())
    table = json_shape.parse_object(stored_bytes or b"")
    return read_flags_table(engine, table, source) if table else None
