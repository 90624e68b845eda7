"""Find the engine's command, its flags and its variables in the shell text of a recipe or of a guide."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile

from medley.errors import Problem
from medley.schema import EngineName
from medley.serving.community_recipe.container_command import ContainerRun, container_run
from medley.serving.community_recipe.document import MOST_BYTES, Value

_PLACEHOLDER = re.compile(r"\{(\w+(?:\.\w+)*)\}")
# Like str.format; recipes of version 1 use it.
_ESCAPED = re.compile(r"\{\{|\}\}|\{\w+\}")
_CONTINUED = re.compile(r"\\[ \t\r]*\n")
# Nothing follows the last backslash: a shell, and the launchers of recipes, take the command as it is before.
_DANGLING = re.compile(r"(?:[ \t\r\n]*\\)+[ \t\r\n]*$")
_FENCE = re.compile(r"^[ \t]*(?:```.*|~~~.*)$", re.MULTILINE)
_PROMPT = re.compile(r"^[ \t]*[$#>][ \t]+(?=\S)", re.MULTILINE)
_COMMENT = re.compile(r"[ \t]+#(?: [^\n'\"]*)?$")
# > and < as operators would end the command at a guide's <HEAD_IP>, so redirections are taken out by word.
_DUPLICATED, _BOTH = re.compile(r"(?<=\s)\d?>&\d(?=\s|$)"), re.compile(r"(?<=\s)&>>?")
_REDIRECTION = re.compile(r"\d?(?:>>?|<)([^<>]*)")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_REFERENCE = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_NUMBER = re.compile(r"-[\d.]")
_OPERATORS = ";&|\n"
_NESTED = 8
_STARTS: tuple[tuple[str, EngineName], ...] = (
    (r"(\S*/)?vllm serve", "vllm"),
    (r"(\S*/)?python[\d.]*( -\w)* -m vllm\.entrypoints\.openai\.api_server", "vllm"),
    (r"(\S*/)?python[\d.]*( -\w)* -m vllm\.entrypoints\.cli\.main serve", "vllm"),
    (r"(\S*/)?sglang serve", "sglang"),
    (r"(\S*/)?python[\d.]*( -\w)* -m sglang\.launch_server", "sglang"),
)
_START_WORDS = 8
_SHELLS = re.compile(r"(\S*/)?(?:ba|da|z)?sh$")
# Commands that only name an engine's command: everything else may start one, as taskset, nohup or uv run do.
_MENTIONS = {"echo", "printf", "grep", "pgrep", "pkill", "which", "type", "man", "cat", "alias"}


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
    assigned: Mapping[str, str] = field(default_factory=dict)
    beside: tuple[str, ...] = ()
    """Other commands of the text."""
    again: tuple[str, ...] = ()
    """Further commands that start an engine: those of other hosts."""
    wrapper: str = ""
    """The words before it that start it: taskset, nohup."""
    container: ContainerRun | None = None


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
    reader = _Reader(where)
    reader.read(text)
    if reader.found is None:
        raise Problem(
            f"the command of {where} does not start an engine of medley",
            cause=f"it has none of: vllm serve, sglang serve, python -m sglang.launch_server; it begins "
            f"{text.strip()[:60]!r}",
            fix="choose a recipe for vLLM or SGLang: medley models lists known models",
        )
    engine, after = reader.found
    model, flags = _flags(after)
    container = reader.container
    variables = {**(container.variables if container else {}), **reader.assigned}
    return EngineCommand(
        engine, model, flags, variables, tuple(reader.beside), tuple(reader.again), reader.wrapper, container
    )


class _Reader:
    """What the commands of a text are, in their order."""

    def __init__(self, where: str) -> None:
        self.where = where
        self.found: tuple[EngineName, tuple[str, ...]] | None = None
        self.container: ContainerRun | None = None
        self.assigned: dict[str, str] = {}
        self.beside: list[str] = []
        self.again: list[str] = []
        self.wrapper = ""

    def read(self, text: str, depth: int = 0) -> None:
        shell: dict[str, str] = {}
        for part in _parts(text, self.where):
            own: dict[str, str] = {}
            words = list(_without_assignments((_expanded(word, shell) for word in part), own))
            shell |= own
            if words or part[:1] == ["export"]:
                self.assigned |= own
            elif not depth:
                self.assigned |= {name: value for name, value in own.items() if not _is_local(name, text)}
            if words:
                self._read_words(words, depth)

    def _read_words(self, words: list[str], depth: int) -> None:
        run = container_run(words)
        inner = run.words if run else words
        mentions = inner[:1] and inner[0] in _MENTIONS
        script, started = (None, None) if mentions else (_script(inner), _started(inner))
        if started is None and script is not None and depth < _NESTED:
            before = self.found
            self.read(script, depth + 1)
            if run and self.found is not before:
                self.container = run
        elif started is None:
            self.beside.append(shlex.join(words))
        elif self.found is not None:
            self.again.append(shlex.join(words))
        else:
            engine, at, after = started
            starts = [word for word in inner[:at] if not self._is_assigned(word)]
            self.found, self.container = (engine, after), run or self.container
            self.wrapper = shlex.join(starts)

    def _is_assigned(self, word: str) -> bool:
        """Keep a variable that sudo, env or taskset passes to the engine."""
        if not _ASSIGNMENT.match(word):
            return False
        name, _, value = word.partition("=")
        self.assigned[name] = value
        return True


def _is_local(name: str, text: str) -> bool:
    """Whether a line NAME=value only serves the text's own $NAME, and reaches no program."""
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _expanded(word: str, values: Mapping[str, str]) -> str:
    """Fill in the $NAME that the text itself sets, or that has a default: ${NAME:-8000}."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return values.get(name, match[2] if match[2] is not None else match[0])

    return _REFERENCE.sub(value, word)


def _parts(text: str, where: str) -> Iterator[list[str]]:
    """Yield the words of each simple command."""
    lines = _FENCE.sub("", text.replace("\r\n", "\n")).split("\n")
    kept = "\n".join(_COMMENT.sub("", line) for line in lines if not line.lstrip().startswith("#"))
    kept = _DANGLING.sub("", _PROMPT.sub("", kept))
    kept = _BOTH.sub(">", _DUPLICATED.sub(" ", _CONTINUED.sub(" ", kept)))
    lexer = shlex.shlex(kept, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    part: list[str] = []
    try:
        for word in lexer:
            if word and set(word) <= set(_OPERATORS):
                yield list(_without_redirections(part))
                part = []
            else:
                part.append(word)
    except ValueError as error:
        raise Problem(
            f"the command of {where} is not valid shell text",
            cause=f"{_in_words(str(error), kept)}; it begins {text.strip()[:60]!r}",
            fix=f"close the quotes in {where}, or copy the command again, whole",
        ) from error
    yield list(_without_redirections(part))


def _in_words(error: str, text: str) -> str:
    if "quotation" in error:
        quote = max("'\"", key=lambda each: text.count(each) % 2)
        line = text.count("\n", 0, text.rfind(quote)) + 1
        return f"the last {quote} in line {line} of the command opens a quotation that nothing closes"
    return error


def _without_redirections(words: Iterable[str]) -> Iterator[str]:
    """Yield words without > FILE; a guide's <NAME> is a value, which the reader has to fill in."""
    drops = False
    for word in words:
        if drops:
            drops = False
        elif word.startswith("<") and len(word) > 1 and word != "<<":
            yield word
        elif match := _REDIRECTION.fullmatch(word):
            drops = not match[1]
        else:
            yield word


