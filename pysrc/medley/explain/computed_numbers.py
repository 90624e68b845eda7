"""Recognize a refused number that no option sets, because the engine computes it from others."""

import re
from collections.abc import Mapping
from typing import NamedTuple

from medley.explain.flags import read_flags

_NEGATIVE = re.compile(
    r"\b(?P<name>[a-z]\w*_\w+)\W{1,3}(?:(?:is|was|got|of|set|to|be|value|equal|equals|computed|as|but|it|=|:)\W{1,2}){0,4}"
    r"(?P<value>-\d+|0)\b"
)
_UNLIMITED = "-1"
"""Engines use it for a number without a limit, or one that is not set."""
_BATCH, _STREAMS, _DRAFT = "max_num_batched_tokens", "max_num_seqs", "num_speculative_tokens"
_DEFAULT_STREAMS = 256
_BUDGET = "max_num_scheduled_tokens"


class ComputedNumber(NamedTuple):
    """Both None where the sentence refuses no negative number, or the log sets it."""

    computed: str | None = None
    """Where the number comes from."""
    budget_fix: str | None = None
    """Values that make the budget of a step positive, to type."""


def explain_number(text: str, arguments: str, figures: Mapping[str, str]) -> ComputedNumber:
    """Return where the refused number of a sentence comes from, by the settings and figures of its log."""
    refused = _NEGATIVE.search(text[:1000])
    if refused is None or refused["value"] == _UNLIMITED:
        return ComputedNumber()
    name, value = refused["name"], int(refused["value"])
    if value == 0 and name != _BUDGET:
        return ComputedNumber()
    if read_flags(arguments, (f"--{name.replace('_', '-')}",)):
        return ComputedNumber()
    if name == _BUDGET:
        return _explain_budget(value, arguments, figures)
    return ComputedNumber(
        f"The log does not set {name}, and no user sets a negative number: the engine computes it from other "
        "settings, or from the memory that is left"
    )


def _explain_budget(value: int, arguments: str, figures: Mapping[str, str]) -> ComputedNumber:
    """Explain vLLM's budget of tokens for a step: the slots of the draft are taken off the batch."""
    batch = _read_number(_BATCH, arguments) or _parse(figures.get("batched_tokens"))
    draft = _read_number(_DRAFT, arguments)
    streams = _read_number(_STREAMS, arguments)
    formula = f"{_BUDGET} = {_BATCH} - {_DRAFT} x {_STREAMS}"
    computed = f"no option sets it: {formula}, because each request needs slots for its drafted tokens"
    if batch and draft:
        count = streams or _DEFAULT_STREAMS
        if batch - draft * count == value:
            default = "" if streams else " (the default)"
            computed += f". Here {batch} - {draft} x {count}{default} = {value}"
        largest = max(batch // (2 * draft), 1)
        smallest = draft * count + max(batch, 2048)
        values = (f"--max-num-batched-tokens {smallest}", f"--max-num-seqs {largest}")
        return ComputedNumber(computed, ", or ".join(values))
    return ComputedNumber(computed, "--max-num-batched-tokens 8192, or --max-num-seqs 16")


def _read_number(name: str, arguments: str) -> int | None:
    """Return a number of a flag, of printed arguments, or of a JSON value."""
    printed = re.search(rf"(?:--{name.replace('_', '-')}[= ]|\b{name}\W{{1,4}})(\d{{1,9}})\b", arguments)
    return _parse(printed[1]) if printed else None


def _parse(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None
