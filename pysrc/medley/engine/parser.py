"""Know what an engine release takes: its flags, their values and keys, and the variables it reads.

`locks/parsers/ENGINE-VERSION.json` describes the release of each lock (`python -m tools.engine_parsers`). An
image or a virtualenv of the user's own may be a fork, so its own parser is asked once, by the same script.
"""

import difflib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from medley import config, json_shape, process, storage
from medley.command import UNSET, Command
from medley.environment import engine_source, payload, virtualenv
from medley.environment.container_image import ContainerEnvironment
from medley.progress import SILENT, Progress
from medley.schema import TITLES, EngineName

FOLDER = "locks/parsers"
RENAMED: Mapping[str, Mapping[str, str]] = config.beside(__file__, "renamed_flags.toml")
"""By engine: a flag that its release lacks, and the flag or the sentence that replaces it."""
PLUGINS: Mapping[str, str] = {
    "--reasoning-parser": "--reasoning-parser-plugin",
    "--tool-call-parser": "--tool-parser-plugin",
}
"""The flag of a file that may define further values of a flag."""
_NUMBER = re.compile(r"^-[\d.]")
# vLLM's -O3, -O.mode and -cc.mode stand for keys of --compilation-config.
_SHORT = re.compile(r"^-O(?:=?\w+)?$|^-O[.=]")
_LIMIT_S = 300
_SHOWN = 8
_ALIKE, _ALIKE_FLAGS = 0.7, 0.8
"""Below it, difflib's nearest name is another word."""


@dataclass(frozen=True)
class Fault:
    """Why an engine would refuse a word of its command, and what to write."""

    word: str
    cause: str
    advice: str
    value: str | None = None
    """The value that it refuses; None where it is the flag."""


@dataclass(frozen=True)
class EngineParser:
    engine: EngineName
    version: str
    flags: tuple[Mapping[str, Any], ...]
    variables: frozenset[str]
    source: str = ""
    """The lock, image or folder whose parser it is."""
    names: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @cached_property
    def title(self) -> str:
        return f"{TITLES[self.engine]} {self.version}".strip()

    def faults(self, words: Sequence[str]) -> Iterator[Fault]:
        """Yield what the engine would refuse of these words of its command."""
        given = {self.full_name(word) for word in words if is_flag(word)} - {None}
        for at, word in enumerate(words):
            if is_flag(word) and PLUGINS.get(self.full_name(word) or "") not in given:
                values = list(takewhile(lambda each: not is_flag(each), words[at + 1 :]))
                yield from self._fault(word, values)

    def reads(self, name: str) -> bool:
        """Whether it reads a variable that begins with its name; of others nothing is known."""
        return not self.variables or name in self.variables

    def full_name(self, word: str) -> str | None:
        """Return the flag that a word means: its parser takes _ for -, and a beginning of one name."""
        name = _name(word)
        if name in self.names:
            return name
        beginning = [each for each in self.names if each.startswith(name)] if name.startswith("--") else []
        return beginning[0] if len(beginning) == 1 else None

    def _fault(self, word: str, values: list[str]) -> Iterator[Fault]:
        if self.engine == "vllm" and _SHORT.match(word):
            return
        name = self.full_name(word)
        if name is None:
            yield self._unknown(word)
            return
        rule, (_, equals, value) = self.names[name], word.partition("=")
        values = [value, *values] if equals else values
        shown = word.partition("=")[0]
        keys = shown.split(".")[1:] if "keys" in rule else []
        if keys:
            yield from _nested(shown, rule, keys, values)
        elif number := _wrong_number(rule["takes"], values):
            yield Fault(shown, f"{self.title} {number}", f"write {shown} as in {self.engine} serve --help")
        else:
            for each in values:
                yield from _values(shown, rule, each)

    def _unknown(self, word: str) -> Fault:
        name = _name(word)
        beginning = [each for each in self.names if each.startswith(name)] if name.startswith("--") else []
        cause = f"{self.title} does not have it"
        if instead := RENAMED.get(self.engine, {}).get(name):
            return Fault(word, cause, f"write {instead}" if instead.startswith("--") else instead)
        if len(beginning) > 1:
            cause = f"{self.title} has {len(beginning)} flags that begin so"
            return Fault(word, cause, f"write it in full: {' or '.join(beginning[:_SHOWN])}")
        near = difflib.get_close_matches(name, list(self.names), n=1, cutoff=_ALIKE_FLAGS)
        return Fault(word, cause, f"did you mean {near[0]}?" if near else "remove it")


def is_flag(word: str) -> bool:
    return word.startswith("-") and len(word) > 1 and not _NUMBER.match(word)


def _name(word: str) -> str:
    """Remove value and key, and use dashes: --Compilation_config.mode=2 is --Compilation-config."""
    name = re.split(r"[=.]", word, maxsplit=1)[0].rstrip("+")
    return name if not name.startswith("--") else f"--{name[2:].replace('_', '-')}"


def _wrong_number(takes: int | str, values: Sequence[str]) -> str | None:
    """Return what is wrong with the number of values, where argparse would refuse it."""
    if takes == 0 and values:
        return f"takes no value, and this is {' '.join(values)}"
    if takes in {1, "+"} and not values:
        return "needs a value"
    if isinstance(takes, int) and takes >= 1 and len(values) != takes:
        return f"takes {takes} {'value' if takes == 1 else 'values'}, and these are {' '.join(values)}"
    return None


