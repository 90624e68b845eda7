"""Read the engine's flags from the lines in which it prints its arguments, or from its command."""

import re
from collections.abc import Iterable

# A value that leaves a flag at its default.
_DEFAULT_VALUES = frozenset({"None", "False", "auto", "", "{}", "[]", "0"})
_VALUE = r"""(?P<value>'[^'\n]{0,80}'|"[^"\n]{0,80}"|[^\s,})'"]{1,80})?"""
_PLAIN_VALUE = re.compile(r"(?!True$|-)[\w.:/+-]+")


def read_flags(text: str, names: Iterable[str]) -> dict[str, str]:
    """Return those of the flags `names` that a line sets, in its order, with what to type: --flag VALUE.

    The line is vLLM's {'attention_backend': 'X'}, SGLang's ServerArgs(attention_backend='x'), or a command.
    A value that is a table, or True, is left out.
    """
    matches = (
        (match.start(), name, match["value"]) for name in names if (match := _find_setting(text, name))
    )
    settings = sorted(
        (position, name, None if value is None else value.strip("'\"")) for position, name, value in matches
    )
    return {
        name: _format_flag(name, value or "") for _, name, value in settings if value not in _DEFAULT_VALUES
    }


def _find_setting(text: str, name: str) -> re.Match[str] | None:
    key = name.removeprefix("--").replace("-", "_")
    printed = rf"(?P<quote>['\"]){key}(?P=quote): ?|(?<![\w'\"-]){key}(?:=|: )"
    typed = rf"(?<![^\s'\"\[,]){name}(?:[= ]|['\"], ?|$)"
    matches = list(re.finditer(f"(?:{printed}|{typed}){_VALUE}", text))
    # A recipe's placeholder, such as {max_model_len}, stands before its value.
    return next((each for each in matches if not (each["value"] or "").startswith("{")), None) or next(
        iter(matches), None
    )


def _format_flag(name: str, value: str) -> str:
    return f"{name} {value}" if _PLAIN_VALUE.fullmatch(value) else name
