"""Hide the values of names that say they are secret, in any notation.

A name is a variable, a flag, a key or a header: `NAME=`, `--name VALUE`, `"name": "VALUE"`, `Name: VALUE`.
The same notation closes its value: the same quote with the same backslashes (JSON inside JSON), the bracket,
the indented block, the line, else the next blank. The text is read once, from left to right, and each
expression is possessive or bounded, so the time is in proportion to the text.
"""

import re
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple

from medley import config

HIDDEN = "HIDDEN"
WORDS: Mapping[str, Mapping[str, Any]] = config.read_module_table(__file__, "words.toml")
Kind = Literal["secret", "key", "password", "header", "request", "unquoted"]
_NAMES = WORDS["names"]
_LONGEST_NAME = 80
_KEY = rf"(?:{'|'.join(_NAMES['keys'])})_?keys?"
_ENDING = rf"(?:_(?:{'|'.join(_NAMES['endings'])}))?$"
_SECRET_PATTERN = re.compile(rf"(?:^|_)(?:{'|'.join(_NAMES['secret'])}|{_KEY}){_ENDING}")
_ANY_KEY_PATTERN = re.compile(rf"(?:^|_){_KEY}{_ENDING}")
_VARIABLE_PATTERN = re.compile(
    rf"(?:{'|'.join(_NAMES['variables'])}|_(?:{'|'.join(_NAMES['variable_words'])}))$"
)
_FLAG_PATTERN = re.compile(rf"(?:^|_)(?:{'|'.join(_NAMES['variable_words'])})$")
_PASSWORD_PATTERN = re.compile(rf"(?:^|_)(?:{'|'.join(_NAMES['passwords'])})")
_SAFE_NAME_PATTERN = re.compile(rf"(?:^|_)(?:{'|'.join(_NAMES['no_secrets'])})_token(?:_id|_string)?$")
_RESULT = "PASS"
"""A variable; before a colon it is the result of a test."""
_HUMP_PATTERN = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# The n of \n in a string is no letter of the name behind it.
_WORD_PATTERN = re.compile(r"(?<!\\)[\w.-]++|(?<=\\)[nrt]([\w.-]++)|(?<=\\)[\w.-]++")
# With any backslashes; '"'"' and longer ones are a shell's quotes inside of quotes.
_QUOTE = r"(?>(?:\\*[\"']){5,40}|\\*(?:\"\"\"|'''|[\"'`]))"
_SPACE = r"(?:\s|\\++(?:[nrt]|\r?\n))"
_OPENING_PATTERN = re.compile(_QUOTE)
_BEFORE_PATTERN = re.compile(rf"{_QUOTE}\Z")
_LONGEST_QUOTE = 60
_AFTER_CLOSING_PATTERN = re.compile(r"[\s;&|)]|\Z")
_LONGEST_BELOW = 8192
"""Characters of a value in quotes below its first line."""
_CLOSED = rf"{_QUOTE}?+[\])]*+"
_BREAK = r"(?:[ \t]|\\\r?\n)*+"
_ITEM = r"(?:\r?\n|\\++n)[ \t]*+-[ \t]++"
"""An item of a list in YAML."""
_NON_PROSE = r"(?![a-z]{1,20}+(?:[\s.,;:]|$))"
# Of all names, of flags, of a header in a pair, and of {"name": NAME, "value": VALUE}.
# NAME == VALUE is a comparison; NAME== VALUE sets a value that begins with a sign.
_ASSIGNED_PATTERN = re.compile(rf"{_CLOSED}(?:[ \t]++(?:=>|:=|[=:>])(?!= )|(?:=>|:=|[=:>])){_BREAK}")
_FLAGGED_PATTERN = re.compile(
    rf"{_QUOTE}?+(?:[ \t]*+[=:]{{1,2}}[ \t]*+"
    rf"|(?:,{_SPACE}*+(?=b?{_QUOTE})|,[ \t]++(?=[^\s\"'`-]){_NON_PROSE}|{_ITEM}|(?:[ \t]|\\++(?:\r?\n|n))++)"
    rf"(?!b?{_QUOTE}?-[\w-]|[|&;<>]))"
)
_PAIRED_PATTERN = re.compile(rf"{_CLOSED},{_SPACE}*+(?=b?{_QUOTE})")
_NAMED_VALUE_PATTERN = re.compile(rf"{_QUOTE}?+,?{_SPACE}*+{_QUOTE}?+value{_QUOTE}?+[ \t]*+[:=]{_SPACE}*+")
_PREFIX_PATTERN = re.compile(rf"(?:(?:[bBrRuUfF]{{1,2}}|\$)(?={_QUOTE}))?+")
_BARE_PATTERN = re.compile(r"[^\s\"'`]++")
_NEXT_OF_LIST_PATTERN = re.compile(
    rf",{_SPACE}*+b?(?={_QUOTE}(?!-))|{_ITEM}(?=[^\s-])|[ \t]++(?=[^\s\"'`|&;<>-]){_NON_PROSE}"
)
_JOINED_PATTERN = re.compile(rf"{_QUOTE}(?![\s,;)\]}}]|\\+[nrt]|$)")
_BLOCK_PATTERN = re.compile(r"[ \t]*+(?:[|>][-+\d]*+)?[ \t]*+\r?\n")
_PRINTED_REQUEST_PATTERN = re.compile(rf"b?{_QUOTE}|[\[{{](?!\s*+[\]}}])|\w{{1,40}}+\(")
# A block or a list of YAML.
_REQUEST_BLOCK_PATTERN = re.compile(r"[ \t]*+(?:[|>][-+\d]*+[ \t]*+\r?\n|\r?\n(?=[ \t]*+- ))")
# What is no prompt without quotes: nothing, a count, or a line of a program.
_SAFE_REQUEST_PATTERN = re.compile(
    r"(?:[Nn]one|null|[\d.]+)[,;)\]}]|[\d.,]+ ?(?:toks?|tokens?|ms|s)\b"
    r"|(?:str|int|bytes|list|dict|Any|Optional|Union|Sequence)(?:[\[,)=]| \||\s*$)"
    r"|(?:\w{0,40}prompts?|\w{1,40}(?:\.\w{1,40}){1,4})(?:\[\w{1,40}\])?[,)(]{0,3}\s*$"
)
_OF_BRACKETS_PATTERN = re.compile(rf"[\[({{]|[\])}}]|{_QUOTE}")
# A placeholder for a value in a sentence, a help text or a repr; also a switch and a number.
_PLACEHOLDER_PATTERN = re.compile(
    r"(?:|HIDDEN|None|none|null|nil|True|False|true|false|yes|no|on|off|auto|required|optional|unset|FILE|KEY|TOKEN|VALUE|NAME"
    r"|\*+|[-.…]+|<[^>\n]*>?|\$\{?[A-Z_][A-Z0-9_]*\}?|\$\([^)\n]*\)?|%\(\w+\)s|\{[a-z_]*\}|\d{1,12}(?:\.\d{1,6})?[a-zA-Z%]{0,3})"
)
_CAPITAL_NAME = rf"[A-Z][A-Z0-9_]{{2,{_LONGEST_NAME}}}+"
_CAPITAL_NAME_PATTERN = re.compile(_CAPITAL_NAME)
# A value that is not assigned to its name: ENV NAME S of a Dockerfile, set -gx NAME S of fish, setenv of csh,
# a pair in a repr of Python, and "Name": NAME, "Value": S.
_NEXT_TO_NAME_PATTERN = re.compile(
    rf"(\b(?:ENV|setenv|set -\w{{1,3}})[ \t]{{1,8}}{_CAPITAL_NAME}[ \t]{{1,8}}(?!=)"
    rf"|[\"']{_CAPITAL_NAME}[\"'],\s{{0,8}}[\"']"
    rf"|\b[Nn]ame[\"']?\s{{0,4}}[:=]\s{{0,4}}[\"']?{_CAPITAL_NAME}[\"']?,?\s{{1,80}}"
    r"[\"']?[Vv]alue[\"']?\s{0,4}[:=]\s{0,4}[\"']?)"
    r"((?<=[\"'])[^\"'\n]{1,4096}+|[^\s\"']{1,4096}+)"
)
_DIGITS_PATTERN = re.compile(r"\d+")
_LEAST_DIGITS = 4
"""Digits of a key: fewer are a switch or a count."""
_AFTER_PLACEHOLDER_PATTERN = re.compile(r"[,;)&}\]]")


