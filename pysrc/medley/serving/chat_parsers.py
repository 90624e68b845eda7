"""Choose the parsers of tool calls and reasoning, and compare the user's with the model's files.

The user's flags win, then the model's table, then its files, which `model/chat_format.py` reads. The chat
template can be the user's own: --chat-template.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import pairwise
from pathlib import Path

from medley import user
from medley.engine.accepted_flags import AcceptedFlags
from medley.engine.interface import Engine
from medley.errors import Problem
from medley.model import chat_format, hub_checkpoint
from medley.model.chat_format import REASONING_RULES, TOOL_RULES, ChatFormat
from medley.model.checkpoint import CONFIG_FILE
from medley.model.resolve import Weights

TOOL_FLAG, REASONING_FLAG, TEMPLATE_FLAG = "--tool-call-parser", "--reasoning-parser", "--chat-template"
# These parsers read the format from the model's files themselves.
_ANY_FORMAT = {"auto", "hf", "response_template"}


def find_format(weights: Weights, engine_flags: Sequence[str]) -> ChatFormat:
    """Return the format of a model's calls and thoughts: the user's template's, its table's or its files'."""
    if template := find_flag_value(engine_flags, TEMPLATE_FLAG):
        return _find_template_format(weights, template)
    if weights.model and not weights.model.package:
        return chat_format.read_table_format(weights.model)
    if weights.is_local:
        return chat_format.read_folder_format(Path(weights.target))
    with suppress(Problem):  # without the hub's answer the format is unknown; a later step reports the hub
        return chat_format.find_format(partial(hub_checkpoint.read_small_file, weights.target))
    return ChatFormat()


def add_user_parsers(chat: ChatFormat, engine_flags: Sequence[str]) -> ChatFormat:
    """Return the format with the user's own parsers, so that the flags which belong to them are set too."""
    tool, reasoning = find_flag_value(engine_flags, TOOL_FLAG), find_flag_value(engine_flags, REASONING_FLAG)
    if tool:
        chat = chat.replace(tool_parser=tool, tool_why="as requested", is_given=True)
    if reasoning:
        chat = chat.replace(reasoning_parser=reasoning, reasoning_why="as requested", is_given=True)
    return chat


def list_warnings(chat: ChatFormat, engine: Engine, engine_flags: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for each user's parser that contradicts the model, and for formats that none reads."""
    user_parsers = find_flag_value(engine_flags, TOOL_FLAG), find_flag_value(engine_flags, REASONING_FLAG)
    if chat.source:
        choices = zip((TOOL_FLAG, REASONING_FLAG), user_parsers, engine.choose_parsers(chat), strict=True)
        for flag, user_parser, model_parser in choices:
            rules = TOOL_RULES if flag == TOOL_FLAG else REASONING_RULES
            format_parser = chat.tool_parser if flag == TOOL_FLAG else chat.reasoning_parser
            equal_parsers = {
                name for rule in rules if rule.parser == format_parser for name in rule.same_parsers
            }
            if (
                user_parser
                and model_parser
                and user_parser not in {model_parser, *equal_parsers, *_ANY_FORMAT}
            ):
                reason = chat.tool_why if flag == TOOL_FLAG else chat.reasoning_why
                yield f"{flag} {user_parser} contradicts the model: {reason}, which {model_parser} reads"
    if not user_parsers[0] and not chat.tool_parser and chat.tool_why:
        yield chat.tool_why
    elif user_parsers[0] and not chat.tool_parser and chat.tool_why:
        yield f"{TOOL_FLAG} {user_parsers[0]} has nothing to read: {chat.tool_why.partition(':')[0]}"
    if not user_parsers[1] and not chat.reasoning_parser and chat.reasoning_why:
        yield chat.reasoning_why


def drop_missing_parsers(
    chat: ChatFormat, engine: Engine, accepted_flags: AcceptedFlags | None
) -> tuple[ChatFormat, list[str]]:
    """Return the format without parsers that this release lacks, and a sentence for each."""
    tool, reasoning = (None, None) if chat.is_given else engine.choose_parsers(chat)
    notes = []
    if tool and (gap := _find_parser_gap(accepted_flags, TOOL_FLAG, tool)):
        notes.append(f"{gap}: a request with tools gets 400")
        chat = chat.replace(tool_parser=None, tool_why="")
    if reasoning and (gap := _find_parser_gap(accepted_flags, REASONING_FLAG, reasoning)):
        notes.append(f"{gap}: thoughts stay in the answer")
        chat = chat.replace(reasoning_parser=None, reasoning_why="")
    return chat, notes


def find_flag_value(words: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag among the words of a command, in any spelling; None without it."""
    flag_value = None
    for word, next_word in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name.startswith("--") and name.replace("_", "-") == flag:
            flag_value = value if equals else next_word
    return flag_value or None


def _find_parser_gap(accepted_flags: AcceptedFlags | None, flag: str, name: str) -> str | None:
    values = accepted_flags.flags_by_name.get(flag, {}).get("values") if accepted_flags else None
    return (
        f"{accepted_flags.title} has no parser {name}"
        if accepted_flags and values and name not in values
        else None
    )


def _find_template_format(weights: Weights, template: str) -> ChatFormat:
    """Return the format of the template of --chat-template, which is a file or the text itself."""
    path = user.expand_home(template)
    try:
        is_file = path.is_file()
        text = path.read_text(encoding="utf-8") if is_file else template
    except (OSError, UnicodeDecodeError):  # too long for a name, or not text: the engine reports it
        is_file, text = False, template
    architecture = weights.model.architecture if weights.model else None
    if architecture is None and weights.is_local:
        architecture = chat_format.read_architecture(Path(weights.target) / CONFIG_FILE)
    return chat_format.find_template_format(
        text, text, architecture or "", path.name if is_file else TEMPLATE_FLAG
    )
