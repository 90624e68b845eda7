"""Choose the parsers of tool calls and reasoning, and compare the user's with the model's files."""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

from medley import user
from medley.engine import Engine
from medley.engine.parser import EngineParser
from medley.errors import Problem
from medley.model import chat_format, hub_checkpoint
from medley.model.chat_format import REASONING_RULES, TOOL_RULES, ChatFormat
from medley.model.checkpoint import CONFIG
from medley.model.resolve import Weights

TOOL_FLAG, REASONING_FLAG, TEMPLATE_FLAG = "--tool-call-parser", "--reasoning-parser", "--chat-template"
# They read the format from the model's files themselves.
_ANY_FORMAT = {"auto", "hf", "response_template"}


def format_of(found: Weights, extra: Sequence[str]) -> ChatFormat:
    """Return how a model writes calls and thoughts: by the user's template, its table, or its own files."""
    if given := value(extra, TEMPLATE_FLAG):
        return _of_given_template(found, given)
    if found.model and not found.model.package:
        return chat_format.read_table_format(found.model)
    if found.is_local:
        return chat_format.read_folder_format(Path(found.target))
    with suppress(Problem):  # the hub does not answer: what needs the model says so
        return chat_format.find_format(partial(hub_checkpoint.read_small_file, found.target))
    return ChatFormat()


def launch_format(chat: ChatFormat, extra: Sequence[str]) -> ChatFormat:
    """Return the format with the user's own parsers, so that the flags that belong to them are set too."""
    tool, reasoning = value(extra, TOOL_FLAG), value(extra, REASONING_FLAG)
    if tool:
        chat = replace(chat, tool_parser=tool, tool_why="as requested", is_given=True)
    if reasoning:
        chat = replace(chat, reasoning_parser=reasoning, reasoning_why="as requested", is_given=True)
    return chat


def warnings(chat: ChatFormat, engine: Engine, extra: Sequence[str]) -> Iterator[str]:
    """Yield what of the user's parsers contradicts the model's format, and what no parser reads."""
    given = value(extra, TOOL_FLAG), value(extra, REASONING_FLAG)
    if chat.source:
        named = zip((TOOL_FLAG, REASONING_FLAG), given, engine.choose_parsers(chat), strict=True)
        for flag, mine, right in named:
            rules = TOOL_RULES if flag == TOOL_FLAG else REASONING_RULES
            own = chat.tool_parser if flag == TOOL_FLAG else chat.reasoning_parser
            same = {name for rule in rules if rule.parser == own for name in rule.same_parsers}
            if mine and right and mine not in {right, *same, *_ANY_FORMAT}:
                why = chat.tool_why if flag == TOOL_FLAG else chat.reasoning_why
                yield f"{flag} {mine} contradicts the model: {why}, which {right} reads"
    if not given[0] and not chat.tool_parser and chat.tool_why:
        yield chat.tool_why
    elif given[0] and not chat.tool_parser and chat.tool_why:
        yield f"{TOOL_FLAG} {given[0]} has nothing to read: {chat.tool_why.partition(':')[0]}"
    if not given[1] and not chat.reasoning_parser and chat.reasoning_why:
        yield chat.reasoning_why


def readable(chat: ChatFormat, engine: Engine, takes: EngineParser | None) -> tuple[ChatFormat, list[str]]:
    """Return the format without parsers that this release lacks, and a sentence for each."""
    tool, reasoning = (None, None) if chat.is_given else engine.choose_parsers(chat)
    notes = []
    if tool and (lacks := _lacks(takes, TOOL_FLAG, tool)):
        notes.append(f"{lacks}: a request with tools gets 400")
        chat = replace(chat, tool_parser=None, tool_why="")
    if reasoning and (lacks := _lacks(takes, REASONING_FLAG, reasoning)):
        notes.append(f"{lacks}: thoughts stay in the answer")
        chat = replace(chat, reasoning_parser=None, reasoning_why="")
    return chat, notes


def value(words: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag among the words of a command, in any spelling; None without it."""
    found = None
    for word, after in pairwise((*words, "")):
        name, equals, given = word.partition("=")
        if name.startswith("--") and name.replace("_", "-") == flag:
            found = given if equals else after
    return found or None


def _lacks(takes: EngineParser | None, flag: str, name: str) -> str | None:
    values = takes.names.get(flag, {}).get("values") if takes else None
    return f"{takes.title} has no parser {name}" if takes and values and name not in values else None


def _of_given_template(found: Weights, given: str) -> ChatFormat:
    """Return the format of the template of --chat-template, which is a file or the text itself."""
    path = user.expand(given)
    try:
        is_file = path.is_file()
        text = path.read_text(encoding="utf-8") if is_file else given
    except (OSError, UnicodeDecodeError):  # too long for a name, or not text: the engine says so
        is_file, text = False, given
    architecture = found.model.architecture if found.model else None
    if architecture is None and found.is_local:
        architecture = chat_format.read_architecture(Path(found.target) / CONFIG)
    return chat_format.find_template_format(
        text, text, architecture or "", path.name if is_file else TEMPLATE_FLAG
    )
