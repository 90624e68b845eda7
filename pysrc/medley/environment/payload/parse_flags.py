"""Describe an engine's parser, and print its errors; run by an engine environment's Python or an image's.

python parse_flags.py vllm [FILE]    # FILE: a JSON list of lists of words

Prints one JSON object: `version`; `flags`, each with its names, values and keys; `variables`, the names that
the release reads; and `errors`, the error or null of each command in FILE.
"""

import argparse
import dataclasses
import enum
import importlib.metadata
import importlib.util
import json
import mmap
import re
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NoReturn, get_args, get_origin, get_type_hints

_DEEPEST = 2
"""Levels of keys inside a JSON value: --compilation-config.pass_config.fuse_norm_quant has two."""
Rule = dict[str, Any]


def vllm() -> argparse.ArgumentParser:
    import vllm.platforms

    if vllm.platforms.current_platform.is_unspecified():
        # A build for GPUs on a host with neither GPU nor driver: the parser needs only the device's name.
        vllm.platforms.current_platform.device_type = "cuda"
    try:
        from vllm.entrypoints.common.cli_args import make_arg_parser  # from 0.33 on
    except ImportError:
        try:
            from vllm.entrypoints.launchers.cli_args import make_arg_parser
        except ImportError:  # up to 0.31
            from vllm.entrypoints.openai.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser: argparse.ArgumentParser = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    return parser


