"""Fill in the groups of a known failure's texts; in a fix, what a log says is one quoted word."""

import re
from collections.abc import Callable, Collection, Mapping

from medley.command import quote_word

GROUP = re.compile(r"\{(\w+)\}")
_OPTIONAL_PART = re.compile(r"\[([^\[\]]*\{\w+\}[^\[\]]*)\]")
_FIRST_STOP = re.compile(r"^[.:] +")
_STOPS = re.compile(r"[.:,;]\s*;")
# Not an option, except one without a value.
_SAFE_WORD = re.compile(r"(?:~/)?[\w@%+=:,./][\w@%+=:,./-]*|--[a-z][a-z0-9-]*")
_LINE_BREAK = re.compile(r"\s*\n\s*")


def fill_template(template: str, groups: Mapping[str, str | None]) -> str:
    def optional(match: re.Match[str]) -> str:
        return match[1] if all(groups.get(name) for name in GROUP.findall(match[1])) else ""

    template_text = _OPTIONAL_PART.sub(optional, template)
    text = GROUP.sub(lambda match: _LINE_BREAK.sub(" ", (groups.get(match[1]) or "?").strip()), template_text)
    return _FIRST_STOP.sub("", _STOPS.sub(";", text).strip(" ,;"))


def fill_in_words(
    template: str,
    groups: Mapping[str, str | None],
    own_words: Collection[str],
    fit: Callable[[str], str],
) -> str:
    """Return a fix for a shell: `fit` changes it while each quoted word is still its {group}."""
    words = {name: value if name in own_words else _quote(value) for name, value in groups.items()}
    quoted = {name: word for name, word in words.items() if word is not None and word != groups[name]}
    fix = fit(fill_template(template, words | {name: f"{{{name}}}" for name in quoted}))
    return GROUP.sub(lambda match: quoted.get(match[1], match[0]), fix)


def _quote(value: str | None) -> str | None:
    """Quote text of a log for a command to paste: one word, and not an option."""
    if value is None or _SAFE_WORD.fullmatch(value):
        return value
    return None if value.startswith("-") else quote_word(value)
