"""Check flags against those of the installed engine; convert them to Python arguments."""

import difflib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import process, storage
from medley.command import UNSET, Command, Flag
from medley.engine import Engine
from medley.errors import Problem
from medley.progress import SILENT, Progress
from medley.schema import EngineName

# "  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE"; explanations have more indent
_LINE = re.compile(r"^  (-.*)$")
_NAME = re.compile(r"(?:^|, )(--?[A-Za-z][\w-]*)")
_NUMBER = re.compile(r"^-[\d.]")
_OPTIMIZATION = re.compile(r"^-O(?:=?\w+)?$")
# Removed names that guides still use.
_GONE = {
    "--swap-space": "vLLM has no swap space any more: remove it",
    "--num-scheduler-steps": "vLLM schedules each step by itself now: remove it",
    "--use-v2-block-manager": "there is only one block manager now: remove it",
}
_LIMIT_S = 180
# With fewer names the help has another format, and nothing can be checked.
_LEAST = 50


def require_known(
    engine: Engine, binary: Path, words: Sequence[str], *, ask: bool = True, watch: Progress = SILENT
) -> None:
    """Raise a Problem that names unknown flags, by a cached list or, if `ask`, the engine's slow help."""
    if not any(word.startswith("-") for word in words):
        return
    # Another version has other flags.
    packages = binary.parent.glob(f"lib/python*/site-packages/{engine.PROGRAM}*.dist-info")
    identity = "\n".join((str(binary), *sorted(path.name for path in packages)))
    digest = storage.hash_bytes(identity.encode())[:16]
    kept = storage.cache() / "flags" / f"{engine.PROGRAM}-{digest}.txt"
    if ask and not kept.exists():
        with watch.stage(f"ask {engine.TITLE} for its flags"):
            # Wide, so that lines of names are not wrapped.
            argv = (str(binary / engine.PROGRAM), *engine.HELP)
            lines: list[str] = []  # all lines, because Finished has only the last ones
            finished = process.run(
                Command(argv, {"COLUMNS": "4000"}, UNSET), limit_s=_LIMIT_S, on_line=lines.append
            )
            storage.write(kept, "\n".join(known("\n".join(lines)) if finished.status == 0 else ()))
    names = kept.read_text(encoding="utf-8").split() if kept.exists() else []
    wrong = list(unknown(words, names)) if len(names) >= _LEAST else []
    if wrong:
        raise Problem(
            f"{engine.TITLE} does not know {', '.join(word for word, _ in wrong)}",
            cause=f"none of {len(names)} names in {binary / engine.PROGRAM} {' '.join(engine.HELP)}",
            fix="\n".join(f"{word}: {advice}" for word, advice in wrong),
        )


def known(text: str) -> tuple[str, ...]:
    """Parse all names of flags in a help text of argparse."""
    lines = (match[1] for line in text.splitlines() if (match := _LINE.match(line)))
    return tuple(dict.fromkeys(name for line in lines for name in _NAME.findall(line)))


def unknown(words: Iterable[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield words that an engine would refuse, and a replacement; unique prefixes are valid."""
    for word in words:
        if not word.startswith("-") or _NUMBER.match(word) or _OPTIMIZATION.match(word):
            continue
        name = _name(word)
        beginning = [each for each in names if each.startswith(name)] if name.startswith("--") else []
        if name in names or len(beginning) == 1:
            continue
        if beginning:
            yield word, f"write it in full: {' or '.join(beginning[:4])}"
        elif name in _GONE:
            yield word, _GONE[name]
        else:
            near = difflib.get_close_matches(name, names, n=1)
            yield word, f"did you mean {near[0]}?" if near else "remove it"


def _name(word: str) -> str:
    """Remove value and key, and use dashes: --Compilation_config.mode=2 is --Compilation-config."""
    name = re.split(r"[=.]", word, maxsplit=1)[0].rstrip("+")
    return name if not name.startswith("--") else f"--{name[2:].replace('_', '-')}"


@dataclass(frozen=True)
class Argument:
    name: str
    value: Any
    why: str


# The argument that names the model.
_WEIGHTS: Mapping[EngineName, str] = {"vllm": "model", "sglang": "model_path"}
# Flags that only a server uses.
_SERVER = {
    *("host", "port", "served_model_name", "tool_call_parser", "reasoning_parser", "reasoning_parser_plugin"),
    *("enable_auto_tool_choice", "headless", "api_server_count", "enable_metrics"),
}
_SHORT = {"cc": "compilation_config"}
# Text, whatever it looks like.
_TEXT = {"revision", "tokenizer_revision", "code_revision"}
# `vllm serve` reads "auto" as this number; its class takes only the number (vLLM 0.32.0).
_WORDS: Mapping[tuple[str, str], int] = {("max_model_len", "auto"): -1}


def arguments(engine: EngineName, target: str, flags: Iterable[Flag]) -> tuple[Argument, ...]:
    """Return the arguments of the engine's class; `-cc.mode 2 -cc.backend eager` becomes one table."""
    weights = _WEIGHTS[engine]
    found = {weights: Argument(weights, target, "the model")}
    for flag in flags:
        name, value = _keyword(flag)
        first, *inner = name.split(".")
        if first not in _SERVER:
            before = found[first].value if first in found else {}
            found[first] = Argument(first, _merged(before, inner, value), flag.why)
    return tuple(found.values())


def table(found: Iterable[Argument]) -> dict[str, Any]:
    return {each.name: each.value for each in found}


def why(found: Iterable[Argument]) -> Iterator[tuple[str, str]]:
    return ((f"{each.name}={each.value!r}", each.why) for each in found)


def _keyword(flag: Flag) -> tuple[str, Any]:
    name = flag.names[0].lstrip("-").replace("-", "_")
    first, dot, rest = name.partition(".")
    name = f"{_SHORT.get(first, first)}{dot}{rest}"
    if flag.value is None:
        return (name.removeprefix("no_"), False) if name.startswith("no_") else (name, True)
    if name in _TEXT:
        return name, flag.value
    try:
        # JSON where it parses; else text.
        return name, _WORDS.get((name, flag.value)) or json.loads(flag.value)
    except ValueError:
        return name, flag.value


def _merged(before: Any, names: list[str], value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    if not names:
        return value
    kept = dict(before) if isinstance(before, dict) else {}
    return kept | {names[0]: _merged(kept.get(names[0]), names[1:], value)}