@lru_cache(maxsize=4096)
def find_kind(name: str) -> Kind | None:
    """Return what a name says about its value."""
    if name == "PWD":  # the shell's folder
        return None
    normalized = _HUMP_PATTERN.sub("_", name.strip("-.")).replace("-", "_").replace(".", "_").lower()
    if normalized in _NAMES["headers"]:
        return "header"
    for part in (normalized, name.lower().rpartition(".")[2]):
        if part in _NAMES["request"]:
            return "unquoted" if part in _NAMES["unquoted"] else "request"
    is_flag = name.startswith("-")
    is_named = (
        (is_flag and _FLAG_PATTERN.search(normalized))
        or (name.isupper() and _VARIABLE_PATTERN.search(normalized))
        or name == _RESULT
    )
    if not (is_named or _SECRET_PATTERN.search(normalized)) or _SAFE_NAME_PATTERN.search(normalized):
        return None
    if _PASSWORD_PATTERN.search(normalized):
        return "password"
    return "key" if is_named or is_flag or name.isupper() or _ANY_KEY_PATTERN.search(normalized) else "secret"


def is_secret(name: str) -> bool:
    """Return whether a variable, flag, header or key of this name has a secret value."""
    return find_kind(name[-_LONGEST_NAME:]) in {"secret", "key", "password", "header"}


