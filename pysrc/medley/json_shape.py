"""Check that a JSON value has the shape of a Python type."""

import json
import re
from collections.abc import Mapping, Sequence
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

import msgspec

from medley.values import is_table_type

_MAX_NUMBER = 1 << 63
_HALF_SURROGATE_PATTERN = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write, but UTF-8 cannot."""


def parse_json(text: str | bytes) -> Any:  # noqa: ANN401 - whatever somebody sent
    """Parse JSON, or return None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def parse_object(text: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else."""
    value = parse_json(text)
    return value if isinstance(value, dict) else None


def parse_last_object(lines: Sequence[str]) -> dict[str, Any] | None:
    """Parse the last line that begins like a JSON object, because programs print other lines too."""
    return parse_object(next((line for line in reversed(lines) if line.startswith("{")), ""))


def has_type(value: Any, hint: Any) -> bool:  # noqa: ANN401 - a type as it is written
    """Return whether a value has this type; a TypedDict may have more keys, from a later medley."""
    if hint is Any or hint is object:
        return True
    if is_typeddict(hint) or is_table_type(hint):
        has_shape = _has_typed_keys if is_typeddict(hint) else _has_typed_fields
        return isinstance(value, dict) and has_shape(value, hint)
    if get_args(hint):
        return _has_generic_type(value, get_origin(hint), get_args(hint))
    if isinstance(value, str):
        return hint is str and not _HALF_SURROGATE_PATTERN.search(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, hint)
    # Excludes huge numbers, infinity and NaN.
    return isinstance(value, int | float if hint is float else hint) and abs(value) < _MAX_NUMBER


def _has_generic_type(value: object, origin: Any, args: tuple[Any, ...]) -> bool:  # noqa: ANN401 - parts of a type
    if origin is Literal:
        return value in args
    if origin in {Union, UnionType, NotRequired}:
        return any(has_type(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, list | tuple):  # JSON has only lists
            return False
        hints = args[:1] * len(value) if args[-1:] == (...,) else args
        return len(value) == len(hints) and all(map(has_type, value, hints))
    if origin in {list, Sequence}:
        return isinstance(value, list) and all(has_type(element, args[0]) for element in value)
    if origin not in {dict, Mapping}:
        raise AssertionError(origin)
    return isinstance(value, dict) and all(
        has_type(key, args[0]) and has_type(element, args[1]) for key, element in value.items()
    )


def _has_typed_fields(value: Mapping[str, object], hint: Any) -> bool:  # noqa: ANN401 - a Value
    """Return whether the Value can be built from it: no unknown field, and all required ones."""
    known = {field.encode_name: field for field in msgspec.structs.fields(hint)}
    needed = {name for name, field in known.items() if field.required}
    return needed <= set(value) <= set(known) and all(
        has_type(element, known[name].type) for name, element in value.items()
    )


def _has_typed_keys(value: Mapping[str, object], hint: Any) -> bool:  # noqa: ANN401 - a TypedDict
    hints = get_type_hints(hint, include_extras=True)
    return all(
        has_type(value[name], key_hint) if name in value else name in hint.__optional_keys__
        for name, key_hint in hints.items()
    )
