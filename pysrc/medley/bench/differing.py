"""What differs between two benches besides their figures: load, engine, plan, hosts, clocks."""

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from statistics import median
from typing import Any

from medley import facts, transcript
from medley.bench.record import Record
from medley.problem import Problem

_GIB = 1 << 30
_CLOCK = re.compile(r"^(\d+), (\d+) MHz,")
_APART = 0.05
"""Clocks and measured speeds that differ by less are the same."""
_OF_LOAD = {"input_tokens": "tokens in", "output_tokens": "tokens out", "requests": "requests"}
_OWN = ("--host", "--port")
"""Of no matter to speed."""


def differing(one: Record, two: Record) -> tuple[str, ...]:
    """Each in words; what makes the figures incomparable comes first."""
    return tuple(
        f"{what}: {_said(before)} → {_said(after)}"
        for what, before, after in _pairs(one, two)
        if before != after
    )


def same_load(one: Record, two: Record) -> bool:
    return all(
        getattr(one.load, name) == getattr(two.load, name) for name in ("input_tokens", "output_tokens")
    )


def _pairs(one: Record, two: Record) -> Iterator[tuple[str, Any, Any]]:
    for name, title in _OF_LOAD.items():
        yield title, getattr(one.load, name), getattr(two.load, name)
    yield "model", one.model, two.model
    yield from _of_engine(one.about["engine"], two.about["engine"])
    yield from _of_plan(one.about["plan"] or {}, two.about["plan"] or {})
    yield from _of_hosts(one.about["hosts"], two.about["hosts"])
    yield from _apart("clock of GPU", _clocks(one), _clocks(two), "MHz")
    yield from _apart("measured", _measured(one), _measured(two), "")
    yield "medley", _medley(one.about["medley"]), _medley(two.about["medley"])


def _of_engine(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield "engine", one["name"], two["name"]
    for name in sorted({*one["versions"], *two["versions"]}):
        yield name, one["versions"].get(name), two["versions"].get(name)
    yield "environment", one["environment"], two["environment"]
    for name in ("lock", "digest", "python"):
        if one.get(name) != two.get(name):  # the first says the most: a lock changes the digest, too
            yield name, _short(one.get(name)), _short(two.get(name))
            return


def _of_plan(one: Mapping[str, Any], two: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    yield "layout", one.get("layout"), two.get("layout")
    before, after = (_flags(each.get("argv", ())) for each in (one, two))
    for name in sorted({*before, *after}):
        yield name, before.get(name), after.get(name)
    given, now = one.get("env", {}), two.get("env", {})
    for name in sorted({*given, *now}):
        yield name, given.get(name), now.get(name)


def _flags(argv: Sequence[str]) -> dict[str, str]:
    """Each flag and what follows it; where the program and the weights lie is no matter."""
    found: dict[str, str] = {}
    name = None
    for word in argv:
        if word.startswith("-") and not word[1:2].isdecimal():
            name, _, value = word.partition("=")
            found[name] = value
        elif name:
            found[name] = f"{found[name]} {word}".strip()
    return {name: value for name, value in found.items() if name not in _OWN}


def _of_hosts(
    one: Sequence[Mapping[str, str]], two: Sequence[Mapping[str, str]]
) -> Iterator[tuple[str, Any, Any]]:
    yield "hosts", len(one), len(two)
    for nth, (before, after) in enumerate(zip_longest(one, two), 1):
        if not (before and after):
            return
        name = f"host {nth}" if len(one) > 1 else "host"
        if before["same"] != after["same"]:
            yield f"{name} is another one", "the first's", "the second's"
        known, now = _traits(before["facts"]), _traits(after["facts"])
        for trait in known | now:
            yield f"{name}, {trait}", known.get(trait), now.get(trait)


def _traits(text: str) -> dict[str, str | None]:
    """Of a host those facts that stay while it runs and that speed may hang on."""
    try:
        found = facts.facts(transcript.parse(text))
    except Problem:
        return {}
    return {
        "CPU": f"{found.cpu.model or found.system}, {found.cpu.threads} threads",
        "memory": f"{found.memory.total_bytes / _GIB:.0f} GiB",
        "GPUs": ", ".join(gpu.name for gpu in found.gpus) or None,
        "driver": found.driver.version,
        "system": found.software.os_name,
        "kernel": found.software.kernel,
    }


def _clocks(record: Record) -> dict[str, float]:
    """The median of what each GPU ran at meanwhile."""
    seen: dict[str, list[int]] = {}
    for line in (line for each in record.counted for line in each.clocks):
        if match := _CLOCK.match(line):
            seen.setdefault(match[1], []).append(int(match[2]))
    return {gpu: median(found) for gpu, found in seen.items()}


def _measured(record: Record) -> dict[str, float]:
    known = record.about["measured"]
    speeds = {f"{each['host']} {each['index']}, GB/s": each["gb_s"] for each in known["speeds"]}
    return speeds | {f"{each['one']} - {each['two']}, Mbit/s": each["mbit"] for each in known["wires"]}


def _apart(
    what: str, one: Mapping[str, float], two: Mapping[str, float], unit: str
) -> Iterator[tuple[str, Any, Any]]:
    for name in sorted({*one, *two}):
        before, after = one.get(name), two.get(name)
        if before and after and abs(after / before - 1) < _APART:
            continue
        yield f"{what} {name}", _rounded(before, unit), _rounded(after, unit)


def _rounded(value: float | None, unit: str) -> str | None:
    return None if value is None else f"{value:.4g} {unit}".strip()


def _medley(table: Mapping[str, str]) -> str:
    return f"{table['version']} ({table['source']})"


def _short(value: object) -> object:
    return value[:12] if isinstance(value, str) and re.fullmatch("[0-9a-f]{13,}", value) else value


def _said(value: object) -> str:
    return "not set" if value is None else "on" if value == "" else str(value)
