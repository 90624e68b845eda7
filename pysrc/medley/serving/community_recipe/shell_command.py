"""Find the engine's command, its flags and its variables in the shell text of a recipe."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from medley.errors import Problem
from medley.schema import EngineName
from medley.serving.community_recipe.document import MOST_BYTES, Value

_PLACEHOLDER = re.compile(r"\{(\w+)\}")
# Like str.format; recipes of version 1 use it.
_ESCAPED = re.compile(r"\{\{|\}\}|\{\w+\}")
_CONTINUED = re.compile(r"\\[ \t]*\n")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_NUMBER = re.compile(r"-[\d.]")
_OPERATORS = ";&|<>\n"
_NESTED = 8
_STARTS: tuple[tuple[str, EngineName], ...] = (
    (r"(\S*/)?vllm serve", "vllm"),
    (r"(\S*/)?python3? -m vllm\.entrypoints\.openai\.api_server", "vllm"),
    (r"(\S*/)?sglang serve", "sglang"),
    (r"(\S*/)?python3? -m sglang\.launch_server", "sglang"),
)


@dataclass(frozen=True)
class EngineFlag:
    name: str
    values: tuple[str, ...] = ()
    source: str = ""
    """The recipe's key of its value, if any."""

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, *self.values)


@dataclass(frozen=True)
class EngineCommand:
    engine: EngineName
    model: str | None
    flags: tuple[EngineFlag, ...]
    assigned: Mapping[str, str]
    beside: tuple[str, ...]


def filled(text: str, values: Mapping[str, Value], where: str) -> str:
    """Fill in each {key} that has a value; like sparkrun, leave the others."""
    given = {f"{{{key}}}": str(value) for key, value in values.items() if value is not None}
    if "{{" in text:  # never in JSON: {{ and }} are escaped braces
        given |= {"{{": "{", "}}": "}"}
        text = _ESCAPED.sub(lambda match: given.get(match[0], match[0]), text)
    for _ in range(_NESTED):
        before, text = text, _PLACEHOLDER.sub(lambda match: given.get(match[0], match[0]), text)
        if text == before:
            return text
        if len(text) > MOST_BYTES:
            break
    raise Problem(
        f"the command of {where} cannot be filled in",
        cause=f"its placeholders nest deeper than {_NESTED}, or exceed {MOST_BYTES >> 10} KiB",
        fix=f"fix 'defaults' in {where}: no value may contain its own key",
    )


def used(text: str, values: Mapping[str, Value]) -> frozenset[str]:
    """Return the keys of a text's placeholders, and of the placeholders in their values."""
    found: set[str] = set()
    new = set(_PLACEHOLDER.findall(text))
    while new:
        found |= new
        new = {key for each in new for key in _PLACEHOLDER.findall(str(values.get(each)))} - found
    return frozenset(found)


def needs_shell(value: str) -> bool:
    """Whether a shell would expand it: $NAME, ${NAME}, $(command) or `command`."""
    return re.search(r"\$[\w{(]|`", value) is not None


def engine_command(text: str, where: str) -> EngineCommand:
    """Read a command whose placeholders are filled; raise a Problem where it starts no known engine."""
    assigned: dict[str, str] = {}
    beside: list[str] = []
    found: tuple[EngineName, tuple[str, ...]] | None = None
    for part in _parts(text, where):
        words = list(_without_assignments(part, assigned))
        started = _started(words)
        if started and found is None:
            found = started
        elif words:
            beside.append(shlex.join(part))
    if found is None:
        raise Problem(
            f"the command of {where} does not start an engine of medley",
            cause=f"it has none of: vllm serve, sglang serve, python -m sglang.launch_server; it begins "
            f"{text.strip()[:60]!r}",
            fix="choose a recipe for vLLM or SGLang: medley models lists known models",
        )
    engine, after = found
    model, flags = _flags(after)
    return EngineCommand(engine, model, flags, assigned, tuple(beside))


def _parts(text: str, where: str) -> Iterator[list[str]]:
    kept = "\n".join(line for line in text.split("\n") if not line.lstrip().startswith("#"))
    lexer = shlex.shlex(_CONTINUED.sub(" ", kept), posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    part: list[str] = []
    try:
        for word in lexer:
            if word and set(word) <= set(_OPERATORS):
                yield part
                part = []
            else:
                part.append(word)
    except ValueError as error:
        raise Problem(
            f"the command of {where} is not valid shell text",
            cause=f"{error} in {text.strip()[:60]!r}",
            fix=f"fix 'command' in {where}",
        ) from error
    yield part


def _without_assignments(words: Iterable[str], assigned: dict[str, str]) -> Iterator[str]:
    """Yield the words after `export`, `exec` and NAME=value, and put these in `assigned`."""
    leads = True
    for word in words:
        leads = leads and (word in {"export", "exec", "env"} or _ASSIGNMENT.match(word) is not None)
        if not leads:
            yield word
        elif "=" in word:
            name, _, value = word.partition("=")
            assigned[name] = value


def _started(words: list[str]) -> tuple[EngineName, tuple[str, ...]] | None:
    line = " ".join(words)
    for pattern, engine in _STARTS:
        if match := re.match(rf"{pattern}(?= |$)", line):
            return engine, tuple(words[match[0].count(" ") + 1 :])
    return None


def _flags(words: Iterable[str]) -> tuple[str | None, tuple[EngineFlag, ...]]:
    model: str | None = None
    found: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not _NUMBER.match(word):
            name, equals, value = word.partition("=")
            found.append([name, value] if equals else [name])
        elif found:
            found[-1].append(word)
        else:
            model = model or word
    return model, tuple(EngineFlag(name, tuple(values)) for name, *values in found)
