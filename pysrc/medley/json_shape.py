"""Check that a JSON value has the shape of a Python type."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from types import UnionType
from typing import Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints, is_typeddict

_MAX_NUMBER = 1 << 63
_HALF_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a surrogate pair, which JSON can write, but UTF-8 cannot."""


def loads(text: str | bytes) -> Any:  # noqa: ANN401 - whatever somebody sent
    """Parse JSON, or return None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def table(text: str | bytes) -> dict[str, Any] | None:
    """Parse a JSON object; None for anything else."""
    value = loads(text)
    return value if isinstance(value, dict) else None


def last_table(lines: Sequence[str]) -> dict[str, Any] | None:
    """Parse the last line that begins like a JSON object, because programs print other lines too."""
    return table(next((line for line in reversed(lines) if line.startswith("{")), ""))


def fits(value: Any, hint: Any) -> bool:  # noqa: ANN401 - a type as it is written
    """Whether a value has this type; a TypedDict may have further keys, of a later medley."""
    if hint is Any or hint is object:
        return True
    if is_typeddict(hint) or is_dataclass(hint):
        has_shape = _keys_fit if is_typeddict(hint) else _fields_fit
        return isinstance(value, dict) and has_shape(value, hint)
    if get_args(hint):
        return _fits_generic(value, get_origin(hint), get_args(hint))
    if isinstance(value, str):
        return hint is str and not _HALF_SURROGATE.search(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return isinstance(value, hint)
    # Excludes huge numbers, infinity and NaN.
    return isinstance(value, int | float if hint is float else hint) and abs(value) < _MAX_NUMBER


def _fits_generic(value: object, origin: Any, args: tuple[Any, ...]) -> bool:  # noqa: ANN401 - parts of a type
    if origin is Literal:
        return value in args
    if origin in {Union, UnionType, NotRequired}:
        return any(fits(value, arg) for arg in args)
    if origin is tuple:
        if not isinstance(value, list | tuple):  # JSON has only lists
            return False
        hints = args[:1] * len(value) if args[-1:] == (...,) else args
        return len(value) == len(hints) and all(map(fits, value, hints))
    if origin in {list, Sequence}:
        return isinstance(value, list) and all(fits(element, args[0]) for element in value)
    if origin not in {dict, Mapping}:
        raise AssertionError(origin)
    return isinstance(value, dict) and all(
        fits(key, args[0]) and fits(element, args[1]) for key, element in value.items()
    )


def _fields_fit(value: Mapping[str, object], hint: Any) -> bool:  # noqa: ANN401 - a dataclass
    """Whether a dataclass can be made of it: no unknown field, and no required one missing."""
    hints = get_type_hints(hint)
    needed = {
        field.name for field in fields(hint) if field.default is MISSING and field.default_factory is MISSING
    }
    known = {field.name for field in fields(hint)}
    return needed <= set(value) <= known and all(
        fits(element, hints[name]) for name, element in value.items()
    )


def _keys_fit(value: Mapping[str, object], hint: Any) -> bool:  # noqa: ANN401 - a TypedDict
    hints = get_type_hints(hint, include_extras=True)
    return all(
        fits(value[name], key_hint) if name in value else name in hint.__optional_keys__
        for name, key_hint in hints.items()
    )