def _without_assignments(words: Iterable[str], assigned: dict[str, str]) -> Iterator[str]:
    """Yield the words after `export`, `exec`, `env` and NAME=value, and put these in `assigned`."""
    leads = True
    for word in words:
        leads = leads and (word in {"export", "exec", "env"} or _ASSIGNMENT.match(word) is not None)
        if not leads:
            yield word
        elif "=" in word:
            name, _, value = word.partition("=")
            assigned[name] = value


def _script(words: list[str]) -> str | None:
    """Return the text that a shell gets with -c, also inside docker exec or ssh."""
    shell = next((at for at, word in enumerate(words) if _SHELLS.fullmatch(word)), None)
    if shell is not None:
        options = list(takewhile(lambda word: word.startswith("-"), words[shell + 1 :]))
        rest = words[shell + 1 + len(options) :]
        if rest and any(word.endswith("c") and not word.startswith("--") for word in options):
            return rest[0]
    last = words[-1] if words else ""
    return last if " " in last and any(re.search(pattern, last) for pattern, _ in _STARTS) else None


def _started(words: list[str]) -> tuple[EngineName, int, tuple[str, ...]] | None:
    """Return the engine, the number of words before its command, and the words after it."""
    # A word of several is the text for another shell.
    single = ["''" if " " in word or "\n" in word else word for word in words]
    for at in range(len(words)):
        line = " ".join(single[at : at + _START_WORDS])
        for pattern, engine in _STARTS:
            if match := re.match(rf"{pattern}(?= |$)", line):
                return engine, at, tuple(words[at + match[0].count(" ") + 1 :])
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