def is_secret_variable(name: str) -> bool:
    """Return whether a variable, also one in small letters, is secret whatever its value."""
    return _VARIABLE_PATTERN.search(name.lower()) is not None


def has_secret_value(name: str, value: str) -> bool:
    """Return whether a name is secret, and its value is neither a switch nor stands for another."""
    kind = find_kind(name[-_LONGEST_NAME:])
    return kind is not None and is_secret(name) and not _is_placeholder_for_kind(value, kind, whole=True)


def is_placeholder(value: str) -> bool:
    """Return whether a value stands for another, or is a switch or a number."""
    return _PLACEHOLDER_PATTERN.fullmatch(value) is not None


def hide_named(text: str, *, has_requests: bool = True) -> str:
    """Replace the values of secret names by HIDDEN, and with `has_requests` those of prompts and messages."""
    text = _NEXT_TO_NAME_PATTERN.sub(_hide_value_next_to_name, text)
    return "".join(_Reader(text, has_requests=has_requests).list_parts())


def _hide_value_next_to_name(match: re.Match[str]) -> str:
    name = _CAPITAL_NAME_PATTERN.findall(match[1])[-1]
    return f"{match[1]}{HIDDEN}" if has_secret_value(name, match[2]) else match[0]


class _Span(NamedTuple):
    """The place of a value in a text."""

    start: int
    end: int


