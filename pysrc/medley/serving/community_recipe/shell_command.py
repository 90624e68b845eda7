"""Find the engine's command, its flags and its variables in the shell text of a recipe or of a guide."""

import re
import shlex
from collections.abc import Iterable, Iterator, Mapping
from itertools import takewhile

from msgspec import field

from medley.errors import Problem
from medley.schema import EngineName
from medley.serving.community_recipe.container_command import ContainerRun, parse_container_run
from medley.serving.community_recipe.document import MAX_RECIPE_BYTES, ScalarValue
from medley.values import Value

_PLACEHOLDER_PATTERN = re.compile(r"\{(\w+(?:\.\w+)*)\}")
# Like str.format; recipes of version 1 use it.
_ESCAPE_PATTERN = re.compile(r"\{\{|\}\}|\{\w+\}")
_CONTINUATION_PATTERN = re.compile(r"\\[ \t\r]*\n")
# Nothing follows the last backslash: a shell, and the launchers of recipes, take the command as it is before.
_TRAILING_BACKSLASHES_PATTERN = re.compile(r"(?:[ \t\r\n]*\\)+[ \t\r\n]*$")
_FENCE_PATTERN = re.compile(r"^[ \t]*(?:```.*|~~~.*)$", re.MULTILINE)
_PROMPT_PATTERN = re.compile(r"^[ \t]*[$#>][ \t]+(?=\S)", re.MULTILINE)
_COMMENT_PATTERN = re.compile(r"[ \t]+#(?: [^\n'\"]*)?$")
# > and < as operators would end the command at a guide's <HEAD_IP>, so redirections are taken out by word.
_DUPLICATION_PATTERN, _BOTH_STREAMS_PATTERN = (
    re.compile(r"(?<=\s)\d?>&\d(?=\s|$)"),
    re.compile(r"(?<=\s)&>>?"),
)
_REDIRECTION_PATTERN = re.compile(r"\d?(?:>>?|<)([^<>]*)")
_ASSIGNMENT_PATTERN = re.compile(r"[A-Za-z_]\w*=")
_REFERENCE_PATTERN = re.compile(r"\$(?:\{(\w+)(?::?-([^{}]*))?\}|(\w+))")
_NUMBER_PATTERN = re.compile(r"-[\d.]")
_OPERATORS = ";&|\n"
_MAX_NESTING = 8
_ENGINE_STARTS: tuple[tuple[str, EngineName], ...] = (
    (r"(\S*/)?vllm serve", "vllm"),
    (r"(\S*/)?python[\d.]*( -\w)* -m vllm\.entrypoints\.openai\.api_server", "vllm"),
    (r"(\S*/)?python[\d.]*( -\w)* -m vllm\.entrypoints\.cli\.main serve", "vllm"),
    (r"(\S*/)?sglang serve", "sglang"),
    (r"(\S*/)?python[\d.]*( -\w)* -m sglang\.launch_server", "sglang"),
)
_MAX_START_WORDS = 8
_SHELLS_PATTERN = re.compile(r"(\S*/)?(?:ba|da|z)?sh$")
# Commands that only name an engine's command: everything else may start one, as taskset, nohup or uv run do.
_MENTIONING_PROGRAMS = {"echo", "printf", "grep", "pgrep", "pkill", "which", "type", "man", "cat", "alias"}


class EngineFlag(Value):
    """A flag of an engine's command, with its values."""

    name: str
    values: tuple[str, ...] = ()
    recipe_key: str = ""
    """The recipe's key that gives its value, if any."""

    @property
    def words(self) -> tuple[str, ...]:
        return (self.name, *self.values)


