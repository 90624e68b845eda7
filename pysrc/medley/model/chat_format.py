"""Find from a model's own files how it writes tool calls and reasoning.

An engine reads both with a parser that it must be given by name. The chat template shows the marks:
`<tool_call>`, `[TOOL_CALLS]`, `<think>`. `chat_formats.toml` has the rules, each with its source.
`serving/chat_parsers.py` reads the user's own template, and `extra_files.py` fetches that of a model's table.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from medley import config
from medley.model.checkpoint import CONFIG_FILE
from medley.schema import Model
from medley.values import Value

TEMPLATE_FILE, TOKENIZER_CONFIG_FILE = "chat_template.jinja", "tokenizer_config.json"
_REASONING_MARKS_PATTERN = re.compile(r"<think>|\[THINK\]")
# `tools` as a variable of the template: not `message.tools`, "tools" or <tools>.
_TOOLS_VARIABLE_PATTERN = re.compile(
    r"""\{[%{](?:[^%}'"]|'[^']*'|"[^"]*"|%(?!\})|\}(?!\}))*?(?<![.\w'"<])tools\b(?!['">])"""
)


class ParserRule(Value):
    """A parser, and the marks of templates that it reads."""

    parser: str
    marks: tuple[str, ...]
    source: str
    absent_marks: tuple[str, ...] = ()
    same_parsers: tuple[str, ...] = ()
    """Other names, in either engine, for a parser that reads the same."""
    architectures: tuple[str, ...] = ()
    """The prefixes of `model_type` to which the rule applies; empty: any."""

    def is_match(self, template: str, architecture: str) -> bool:
        """Return whether a template of this architecture has the rule's marks."""
        if self.architectures and not architecture.startswith(self.architectures):
            return False
        has_marks = all(mark in template for mark in self.marks)
        return has_marks and not any(mark in template for mark in self.absent_marks)


class ChatFormat(Value):
    """The parsers of a model's tool calls and reasoning, by vLLM's names, and why these."""

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tool_why: str = ""
    reasoning_why: str = ""
    source: str = ""
    """The model's table, or the file of its template; empty where neither is known."""
    is_given: bool = False
    """Whether the user named a parser, which is then not looked at again."""

    @property
    def has_no_reasoning_parser(self) -> bool:
        """Whether the format is known and has no parser of reasoning; vLLM reads gpt-oss's by the model."""
        return bool(self.source) and not self.reasoning_parser and self.tool_parser != "openai"


def _load_rules(name: str) -> tuple[ParserRule, ...]:
    """Return the rules of chat_formats.toml under this name."""
    keys = ("marks", "without", "same", "architectures")
    rules = []
    for table in config.read_module_table(__file__, "chat_formats.toml")[name]:
        marks, absent_marks, same_parsers, architectures = (tuple(table.get(key, ())) for key in keys)
        rules.append(
            ParserRule(table["parser"], marks, table["source"], absent_marks, same_parsers, architectures)
        )
    return tuple(rules)


TOOL_RULES, REASONING_RULES = _load_rules("tools"), _load_rules("reasoning")


def read_table_format(model: Model | None) -> ChatFormat:
    """Return the format that a model's table gives."""
    if model is None:
        return ChatFormat()
    tool = "the format of this model's tool calls" if model.tool_parser else ""
    reasoning = "the format of this model's reasoning" if model.reasoning_parser else ""
    return ChatFormat(model.tool_parser, model.reasoning_parser, tool, reasoning, "its table in models/")


def read_folder_format(folder: Path) -> ChatFormat:
    """Return the format that the files of a folder show."""
    return find_format(lambda name: _read_text(folder / name))


def read_architecture(path: Path) -> str | None:
    """Return `model_type` of a config.json, if it is there."""
    kind = _parse_table(_read_text(path)).get("model_type")
    return kind if isinstance(kind, str) else None


def _read_text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError):
        return None


def find_format(read: Callable[[str], str | None]) -> ChatFormat:
    """Return the format that a checkpoint's files show; `read` returns a file's text, or None without it."""
    kind = _parse_table(read(CONFIG_FILE)).get("model_type")
    architecture = kind if isinstance(kind, str) else ""
    if jinja := read(TEMPLATE_FILE):
        return find_template_format(jinja, jinja, architecture, TEMPLATE_FILE)
    match _parse_table(read(TOKENIZER_CONFIG_FILE)).get("chat_template"):
        case str(text):
            return find_template_format(text, text, architecture, TOKENIZER_CONFIG_FILE)
        case [*entries]:
            tables = [entry for entry in entries if isinstance(entry, dict)]
            templates = {table.get("name"): table.get("template") for table in tables}
            texts = {name: text for name, text in templates.items() if isinstance(text, str)}
            default_template = texts.get("default", "")
            return find_template_format(
                default_template, texts.get("tool_use", default_template), architecture, TOKENIZER_CONFIG_FILE
            )
        case _:
            return ChatFormat()


def find_template_format(template: str, with_tools: str, architecture: str, source: str) -> ChatFormat:
    """Return the format of a template, and of the one for requests with tools where that is another."""
    tool, tool_why = _find_tool_parser(_unescape(with_tools), architecture, source)
    reasoning, reasoning_why = _choose_parser(REASONING_RULES, _unescape(template), architecture, source)
    if reasoning is None and not reasoning_why and _REASONING_MARKS_PATTERN.search(template):
        reasoning_why = f"{source} has marks of reasoning that no rule knows: thoughts stay in the answer"
    return ChatFormat(tool, reasoning, tool_why, reasoning_why, source)


def _find_tool_parser(template: str, architecture: str, source: str) -> tuple[str | None, str]:
    if not _TOOLS_VARIABLE_PATTERN.search(template):
        return None, f"{source} shows the model no tools: a request with tools gets 400"
    parser, why = _choose_parser(TOOL_RULES, template, architecture, source)
    return parser, why or f"{source} writes tool calls as no rule knows: a request with tools gets 400"


def _choose_parser(
    rules: Iterable[ParserRule], template: str, architecture: str, source: str
) -> tuple[str | None, str]:
    """Return the only parser whose rule holds, and why; None where none does, or several do."""
    matching = [rule for rule in rules if rule.is_match(template, architecture)]
    matching = [rule for rule in matching if rule.architectures] or matching
    parsers = dict.fromkeys(rule.parser for rule in matching)
    if len(parsers) > 1:
        return None, f"{source} could be read by {' or '.join(parsers)}: none is set"
    if not matching:
        return None, ""
    first = next(mark for mark in matching[0].marks)
    return matching[0].parser, f"{source} writes {first.strip()}"


def _unescape(template: str) -> str:
    """Return a template's text with the escapes of its strings replaced."""
    return template.replace("\\n", "\n").replace('\\"', '"')


def _parse_table(text: str | None) -> Mapping[str, Any]:
    try:
        table = json.loads(text) if text else {}
    except ValueError:
        return {}
    return table if isinstance(table, dict) else {}
