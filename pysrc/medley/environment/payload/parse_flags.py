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

_MAX_KEY_LEVELS = 2
"""The most levels of keys in a JSON value: --compilation-config.pass_config.fuse_norm_quant has two."""
FlagRule = dict[str, Any]


def build_vllm_parser() -> argparse.ArgumentParser:
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


def build_sglang_parser() -> argparse.ArgumentParser:
    from sglang.srt.server_args import ServerArgs

    parser = argparse.ArgumentParser(prog="sglang serve")
    ServerArgs.add_cli_args(parser)
    return parser


def find_error(parser: argparse.ArgumentParser, words: list[str]) -> str | None:
    errors: list[str] = []

    def error(message: str) -> NoReturn:
        errors.append(message)
        raise SystemExit(2)

    parser.error = error  # type: ignore[method-assign] # otherwise it prints its whole usage, and the error is lost
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


def list_flags(engine: str, parser: argparse.ArgumentParser) -> Iterator[FlagRule]:
    """Yield a rule per flag: names, value count, values and keys; vLLM's parser leaves many values open."""
    values_by_flag = dict({"vllm": _list_vllm_values, "sglang": _list_sglang_values}[engine]())
    field_types = _read_field_types() if engine == "vllm" else {}
    # Not option_strings: vLLM 0.33 removes names there that its help does not show, such as --no-…
    names: dict[int, list[str]] = {}
    for name, action in parser._option_string_actions.items():  # noqa: SLF001 - argparse has no public list
        names.setdefault(id(action), []).append(name)
    for action in dict.fromkeys(parser._option_string_actions.values()):  # noqa: SLF001 - argparse has no public list
        flag_names = names[id(action)]
        rule: FlagRule = {"names": flag_names, "takes": 1 if action.nargs is None else action.nargs}
        if isinstance(action, argparse.BooleanOptionalAction):
            rule["takes"] = 0
        if action.choices:
            rule["values"] = sorted(str(choice) for choice in action.choices)
        values = next((values_by_flag[name] for name in flag_names if name in values_by_flag), {})
        yield rule | values | _describe_type(field_types.get(action.dest), 0)


def _list_sglang_values() -> Iterator[tuple[str, FlagRule]]:
    """Yield the values that SGLang looks up after its parser, by flag."""
    with suppress(ImportError, AttributeError):  # another release: only its parser's own values are known
        from sglang.srt.speculative import spec_info

        aliases = getattr(spec_info, "_RESERVED_ALIASES", ())
        names = {*spec_info.SpeculativeAlgorithm.__members__, *aliases}
        yield "--speculative-algorithm", {"values": sorted(names), "any_case": True}


def _list_vllm_values() -> Iterator[tuple[str, FlagRule]]:
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


def _read_field_types() -> dict[str, Any]:
    """Return the type of each field that a flag of vLLM sets, by name."""
    try:
        from vllm.config import SpeculativeConfig
        from vllm.engine.arg_utils import AsyncEngineArgs
    except ImportError:  # another release: no keys are known
        return {}
    return {**_read_hints(AsyncEngineArgs), "speculative_config": SpeculativeConfig}


def _read_hints(table: type) -> dict[str, Any]:
    """Return the type of each field; as text if a name is imported only for type checkers."""
    try:
        return get_type_hints(table, include_extras=True)
    except NameError:
        return {field.name: field.type for field in dataclasses.fields(table)}


def _describe_type(hint: Any, depth: int) -> FlagRule:  # noqa: ANN401 - whatever a type hint is
    """Return the keys of a configuration class, or the values of an enumeration, that a type hint names."""
    for option in _list_members(hint):
        if isinstance(option, type) and dataclasses.is_dataclass(option):
            if depth == _MAX_KEY_LEVELS:
                return {}
            hints = _read_hints(option)
            names = [field.name for field in dataclasses.fields(option) if field.init]
            return {"keys": {name: _describe_key(hints.get(name), depth + 1) for name in names}}
        if isinstance(option, type) and issubclass(option, enum.Enum):
            numbers = {str(member.value) for member in option if isinstance(member.value, int)}
            return {"values": sorted({*option.__members__, *numbers, "auto"}), "any_case": True}
    return {}


def _describe_key(hint: Any, depth: int) -> FlagRule:  # noqa: ANN401
    options = [option for option in _list_members(hint) if option is not type(None)]
    if options and all(get_origin(option) is Literal for option in options):
        return {"values": sorted({str(value) for option in options for value in get_args(option)})}
    return _describe_type(hint, depth)


def _list_members(hint: Any) -> Iterator[Any]:  # noqa: ANN401
    """Yield the members of a union, also of a union inside Annotated."""
    origin = get_origin(hint)
    if hasattr(hint, "__metadata__"):
        yield from _list_members(get_args(hint)[0])
    elif (
        origin is not None
        and origin is not Literal
        and str(origin) in {"typing.Union", "<class 'types.UnionType'>"}
    ):
        for member in get_args(hint):
            yield from _list_members(member)
    else:
        yield hint


def find_variables(engine: str) -> list[str]:
    """Return the names of the engine's own variables in its source files and libraries."""
    spec = importlib.util.find_spec(engine)
    folder = (
        Path(next(iter(spec.submodule_search_locations)))
        if spec and spec.submodule_search_locations
        else None
    )
    # vLLM reads each by a string; SGLang declares most as names of a class (srt/environ.py).
    source_name = re.compile(
        rb"[\"'](VLLM_[A-Z0-9_]+)[\"']" if engine == "vllm" else rb"\b(SGL(?:ANG)?_[A-Z0-9_]+)\b"
    )
    library_name = re.compile(
        rb"\b(VLLM_[A-Z0-9_]{3,})\x00" if engine == "vllm" else rb"\b(SGL(?:ANG)?_[A-Z0-9_]{3,})\x00"
    )
    names: set[bytes] = set()
    for path in folder.rglob("*") if folder else ():
        if path.suffix == ".py":
            names.update(source_name.findall(path.read_bytes()))
        elif path.suffix == ".so" and path.stat().st_size:
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                names.update(library_name.findall(data))
    return sorted(name.decode() for name in names)


def read_version(engine: str) -> str:
    """Return the installed release; vLLM's build for CPUs may be a distribution of its own."""
    for name in (engine, f"{engine}-cpu"):
        try:
            return importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return ""


if __name__ == "__main__":
    engine_name = sys.argv[1]
    engine_parser = {"vllm": build_vllm_parser, "sglang": build_sglang_parser}[engine_name]()
    load_plugins(engine_name)
    commands = json.loads(Path(sys.argv[2]).read_text()) if len(sys.argv) > 2 else []  # noqa: PLR2004 - its FILE
    answer = {
        "version": read_version(engine_name),
        "flags": list(list_flags(engine_name, engine_parser)),
        "variables": find_variables(engine_name),
        "errors": [find_error(engine_parser, words) for words in commands],
    }
    print(json.dumps(answer))
