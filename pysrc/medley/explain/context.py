"""Read the lines before an error: the calls of its traceback, repeated warnings and the last phase."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from medley.explain.lines import WARNING, LogLine, decoded, line
from medley.explain.patterns import Component, Phase
from medley.explain.phases import last_phase

LINES = 60
"""Lines before an error that belong to it."""
_LONGEST = 400
_FRAME = re.compile(r'\s*File "(?P<file>[^"]+)", line \d+,? in (?P<function>[^\s,]+)')
_PACKAGE = re.compile(r"(?:site|dist)-packages/(?P<file>.+)|(?:^|/)(?P<own>(?:vllm|sglang|flashinfer)/.+)")
# Calls that lead to every component.
_FORWARDS = re.compile(r"^(?:torch/(?:_ops|nn/|utils/|_compile)|contextlib|functools|vllm/tracing/)")
_REPEATS = 2
_CHATTER = re.compile(
    r"warnings\.warn|resource_tracker|^\s|^Traceback|it/s|%\||deprecated|FutureWarning|\^\^|"
    r"^[\w.]*(?:Error|Exception)\b"
)
_MATTERS = re.compile(
    r"only support|not support|unsupported|requires?\b|incompatib|mismatch|too old|cannot|can't|unable|"
    r"fail|\berror encountered",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Context:
    """Where an error comes from, in words; each is None if the lines do not show it."""

    component: str | None = None
    """The part of the engine in which the traceback ends, such as FlashInfer's sampler."""
    last_call: str | None = None
    """The innermost call of the traceback in a package of the engine: file and function."""
    instead: str | None = None
    """Flags that choose another component."""
    above: str | None = None
    """A warning before the error, with its count."""
    step: str | None = None
    """The line of the last step of the start before the error."""
    step_fix: str | None = None
    """What to type if that step hangs or is killed."""


def read_context(
    before: Sequence[bytes], said: LogLine, components: Sequence[Component], phases: Sequence[Phase]
) -> Context:
    """Return the context of the line `said` from the lines before it, of the same rank."""
    texts = [decoded(each[:_LONGEST]) for each in before[-LINES:]]
    near = [each for each in map(line, texts) if each.rank in (None, said.rank) or each.nccl]
    # The calls before another process's report are not those of the error.
    frames = [] if said.wrapped else [_FRAME.match(each.text) for each in near]
    calls = [(found["file"], found["function"]) for found in frames if found]
    # The text alone may name what did not fail, such as a missing kernel's library.
    places = [f"{file}, {function}" for file, function in reversed(calls)] or [said.text]
    found = _components(places, components)
    step = last_phase(texts, phases)
    step = None if step and step.phase.complete else step
    return Context(
        ", inside ".join(each.name for each in found) or None,
        _last_call(calls),
        "; or: ".join(each.instead for each in found if each.instead) or None,
        _warning(near),
        step.message if step else None,
        step.phase.fix.replace("\n", "; ") if step else None,
    )


def _components(places: Iterable[str], components: Sequence[Component]) -> list[Component]:
    """Return the component of the first place that has one, and an outer one of a later place."""
    every = [each for place in places if (each := _component(place, components))]
    found = [each for each in every if not each.weak] or every
    return [*found[:1], *[each for each in found[1:] if each.outer and each != found[0]][:1]]


def _component(place: str, components: Sequence[Component]) -> Component | None:
    return next((each for each in components if each.expression.search(place)), None)


def _last_call(calls: Sequence[tuple[str, str]]) -> str | None:
    for file, function in reversed(calls):
        package = _PACKAGE.search(file)
        name = package and (package["file"] or package["own"])
        if name and not _FORWARDS.match(name):
            return f"{name}, {function}"
    return None


def _warning(near: Sequence[LogLine]) -> str | None:
    """Return the warning that says most: one that repeats, else the last that names a defect."""
    said = [each.text.strip() for each in near if _is_warning(each)]
    counts = Counter(said)
    repeated = next((text for text in reversed(said) if counts[text] >= _REPEATS), None)
    best = repeated or next(iter(reversed(said)), None)
    if best is None:
        return None
    times = f" ({counts[best]} times)" if counts[best] > 1 else ""
    return f"{best[:200]}{times}"


def _is_warning(each: LogLine) -> bool:
    """Whether a line is a warning about a defect, or one that native code prints without a level."""
    if each.level not in (WARNING, None) or _CHATTER.search(each.text):
        return False
    return bool(_MATTERS.search(each.text))