class EngineCommand(Value):
    """The command that starts an engine, as a recipe or a guide has it."""

    engine: EngineName
    model: str | None
    flags: tuple[EngineFlag, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    other_commands: tuple[str, ...] = ()
    """Other commands of the text."""
    repeated_starts: tuple[str, ...] = ()
    """Further commands that start an engine: those of other hosts."""
    wrapper: str = ""
    """The words before it that start it: taskset, nohup."""
    container: ContainerRun | None = None


def fill_placeholders(text: str, values: Mapping[str, ScalarValue], source: str) -> str:
    """Fill in each {key} that has a value; like sparkrun, leave the others."""
    replacements = {f"{{{key}}}": str(value) for key, value in values.items() if value is not None}
    if "{{" in text:  # never in JSON: {{ and }} are escaped braces
        replacements |= {"{{": "{", "}}": "}"}
        text = _ESCAPE_PATTERN.sub(lambda match: replacements.get(match[0], match[0]), text)
    for _ in range(_MAX_NESTING):
        earlier_text, text = (
            text,
            _PLACEHOLDER_PATTERN.sub(lambda match: replacements.get(match[0], match[0]), text),
        )
        if text == earlier_text:
            return text
        if len(text) > MAX_RECIPE_BYTES:
            break
    raise Problem(
        f"the command of {source} cannot be filled in",
        cause=f"its placeholders nest deeper than {_MAX_NESTING}, or exceed {MAX_RECIPE_BYTES >> 10} KiB",
        fix=f"fix 'defaults' in {source}: no value may contain its own key",
    )


def list_placeholders(text: str, values: Mapping[str, ScalarValue]) -> frozenset[str]:
    """Return the keys of a text's placeholders, and of the placeholders in their values."""
    keys: set[str] = set()
    new_keys = set(_PLACEHOLDER_PATTERN.findall(text))
    while new_keys:
        keys |= new_keys
        new_keys = {
            inner for key in new_keys for inner in _PLACEHOLDER_PATTERN.findall(str(values.get(key)))
        } - keys
    return frozenset(keys)


def needs_shell(value: str) -> bool:
    """Return whether a shell would expand it: $NAME, ${NAME}, $(command) or `command`."""
    return re.search(r"\$[\w{(]|`", value) is not None


def parse_engine_command(text: str, source: str) -> EngineCommand:
    """Read a command whose placeholders are filled; raise a Problem if it starts no known engine."""
    reader = _ShellReader(source)
    reader.read(text)
    if reader.start is None:
        raise Problem(
            f"the command of {source} does not start an engine of medley",
            cause=f"it has none of: vllm serve, sglang serve, python -m sglang.launch_server; it begins "
            f"{text.strip()[:60]!r}",
            fix="choose a recipe for vLLM or SGLang: medley models lists known models",
        )
    engine, later_words = reader.start
    model, flags = _parse_flags(later_words)
    container = reader.container
    variables = {**(container.variables if container else {}), **reader.variables}
    return EngineCommand(
        engine,
        model,
        flags,
        variables,
        tuple(reader.other_commands),
        tuple(reader.repeated_starts),
        reader.wrapper,
        container,
    )


class _ShellReader:
    """Reads the commands of a shell text in their order, and keeps the first that starts an engine."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.start: tuple[EngineName, tuple[str, ...]] | None = None
        self.container: ContainerRun | None = None
        self.variables: dict[str, str] = {}
        self.other_commands: list[str] = []
        self.repeated_starts: list[str] = []
        self.wrapper = ""

    def read(self, text: str, depth: int = 0) -> None:
        text_variables: dict[str, str] = {}
        for part in _list_commands(text, self.source):
            command_variables: dict[str, str] = {}
            words = list(
                _drop_assignments(
                    (_expand_variables(word, text_variables) for word in part), command_variables
                )
            )
            text_variables |= command_variables
            if words or part[:1] == ["export"]:
                self.variables |= command_variables
            elif not depth:
                self.variables |= {
                    name: value
                    for name, value in command_variables.items()
                    if not _is_text_variable(name, text)
                }
            if words:
                self._read_words(words, depth)

    def _read_words(self, words: list[str], depth: int) -> None:
        container = parse_container_run(words)
        inner = container.words if container else words
        is_mention = inner[:1] and inner[0] in _MENTIONING_PROGRAMS
        script, start = (None, None) if is_mention else (_find_script(inner), _find_start(inner))
        if start is None and script is not None and depth < _MAX_NESTING:
            earlier_start = self.start
            self.read(script, depth + 1)
            if container and self.start is not earlier_start:
                self.container = container
        elif start is None:
            self.other_commands.append(shlex.join(words))
        elif self.start is not None:
            self.repeated_starts.append(shlex.join(words))
        else:
            engine, start_index, later_words = start
            wrapper_words = [word for word in inner[:start_index] if not self._is_assigned(word)]
            self.start, self.container = (engine, later_words), container or self.container
            self.wrapper = shlex.join(wrapper_words)

    def _is_assigned(self, word: str) -> bool:
        """Return whether it is NAME=VALUE, which sudo or env passes to the engine; store the variable."""
        if not _ASSIGNMENT_PATTERN.match(word):
            return False
        name, _, value = word.partition("=")
        self.variables[name] = value
        return True


def _is_text_variable(name: str, text: str) -> bool:
    """Return whether a line NAME=value only serves the text's own $NAME, and reaches no program."""
    return re.search(rf"\$\{{?{name}\b", text) is not None


def _expand_variables(word: str, values: Mapping[str, str]) -> str:
    """Fill in the $NAME that the text itself sets, or that has a default: ${NAME:-8000}."""

    def get_value(match: re.Match[str]) -> str:
        name = match[1] or match[3]
        return values.get(name, match[2] if match[2] is not None else match[0])

    return _REFERENCE_PATTERN.sub(get_value, word)


def _list_commands(text: str, source: str) -> Iterator[list[str]]:
    """Yield the words of each simple command."""
    lines = _FENCE_PATTERN.sub("", text.replace("\r\n", "\n")).split("\n")
    plain_text = "\n".join(
        _COMMENT_PATTERN.sub("", line) for line in lines if not line.lstrip().startswith("#")
    )
    plain_text = _TRAILING_BACKSLASHES_PATTERN.sub("", _PROMPT_PATTERN.sub("", plain_text))
    plain_text = _BOTH_STREAMS_PATTERN.sub(
        ">", _DUPLICATION_PATTERN.sub(" ", _CONTINUATION_PATTERN.sub(" ", plain_text))
    )
    lexer = shlex.shlex(plain_text, posix=True, punctuation_chars=_OPERATORS)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    command: list[str] = []
    try:
        for word in lexer:
            if word and set(word) <= set(_OPERATORS):
                yield list(_drop_redirections(command))
                command = []
            else:
                command.append(word)
    except ValueError as error:
        raise Problem(
            f"the command of {source} is not valid shell text",
            cause=f"{_explain_error(str(error), plain_text)}; it begins {text.strip()[:60]!r}",
            fix=f"close the quotes in {source}, or copy the command again, whole",
        ) from error
    yield list(_drop_redirections(command))


def _explain_error(error: str, text: str) -> str:
    if "quotation" in error:
        quote = max("'\"", key=lambda mark: text.count(mark) % 2)
        line = text.count("\n", 0, text.rfind(quote)) + 1
        return f"the last {quote} in line {line} of the command opens a quotation that nothing closes"
    return error


def _drop_redirections(words: Iterable[str]) -> Iterator[str]:
    """Yield words without > FILE; a guide's <NAME> is a value, which the reader has to fill in."""
    is_dropping = False
    for word in words:
        if is_dropping:
            is_dropping = False
        elif word.startswith("<") and len(word) > 1 and word != "<<":
            yield word
        elif match := _REDIRECTION_PATTERN.fullmatch(word):
            is_dropping = not match[1]
        else:
            yield word


def _drop_assignments(words: Iterable[str], variables: dict[str, str]) -> Iterator[str]:
    """Yield the words after `export`, `exec`, `env` and NAME=value, and put these in `variables`."""
    is_leading = True
    for word in words:
        is_leading = is_leading and (
            word in {"export", "exec", "env"} or _ASSIGNMENT_PATTERN.match(word) is not None
        )
        if not is_leading:
            yield word
        elif "=" in word:
            name, _, value = word.partition("=")
            variables[name] = value


def _find_script(words: list[str]) -> str | None:
    """Return the text that a shell gets with -c, also inside docker exec or ssh."""
    shell_index = next((index for index, word in enumerate(words) if _SHELLS_PATTERN.fullmatch(word)), None)
    if shell_index is not None:
        options = list(takewhile(lambda word: word.startswith("-"), words[shell_index + 1 :]))
        later_words = words[shell_index + 1 + len(options) :]
        if later_words and any(word.endswith("c") and not word.startswith("--") for word in options):
            return later_words[0]
    last_word = words[-1] if words else ""
    return (
        last_word
        if " " in last_word and any(re.search(pattern, last_word) for pattern, _ in _ENGINE_STARTS)
        else None
    )


def _find_start(words: list[str]) -> tuple[EngineName, int, tuple[str, ...]] | None:
    """Return the engine, the number of words before its command, and the words after it."""
    # A word of several is the text for another shell.
    single_words = ["''" if " " in word or "\n" in word else word for word in words]
    for start_index in range(len(words)):
        line = " ".join(single_words[start_index : start_index + _MAX_START_WORDS])
        for pattern, engine in _ENGINE_STARTS:
            if match := re.match(rf"{pattern}(?= |$)", line):
                return engine, start_index, tuple(words[start_index + match[0].count(" ") + 1 :])
    return None


def _parse_flags(words: Iterable[str]) -> tuple[str | None, tuple[EngineFlag, ...]]:
    model: str | None = None
    flag_words: list[list[str]] = []
    for word in words:
        if word.startswith("-") and not _NUMBER_PATTERN.match(word):
            name, equals, value = word.partition("=")
            flag_words.append([name, value] if equals else [name])
        elif flag_words:
            flag_words[-1].append(word)
        else:
            model = model or word
    return model, tuple(EngineFlag(name, tuple(values)) for name, *values in flag_words)
