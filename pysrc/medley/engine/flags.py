"""Check flags against those the installed engine knows; turn them into Python arguments."""

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

# "  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE"; an explanation is set in deeper
_LINE = re.compile(r"^  (-.*)$")
_NAME = re.compile(r"(?:^|, )(--?[A-Za-z][\w-]*)")
_NUMBER = re.compile(r"^-[\d.]")
_OPTIMIZATION = re.compile(r"^-O(?:=?\w+)?$")
# Names that guides still give, and what became of them.
_GONE = {
    "--swap-space": "vLLM keeps no swap space any more: leave it out",
    "--num-scheduler-steps": "vLLM schedules each step by itself now: leave it out",
    "--use-v2-block-manager": "there is one block manager now: leave it out",
}
_LIMIT_S = 180
# Fewer are no engine's: then its help has another form, and nothing can be said by it.
_LEAST = 50


def require_known(
    engine: Engine, binary: Path, words: Sequence[str], *, ask: bool = True, watch: Progress = SILENT
) -> None:
    """A Problem with the nearest real one for each flag that the engine in this folder does not know.

    The engine takes some ten seconds to say; unless it is to be asked, only what is kept counts.
    """
    if not any(word.startswith("-") for word in words):
        return
    # Another version, by what is installed beside it, knows other flags.
    packages = binary.parent.glob(f"lib/python*/site-packages/{engine.PROGRAM}*.dist-info")
    identity = "\n".join((str(binary), *sorted(path.name for path in packages)))
    digest = storage.hash_bytes(identity.encode())[:16]
    kept = storage.cache() / "flags" / f"{engine.PROGRAM}-{digest}.txt"
    if ask and not kept.exists():
        with watch.stage(f"ask {engine.TITLE} which flags it knows"):
            # Wide, so that no line of names is broken.
            argv = (str(binary / engine.PROGRAM), *engine.HELP)
            lines: list[str] = []  # all of them: what is finished has kept only the last ones
            finished = process.run(
                Command(argv, {"COLUMNS": "4000"}, UNSET), limit_s=_LIMIT_S, on_line=lines.append
            )
            storage.write(kept, "\n".join(known("\n".join(lines)) if finished.status == 0 else ()))
    names = kept.read_text(encoding="utf-8").split() if kept.exists() else []
    wrong = list(unknown(words, names)) if len(names) >= _LEAST else []
    if wrong:
        raise Problem(
            f"{engine.TITLE} does not know {', '.join(word for word, _ in wrong)}",
            cause=f"of {len(names)} names in {binary / engine.PROGRAM} {' '.join(engine.HELP)} it is none",
            fix="\n".join(f"{word}: {advice}" for word, advice in wrong),
        )


def known(text: str) -> tuple[str, ...]:
    """All names of flags in the whole help of a program that argparse printed."""
    lines = (match[1] for line in text.splitlines() if (match := _LINE.match(line)))
    return tuple(dict.fromkeys(name for line in lines for name in _NAME.findall(line)))


def unknown(words: Iterable[str], names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """What an engine would refuse, and what to write instead.

    As argparse, it takes the beginning of a name if no other begins so.
    """
    for word in words:
        if not word.startswith("-") or _NUMBER.match(word) or _OPTIMIZATION.match(word):
            continue
        name = _name(word)
        beginning = [each for each in names if each.startswith(name)] if name.startswith("--") else []
        if name in names or len(beginning) == 1:
            continue
        if beginning:
            yield word, f"write it out: {' or '.join(beginning[:4])}"
        elif name in _GONE:
            yield word, _GONE[name]
        else:
            near = difflib.get_close_matches(name, names, n=1)
            yield word, f"{near[0]} is the nearest there is" if near else "leave it out"


def _name(word: str) -> str:
    """Without a value and a key, and with dashes: --Compilation_config.mode=2 is --Compilation-config."""
    name = re.split(r"[=.]", word, maxsplit=1)[0].rstrip("+")
    return name if not name.startswith("--") else f"--{name[2:].replace('_', '-')}"


@dataclass(frozen=True)
class Argument:
    name: str
    value: Any
    """Of JSON's types."""
    why: str


# The argument that names the model.
_WEIGHTS: Mapping[EngineName, str] = {"vllm": "model", "sglang": "model_path"}
# Flags that only a server has a use for.
_SERVER = {
    *("host", "port", "served_model_name", "tool_call_parser", "reasoning_parser", "reasoning_parser_plugin"),
    *("enable_auto_tool_choice", "headless", "api_server_count", "enable_metrics"),
}
_SHORT = {"cc": "compilation_config"}
# Text, whatever it looks like.
_TEXT = {"revision", "tokenizer_revision", "code_revision"}
# `vllm serve` reads "auto" as this number, its class takes the number alone (vLLM 0.32.0).
_WORDS: Mapping[tuple[str, str], int] = {("max_model_len", "auto"): -1}


def arguments(engine: EngineName, target: str, flags: Iterable[Flag]) -> tuple[Argument, ...]:
    """Of the class for these weights; parts of one flag (`-cc.mode 2 -cc.backend eager`) become one table."""
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
    """Each as Python writes it, and its reason."""
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
        # A number, a list or a table where it reads as one; else text.
        return name, _WORDS.get((name, flag.value)) or json.loads(flag.value)
    except ValueError:
        return name, flag.value


def _merged(before: Any, names: list[str], value: Any) -> Any:  # noqa: ANN401 - whatever JSON has
    if not names:
        return value
    kept = dict(before) if isinstance(before, dict) else {}
    return kept | {names[0]: _merged(kept.get(names[0]), names[1:], value)}