def _values(name: str, rule: Mapping[str, Any], value: str) -> Iterator[Fault]:
    """Yield why a value, or a key of the JSON in it, is refused."""
    allowed = rule.get("values")
    if allowed and not _is_among(value, allowed, any_case=rule.get("any_case", False)):
        yield Fault(name, f"{value} is not one of its values", _among(value, allowed), value)
    if "keys" in rule and value.lstrip().startswith("{"):
        try:
            table = json.loads(value)
        except ValueError as error:
            yield Fault(name, f"its JSON does not parse: {error}", "write it in single quotes", value)
            return
        yield from _table(name, rule, table)


def _table(name: str, rule: Mapping[str, Any], table: Mapping[str, Any]) -> Iterator[Fault]:
    for key, value in table.items():
        yield from _nested(f"{name}.{key}", rule, [key], [value])


def _nested(
    shown: str, rule: Mapping[str, Any], keys: Sequence[str], values: Sequence[Any]
) -> Iterator[Fault]:
    """Follow keys into a configuration: --speculative-config.method, or the same in JSON."""
    keys = [key.rstrip("+") for key in keys]
    for depth, key in enumerate(keys):
        known = rule.get("keys")
        if known is None:
            return
        if (name := key.replace("-", "_")) not in known:
            near = difflib.get_close_matches(name, known, n=1, cutoff=_ALIKE)
            advice = f"did you mean {near[0]}?" if near else f"its keys: {', '.join(list(known)[:_SHOWN])} …"
            yield Fault(shown, f"it has no key {'.'.join(keys[: depth + 1])}", advice, key)
            return
        rule = known[name]
    for value in values:
        if isinstance(value, Mapping):
            if "keys" in rule:
                yield from _table(shown, rule, value)
        elif isinstance(value, str):
            yield from _values(shown, rule, value)


def _is_among(value: str, allowed: Sequence[str], *, any_case: bool) -> bool:
    if value in allowed:
        return True
    return any_case and _plain(value) in {_plain(each) for each in allowed}


def _plain(value: str) -> str:
    return value.lower().replace("-", "_")


def _among(value: str, allowed: Sequence[str]) -> str:
    near = difflib.get_close_matches(value, allowed, n=3, cutoff=_ALIKE)
    return f"did you mean {' or '.join(near)}?" if near else f"its values: {', '.join(allowed)}"


def described(engine: EngineName, table: Mapping[str, Any], source: str) -> EngineParser:
    """Read what the script of `parse_flags` printed, or the file made of it."""
    flags = tuple(table["flags"])
    names = {name: rule for rule in flags for name in rule["names"]}
    return EngineParser(engine, table["version"], flags, frozenset(table["variables"]), source, names)


@lru_cache(maxsize=8)
def of_release(engine: EngineName, version: str) -> EngineParser | None:
    """Return the parser of a lock's release; None of a version that no lock here has."""
    path = config.files(FOLDER, ".json").get(f"{engine}-{version.partition('+')[0]}")
    return (
        described(engine, json.loads(path.read_text(encoding="utf-8")), f"{FOLDER}/{path.name}")
        if path
        else None
    )


def locked(engine: EngineName, device: str = "cuda") -> EngineParser | None:
    """Return the parser of medley's own environment for GPUs."""
    versions = engine_source.locked().get(f"{engine}-{device}", {})
    return of_release(engine, versions[engine]) if engine in versions else None


def of_programs(
    engine: EngineName, binary: Path, version: str | None, *, ask: bool, watch: Progress = SILENT
) -> EngineParser | None:
    """Return the parser of the engine in a folder of programs; an own virtualenv's is asked once."""
    built = virtualenv.read(binary.parent) is not None or not (binary / "python").exists()
    if built and version and (found := of_release(engine, version)):
        return found
    packages = binary.parent.glob(f"lib/python*/site-packages/{engine}*.dist-info")
    identity = "\n".join((str(binary), *sorted(path.name for path in packages)))

    def run(command: Command) -> Command:
        return Command((str(binary / "python"), *command.argv[1:]), command.env, UNSET)

    return _asked(engine, identity, str(binary.parent), run if ask else None, watch)


def of_image(
    engine: EngineName, image: ContainerEnvironment, *, ask: bool, watch: Progress = SILENT
) -> EngineParser | None:
    """Return the parser of an image, kept by its digest; dry, only one that is known already."""
    if not image.image.id:
        return None
    return _asked(engine, image.image.id, image.image.name, image.started if ask else None, watch)


def of_source(
    engine: EngineName,
    source: ContainerEnvironment | Path,
    version: str | None,
    *,
    ask: bool,
    watch: Progress = SILENT,
) -> EngineParser | None:
    """Return the parser of what will run: an image, or a folder of programs."""
    if isinstance(source, Path):
        return of_programs(engine, source, version, ask=ask, watch=watch)
    return of_image(engine, source, ask=ask, watch=watch)


def _asked(
    engine: EngineName,
    identity: str,
    source: str,
    run: Callable[[Command], Command] | None,
    watch: Progress,
) -> EngineParser | None:
    path = storage.cache() / "parsers" / f"{engine}-{storage.hash_bytes(identity.encode())[:16]}.json"
    if not path.exists() and run:
        with watch.stage(f"read the flags of {TITLES[engine]} in {source}"):
            script = payload.FOLDER / "parse_flags.py"
            lines: list[str] = []  # all lines, because the answer is a long one
            finished = process.run(
                run(Command(("python3", str(script), engine))), limit_s=_LIMIT_S, on_line=lines.append
            )
        table = json_shape.last_table(lines) if finished.status == 0 else None
        if table is None:
            watch.note(f"the flags of {source} are not checked: its parser does not run")
        storage.write(path, json.dumps(table))
    table = storage.table(path)
    return described(engine, table, source) if table else None