class _Reader:
    """Reads a text from left to right, and finds the value of each name that has one.

    After the name a separator (`=`, a colon, a blank after a flag) must follow. Then the value is, in this
    order: a block below the name; up to the quote that encloses name and value; in quotes of its own; in
    brackets; up to the end of the line, for headers and passwords; else up to the next blank.
    """

    def __init__(self, text: str, *, has_requests: bool) -> None:
        self.text, self.has_requests = text, has_requests
        self.unclosed_end = -1
        """Brackets before this index are known not to close, so they are not searched again."""

    def list_parts(self) -> Iterator[str]:
        at = 0
        for word in _WORD_PATTERN.finditer(self.text):
            name = (word[1] or word[0])[-_LONGEST_NAME:]
            kind = find_kind(name) if word.start() >= at else None
            if kind in {"request", "unquoted"} and not self.has_requests:
                kind = None
            value = self._find_value(word, name, kind) if kind else None
            if value and value.start < value.end:
                yield self.text[at : value.start]
                yield HIDDEN
                at = value.end
        yield self.text[at:]

    def _find_value(self, word: re.Match[str], name: str, kind: Kind) -> _Span | None:
        """Return where the value of a name begins and ends; None where it has none."""
        end, before = word.end(), self._find_quote_before(word.start(1) if word[1] else word.start())
        quoted = before and not self.text.startswith(before, end)
        assigned = _ASSIGNED_PATTERN.match(self.text, end)
        if kind in {"request", "unquoted"}:
            return self._find_request(word.start(), assigned.end(), kind) if assigned else None
        is_flag = name.startswith("-")
        separator = (is_flag and _FLAGGED_PATTERN.match(self.text, end)) or assigned
        if not separator and kind == "header":
            separator = _PAIRED_PATTERN.match(self.text, end)
        separator = separator or _NAMED_VALUE_PATTERN.match(self.text, end)
        if not separator or (name == _RESULT and separator[0].lstrip().startswith(":")):
            return None
        at = separator.end()
        if self.text.startswith("= ", at):
            return _Span(at, self._find_line_end(at))
        if not is_flag and (block := _BLOCK_PATTERN.match(self.text, at)):
            return self._find_block(word.start(), block.end())
        at = _PREFIX_PATTERN.match(self.text, at).end()  # type: ignore[union-attr] # it matches nothing too
        enclosing, can_have_spaces = before if quoted else "", self._can_have_spaces(word, separator)
        return self._find_value_from(at, kind, enclosing, is_flag=is_flag, can_have_spaces=can_have_spaces)

    def _find_value_from(
        self, at: int, kind: Kind, enclosing: str, *, is_flag: bool, can_have_spaces: bool
    ) -> _Span | None:
        if enclosing and not (is_flag and self.text[at - 1] in " \t"):
            end = self._find_quote_end(enclosing, at)
        elif opening := _OPENING_PATTERN.match(self.text, at):
            if opening[0] == enclosing:
                return None
            return self._find_quoted_value(at, opening, kind, is_flag=is_flag)
        elif self.text[at : at + 1] in {"[", "(", "{"}:
            return self._find_bracketed_value(at)
        elif kind == "header" or can_have_spaces:
            end = self._find_line_end(at)
        else:
            return self._find_bare_value(at, kind, is_flag=is_flag)
        return None if _is_placeholder_for_kind(self.text[at:end], kind) else _Span(at, end)

    def _find_quoted_value(
        self, at: int, opening: re.Match[str], kind: Kind, *, is_flag: bool
    ) -> _Span | None:
        start, end = opening.end(), self._find_quote_end(opening[0], opening.end())
        if opening[0] in {"'", '"'} and not self.text.startswith(opening[0], end):
            end = self._find_quote_end_below(opening[0], end)
        after = min(end + len(opening[0]), len(self.text))
        is_closed = self.text.startswith(opening[0], end)
        is_joined = is_closed and (
            _JOINED_PATTERN.match(self.text, after) or self.text[after : after + 1].isalnum()
        )
        if is_joined:
            return _Span(at, self._find_word_end(after))
        if _is_placeholder_for_kind(self.text[start:end], kind, whole=True):
            return None
        list_end = self._find_list_end(after) if is_flag else None
        return _Span(start, end) if list_end is None else _Span(at, list_end)

    def _find_list_end(self, at: int) -> int | None:
        """Return the end of further values of a flag that takes several."""
        end = None
        while following := _NEXT_OF_LIST_PATTERN.match(self.text, at):
            opening = _OPENING_PATTERN.match(self.text, following.end())
            at = end = (
                self._find_end_after_quotes(opening) if opening else self._find_word_end(following.end())
            )
        return end

    def _find_bare_value(self, at: int, kind: Kind, *, is_flag: bool) -> _Span | None:
        end = self._find_word_end(at)
        if _is_placeholder_for_kind(self.text[at:end], kind):
            return None
        list_end = self._find_list_end(end) if is_flag else None
        return _Span(at, list_end or end)

    def _find_word_end(self, at: int) -> int:
        """Return the next blank, without punctuation before it; a shell joins what quotes divide."""
        end = at
        while True:
            bare = _BARE_PATTERN.match(self.text, end)
            end = bare.end() if bare else end
            if not _JOINED_PATTERN.match(self.text, end) or not (
                opening := _OPENING_PATTERN.match(self.text, end)
            ):
                return at + len(self.text[at:end].rstrip(",;)}]\\"))
            end = self._find_end_after_quotes(opening)

    def _find_end_after_quotes(self, opening: re.Match[str]) -> int:
        return min(self._find_quote_end(opening[0], opening.end()) + len(opening[0]), len(self.text))

    def _find_bracketed_value(self, at: int) -> _Span | None:
        end = self._find_bracket_end(at)
        inside = self.text[at + 1 : end]
        if all(is_placeholder(each[0]) for each in _WORD_PATTERN.finditer(inside)):
            return None
        return _Span(at + 1, end)

    def _find_bracket_end(self, at: int) -> int:
        """Return the place of the bracket that closes this one, or the end of the line."""
        depth, place = 0, at
        while at > self.unclosed_end and (part := _OF_BRACKETS_PATTERN.search(self.text, place)):
            place = part.end()
            if part[0] in "[({":
                depth += 1
            elif part[0] in "])}":
                depth -= 1
                if depth == 0:
                    return part.start()
            else:
                place = min(self._find_quote_end(part[0], place) + len(part[0]), len(self.text))
        self.unclosed_end = max(self.unclosed_end, place if at > self.unclosed_end else -1)
        return self._find_line_end(at)

    def _find_request(self, name_start: int, at: int, kind: Kind) -> _Span | None:
        if block := _REQUEST_BLOCK_PATTERN.match(self.text, at):
            return self._find_block(name_start, block.end())
        opening = _PRINTED_REQUEST_PATTERN.match(self.text, at)
        if not opening:
            value = self.text[at : self._find_line_end(at)]
            must_hide = (
                kind == "unquoted"
                and not is_placeholder(value.strip())
                and not _SAFE_REQUEST_PATTERN.match(value)
            )
            return _Span(at, at + len(value)) if must_hide else None
        close = self._find_bracket_end(at) if opening[0] in "[{" else at
        return _Span(at, max(self._find_line_end(at), close))

    def _find_block(self, name_start: int, at: int) -> _Span | None:
        """Return the lines below a name that are indented more, or are its list."""
        line_start = self.text.rfind("\n", 0, name_start) + 1
        head = self.text[line_start:name_start]
        indent = len(head) - len(head.lstrip(" \t"))
        lines = re.compile(
            rf"(?:[ \t]{{{indent + 1},}}+[^\n]*+\n?|[ \t]{{{indent}}}- [^\n]*+\n?|[ \t]*+\r?\n)*+"
        )
        inside = lines.match(self.text, at)
        end = inside.end() if inside else at
        body = self.text[at:end]
        start = at + len(body) - len(body.lstrip())
        return _Span(start, at + len(body.rstrip()))

    def _can_have_spaces(self, word: re.Match[str], separator: re.Match[str]) -> bool:
        """Return whether a password may have spaces: it is alone on its line, as in YAML and .ini files."""
        if find_kind(word[0][-_LONGEST_NAME:]) != "password" or not separator[0][-1:].isspace():
            return False
        line_start = self.text.rfind("\n", max(0, word.start() - _LONGEST_NAME), word.start())
        return not self.text[line_start + 1 : word.start()].strip(" \t-\"'") and (
            line_start >= 0 or word.start() < _LONGEST_NAME
        )

    def _find_quote_before(self, at: int) -> str:
        match = _BEFORE_PATTERN.search(self.text, max(0, at - _LONGEST_QUOTE), at)
        return match[0] if match else ""

    def _find_quote_end(self, quote: str, at: int) -> int:
        """Return the place of the same quote with the same backslashes, or the end of the line."""
        end = len(self.text) if len(quote.lstrip("\\")) > 1 else self._find_line_end(at)
        quotes = _OPENING_PATTERN.finditer(self.text, at, end)
        return next((each.start() for each in quotes if each[0] == quote), end)

    def _find_quote_end_below(self, quote: str, line_end: int) -> int:
        """Return where a shell's quotes over several lines close, or the end of the first line.

        What follows a closing quote of a shell is a blank or a sign of the shell's.
        """
        place = self.text.find(quote, line_end, line_end + _LONGEST_BELOW)
        return place if place >= 0 and _AFTER_CLOSING_PATTERN.match(self.text, place + 1) else line_end

    def _find_line_end(self, at: int) -> int:
        end = self.text.find("\n", at)
        return len(self.text) if end < 0 else end


def _is_placeholder_for_kind(value: str, kind: Kind, *, whole: bool = False) -> bool:
    """Return whether a value is a placeholder; without quotes the part before punctuation may be one too."""
    if _DIGITS_PATTERN.fullmatch(value) and (
        kind == "password" or (kind == "key" and len(value) >= _LEAST_DIGITS)
    ):
        return False
    head = value if whole else _AFTER_PLACEHOLDER_PATTERN.split(value, maxsplit=1)[0]
    return is_placeholder(value) or (bool(head) and is_placeholder(head))
