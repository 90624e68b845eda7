"""Know from a model's own files how it writes tool calls and reasoning.

An engine reads both with a parser that it must be given by name. The chat template shows the marks:
`<tool_call>`, `[TOOL_CALLS]`, `<think>`. `chat_formats.toml` has the rules, each with its source.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import config
from medley.model.checkpoint import CONFIG
from medley.schema import Model

JINJA, TOKENIZER = "chat_template.jinja", "tokenizer_config.json"
_THINKS = re.compile(r"<think>|\[THINK\]")
# `tools` as a variable of the template: not `message.tools`, "tools" or <tools>.
_SHOWS_TOOLS = re.compile(
    r"""\{[%{](?:[^%}'"]|'[^']*'|"[^"]*"|%(?!\})|\}(?!\}))*?(?<![.\w'"<])tools\b(?!['">])"""
)


@dataclass(frozen=True)
class Rule:
    """A parser, and the marks of templates that it reads."""

    parser: str
    marks: tuple[str, ...]
    source: str
    without: tuple[str, ...] = ()
    same: tuple[str, ...] = ()
    """Other names, of either engine, for a parser that reads the same."""
    architectures: tuple[str, ...] = ()
    """The beginnings of `model_type` that it is for [default: any]."""

    def holds(self, template: str, architecture: str) -> bool:
        """Whether a template of this architecture is written so."""
        if self.architectures and not architecture.startswith(self.architectures):
            return False
        return all(mark in template for mark in self.marks) and not any(
            mark in template for mark in self.without
        )


@dataclass(frozen=True)
class ChatFormat:
    """The parsers of a model's tool calls and reasoning, by vLLM's names, and why these."""

    tool_parser: str | None = None
    reasoning_parser: str | None = None
    tool_why: str = ""
    reasoning_why: str = ""
    source: str = ""
    """Its table, or the file of its template; empty where neither is known."""
    is_given: bool = False
    """Whether the user named a parser, which is then not looked at again."""

    @property
    def reads_no_reasoning(self) -> bool:
        """Whether it is known, and engines read no reasoning; vLLM reads gpt-oss's by the model."""
        return bool(self.source) and not self.reasoning_parser and self.tool_parser != "openai"


def _rules(name: str) -> tuple[Rule, ...]:
    def words(table: Mapping[str, Any], key: str) -> tuple[str, ...]:
        return tuple(table.get(key, ()))

    return tuple(
        Rule(
            each["parser"],
            words(each, "marks"),
            each["source"],
            words(each, "without"),
            words(each, "same"),
            words(each, "architectures"),
        )
        for each in config.beside(__file__, "chat_formats.toml")[name]
    )


TOOLS, REASONING = _rules("tools"), _rules("reasoning")


def of_table(model: Model | None) -> ChatFormat:
    """Return the format that a model's table gives."""
    if model is None:
        return ChatFormat()
    tool = "the format of this model's tool calls" if model.tool_parser else ""
    reasoning = "the format of this model's reasoning" if model.reasoning_parser else ""
    return ChatFormat(model.tool_parser, model.reasoning_parser, tool, reasoning, "its table in models/")


def of_folder(folder: Path) -> ChatFormat:
    """Return the format by the files of a folder."""
    return of_files(lambda name: _text(folder / name))


def architecture_of(path: Path) -> str | None:
    """Return `model_type` of a config.json, if it is there."""
    kind = _table(_text(path)).get("model_type")
    return kind if isinstance(kind, str) else None


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8") if path.is_file() else None
    except (OSError, UnicodeDecodeError):
        return None


def of_files(read: Callable[[str], str | None]) -> ChatFormat:
    """Return the format by a checkpoint's files; `read` returns a file's text, or None without it."""
    kind = _table(read(CONFIG)).get("model_type")
    architecture = kind if isinstance(kind, str) else ""
    if jinja := read(JINJA):
        return of_template(jinja, jinja, architecture, JINJA)
    match _table(read(TOKENIZER)).get("chat_template"):
        case str(text):
            return of_template(text, text, architecture, TOKENIZER)
        case [*several]:
            named = {each.get("name"): each.get("template") for each in several if isinstance(each, dict)}
            texts = {name: text for name, text in named.items() if isinstance(text, str)}
            plain = texts.get("default", "")
            return of_template(plain, texts.get("tool_use", plain), architecture, TOKENIZER)
        case _:
            return ChatFormat()


def of_template(plain: str, with_tools: str, architecture: str, source: str) -> ChatFormat:
    """Return the format of a template, and of the one for requests with tools where that is another."""
    tool, tool_why = _tools(_read(with_tools), architecture, source)
    reasoning, why = _chosen(REASONING, _read(plain), architecture, source)
    if reasoning is None and not why and _THINKS.search(plain):
        why = f"{source} has marks of reasoning that no rule knows: thoughts stay in the answer"
    return ChatFormat(tool, reasoning, tool_why, why, source)


def _tools(template: str, architecture: str, source: str) -> tuple[str | None, str]:
    if not _SHOWS_TOOLS.search(template):
        return None, f"{source} shows the model no tools: a request with tools gets 400"
    parser, why = _chosen(TOOLS, template, architecture, source)
    return parser, why or f"{source} writes tool calls as no rule knows: a request with tools gets 400"


def _chosen(rules: Iterable[Rule], template: str, architecture: str, source: str) -> tuple[str | None, str]:
    """Return the only parser whose rule holds, and why; None where none does, or several do."""
    holding = [rule for rule in rules if rule.holds(template, architecture)]
    holding = [rule for rule in holding if rule.architectures] or holding
    parsers = dict.fromkeys(rule.parser for rule in holding)
    if len(parsers) > 1:
        return None, f"{source} could be read by {' or '.join(parsers)}: none is set"
    if not holding:
        return None, ""
    first = next(mark for mark in holding[0].marks)
    return holding[0].parser, f"{source} writes {first.strip()}"


def _read(template: str) -> str:
    """Return a template's text with the escapes of its strings replaced."""
    return template.replace("\\n", "\n").replace('\\"', '"')


def _table(text: str | None) -> Mapping[str, Any]:
    try:
        found = json.loads(text) if text else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}