def sglang() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def refusal(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    errors: list[str] = []

    def error(message: str) -> NoReturn:
        errors.append(message)
        raise SystemExit(2)

    parser.error = error  # type: ignore[method-assign] # else it prints its whole usage and the error is lost
    try:
        parser.parse_args(words)
    except SystemExit:
        return errors[0] if errors else "it ended"
    return None


def load_plugins(engine: str) -> None:
    """Let a virtualenv's plugins register their values, as the engine does at its start."""
    if engine == "vllm":
        with suppress(Exception):  # a plugin's own error is the engine's to report
            from vllm.plugins import load_general_plugins

            load_general_plugins()


def flags(engine: str, parser: argparse.ArgumentParser) -> Iterator[Rule]:
    """Yield each flag with what it takes; the parser of vLLM leaves many values to the engine."""
    registered = dict({"vllm": _of_vllm, "sglang": _of_sglang}[engine]())
    tables = _tables() if engine == "vllm" else {}
    # Not option_strings, from which vLLM 0.33 takes names that its help shall not show: --no-…
    names: dict[int, list[str]] = {}
    for name, action in parser._option_string_actions.items():  # noqa: SLF001 - argparse has no public list
        names.setdefault(id(action), []).append(name)
    for action in dict.fromkeys(parser._option_string_actions.values()):  # noqa: SLF001 - the same
        every = names[id(action)]
        rule: Rule = {"names": every, "takes": 1 if action.nargs is None else action.nargs}
        if isinstance(action, argparse.BooleanOptionalAction):
            rule["takes"] = 0
        if action.choices:
            rule["values"] = sorted(str(each) for each in action.choices)
        found = next((registered[name] for name in every if name in registered), {})
        yield rule | found | _keys(tables.get(action.dest), 0)


def _of_sglang() -> Iterator[tuple[str, Rule]]:
    """Yield the values that SGLang looks up after its parser, by flag."""
    with suppress(ImportError, AttributeError):  # of another release; its parser's own values are left
        from sglang.srt.speculative import spec_info

        aliases = getattr(spec_info, "_RESERVED_ALIASES", ())
        names = {*spec_info.SpeculativeAlgorithm.__members__, *aliases}
        yield "--speculative-algorithm", {"values": sorted(names), "any_case": True}


def _of_vllm() -> Iterator[tuple[str, Rule]]:
    """Yield the values that vLLM looks up after its parser, by flag; older releases have other registries."""
    with suppress(ImportError):
        from vllm.model_executor.layers.quantization import QUANTIZATION_METHODS

        yield "--quantization", {"values": sorted(QUANTIZATION_METHODS)}
    with suppress(ImportError):
        from vllm.model_executor.model_loader import _LOAD_FORMAT_TO_MODEL_LOADER

        yield "--load-format", {"values": sorted(_LOAD_FORMAT_TO_MODEL_LOADER), "any_case": True}
    with suppress(ImportError, AttributeError):
        from vllm.tool_parsers import ToolParserManager

        yield "--tool-call-parser", {"values": sorted(ToolParserManager.list_registered())}
    with suppress(ImportError, AttributeError):
        from vllm.reasoning import ReasoningParserManager

        reasoning = {*ReasoningParserManager.list_registered(), "none"}
        yield "--reasoning-parser", {"values": sorted(reasoning)}
    with suppress(ImportError):  # up to 0.32 the parser has them itself
        from vllm.config.cache import KV_CACHE_DTYPES

        yield "--kv-cache-dtype", {"values": sorted(KV_CACHE_DTYPES)}
    # It reads these in any case, with - for _ (vllm/config/kernel.py).
    for name in ("--moe-backend", "--linear-backend", "--sparse-indexer-topk-backend"):
        yield name, {"any_case": True}


def _tables() -> dict[str, Any]:
    """Return the type of each field that a flag of vLLM fills."""
    try:
        from vllm.config import SpeculativeConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
    except ImportError:  # of another release: no keys are known
        return {}
    return {**_hints(AsyncEngineArgs), "speculative_config": SpeculativeConfig}


def _hints(table: type) -> dict[str, Any]:
    """Return the type of each field; one that is imported for type checkers only stays text."""
    try:
        return get_type_hints(table, include_extras=True)
    except NameError:
        return {each.name: each.type for each in dataclasses.fields(table)}


def _keys(hint: Any, depth: int) -> Rule:  # noqa: ANN401 - whatever a type hint is
    """Return the keys of a configuration class, or the values of an enumeration, that a type hint names."""
    for part in _parts(hint):
        if isinstance(part, type) and dataclasses.is_dataclass(part):
            if depth == _DEEPEST:
                return {}
            hints = _hints(part)
            names = [each.name for each in dataclasses.fields(part) if each.init]
            return {"keys": {name: _key(hints.get(name), depth + 1) for name in names}}
        if isinstance(part, type) and issubclass(part, enum.Enum):
            numbers = {str(each.value) for each in part if isinstance(each.value, int)}
            return {"values": sorted({*part.__members__, *numbers, "auto"}), "any_case": True}
    return {}


def _key(hint: Any, depth: int) -> Rule:  # noqa: ANN401
    parts = [part for part in _parts(hint) if part is not type(None)]
    if parts and all(get_origin(part) is Literal for part in parts):
        return {"values": sorted({str(value) for part in parts for value in get_args(part)})}
    return _keys(hint, depth)


def _parts(hint: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the members of a union; those of Annotated stand inside it."""
    origin = get_origin(hint)
    if hasattr(hint, "__metadata__"):
        yield from _parts(get_args(hint)[0])
    elif (
        origin is not None
        and origin is not Literal
        and str(origin) in {"typing.Union", "<class 'types.UnionType'>"}
    ):
        for each in get_args(hint):
            yield from _parts(each)
    else:
        yield hint


def variables(engine: str) -> list[str]:
    """Return the engine's own variables that stand in its source or its libraries, read by name."""
    spec = importlib.util.find_spec(engine)
    folder = (
        Path(next(iter(spec.submodule_search_locations)))
        if spec and spec.submodule_search_locations
        else None
    )
    # vLLM reads each by a string; SGLang declares most as names of a class (srt/environ.py).
    text = re.compile(
        rb"[\"'](VLLM_[A-Z0-9_]+)[\"']" if engine == "vllm" else rb"\b(SGL(?:ANG)?_[A-Z0-9_]+)\b"
    )
    library = re.compile(
        rb"\b(VLLM_[A-Z0-9_]{3,})\x00" if engine == "vllm" else rb"\b(SGL(?:ANG)?_[A-Z0-9_]{3,})\x00"
    )
    found: set[bytes] = set()
    for path in folder.rglob("*") if folder else ():
        if path.suffix == ".py":
            found.update(text.findall(path.read_bytes()))
        elif path.suffix == ".so" and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                found.update(library.findall(data))
    return sorted(name.decode() for name in found)


def version(engine: str) -> str:
    """Return the installed release; another build of vLLM for CPUs is a distribution of its own."""
    for name in (engine, f"{engine}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


if __name__ == "__main__":
    chosen = sys.argv[1]
    made = {"vllm": vllm, "sglang": sglang}[chosen]()
    load_plugins(chosen)
    commands = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else []  # noqa: PLR2004 - its FILE
    answer = {
        "version": version(chosen),
        "flags": list(flags(chosen, made)),
        "variables": variables(chosen),
        "errors": [refusal(made, words) for words in commands],
    }
    print(json.dumps(answer))
