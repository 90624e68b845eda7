"""The base of tables that come from a file, and what is wrong with a table that does not fit."""

import re
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, dataclass_transform, get_args, get_origin

import msgspec

KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a place in nested tables and lists."""
_TYPE_PATTERN = re.compile(r"`(\w+)`")
_TYPE_WORDS = {
    "int": "a whole number",
    "float": "a number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}
"""Plain words for the types in msgspec's messages."""


class WrongKey(ValueError):  # noqa: N818 - the caller makes a Problem of it
    """A reason of `__post_init__` that concerns one key of the table."""

    def __init__(self, key: str, why: str) -> None:
        super().__init__(why)
        self.key = key


class _TableMeta(msgspec.StructMeta):
    """Gives each table keyword-only fields, so that a required one may follow an optional one."""

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **options: Any,  # noqa: ANN401 - msgspec's own
    ) -> "_TableMeta":
        return super().__new__(cls, name, bases, namespace, kw_only=True, **options)


@dataclass_transform(frozen_default=True, field_specifiers=(msgspec.field,))
class Value(msgspec.Struct, frozen=True, forbid_unknown_fields=True, dict=True):
    """A value that never changes, and that has a form in JSON; `dict` is for cached properties.

    Only `from_table` and `from_json` check types and refuse unknown keys; a call of the class does not.
    """

    @classmethod
    def from_table(cls, table: object) -> Self:
        """Return the value of a table of TOML or JSON; raise msgspec.ValidationError, a ValueError."""
        return msgspec.convert(table, cls, str_keys=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Return the value of a JSON text; raise msgspec.ValidationError, a ValueError."""
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """Return compact JSON, with the keys in the order of the fields."""
        return msgspec.json.encode(self).decode()

    def to_table(self, *, omit_defaults: bool = False) -> dict[str, Any]:
        """Return the table in types of JSON, on request without what equals its default at any depth."""
        table: dict[str, Any] = _drop_defaults(self) if omit_defaults else msgspec.to_builtins(self)
        return table

    def replace(self, **changes: Any) -> Self:  # noqa: ANN401 - the fields' own types
        """Return the table with other values in these fields."""
        return msgspec.structs.replace(self, **changes)


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(msgspec.field,))
class FileTable(Value, metaclass=_TableMeta):
    """A table of a file that a person writes: its fields are keyword-only, in any order."""


def _drop_defaults(value: object) -> Any:  # noqa: ANN401 - any JSON
    """Return a value in types of JSON, where tables have only what differs from its default."""
    if isinstance(value, Value):
        return {
            field.encode_name: _drop_defaults(getattr(value, field.name))
            for field in msgspec.structs.fields(value)
            if getattr(value, field.name) != get_default(field)
        }
    if isinstance(value, Mapping):
        return {key: _drop_defaults(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_drop_defaults(inner) for inner in value]
    return value


def get_default(field: msgspec.structs.FieldInfo) -> Any:  # noqa: ANN401 - the field's own type
    """Return a field's default; msgspec.NODEFAULT for a required one."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return field.default


class Mistake(msgspec.Struct, frozen=True):
    """A key of a table that is wrong."""

    path: KeyPath
    kind: Literal["unknown", "missing", "wrong"]
    why: str = ""
    known: tuple[str, ...] = ()
    """The keys of the table with an unknown one."""
    fix: str | None = None
    """The fix that the field's own type names: `Meta(extra={"fix": …})`."""


def list_mistakes(value: object, value_type: Any, path: KeyPath = ()) -> Iterator[Mistake]:  # noqa: ANN401 - any type
    """Yield all that is wrong with a value that shall have a type.

    msgspec stops at the first mistake, and names no key of a table of tables (`$[...]`, msgspec 0.20).
    """
    annotated_type, fix = value_type, find_fix(value_type)
    while get_origin(value_type) is Annotated:
        value_type = get_args(value_type)[0]
    value_type = _choose_member(value, value_type)
    mistakes: list[Mistake] = []
    if is_table_type(value_type) and isinstance(value, Mapping):
        mistakes = list(_list_table_mistakes(value, value_type, path))
    elif get_origin(value_type) is Mapping and isinstance(value, Mapping):
        key_type, inner_type = get_args(value_type)
        for key, inner in value.items():
            mistakes += _list_value_mistakes(key, key_type, (*path, key), None)
            mistakes += list_mistakes(inner, inner_type, (*path, key))
    elif (
        get_origin(value_type) is tuple
        and get_args(value_type)[1:] == (...,)
        and isinstance(value, list | tuple)
    ):
        for number, inner in enumerate(value):
            mistakes += list_mistakes(inner, get_args(value_type)[0], (*path, number))
    # Only a value whose parts are right can show what is wrong with it as a whole.
    yield from mistakes or _list_value_mistakes(value, annotated_type, path, fix)


def _list_table_mistakes(
    value: Mapping[str, object], value_type: type[Value], path: KeyPath
) -> Iterator[Mistake]:
    fields = {field.encode_name: field for field in msgspec.structs.fields(value_type)}
    for key in value:
        if key not in fields:
            yield Mistake((*path, key), "unknown", known=tuple(fields))
    for name, field in fields.items():
        if name in value:
            yield from list_mistakes(value[name], field.type, (*path, name))
        elif field.required:
            yield Mistake((*path, name), "missing", fix=find_fix(field.type))


def _list_value_mistakes(value: object, value_type: Any, path: KeyPath, fix: str | None) -> Iterator[Mistake]:  # noqa: ANN401
    """Yield what msgspec finds wrong with a value whose parts are right."""
    try:
        msgspec.convert(value, value_type, str_keys=True)
    except ValueError as error:  # a ValidationError, or a UnicodeEncodeError of half a surrogate
        reason, words = error.__cause__, _list_words(value_type)
        if isinstance(reason, WrongKey):
            path = (*path, reason.key)
        why = str(reason or error).partition(" - at `")[0]
        if not reason:
            why = _TYPE_PATTERN.sub(lambda match: _TYPE_WORDS.get(match[1], match[1]), why)
            why = why.replace(" matching regex", " of the form").replace("Expected", "expected", 1)
            why = why.replace(r"\\", "\\")  # msgspec quotes a pattern as Python does
        if words and isinstance(value, str):
            why = f"{value} is none of {', '.join(words)}"
        yield Mistake(path, "wrong", why, fix=fix)


def _list_words(value_type: Any) -> tuple[str, ...]:  # noqa: ANN401 - any type
    """Return the words of a Literal, also of one that may be absent."""
    if get_origin(value_type) is Literal:
        return tuple(map(str, get_args(value_type)))
    members = [member for member in get_args(value_type) if member is not NoneType]
    return _list_words(members[0]) if len(members) == 1 and _is_union(value_type) else ()


def _choose_member(value: object, value_type: Any) -> Any:  # noqa: ANN401 - any type
    """Return the type X in a union of X and None, for a value; any other type as it is."""
    if not _is_union(value_type):
        return value_type
    members = [member for member in get_args(value_type) if member is not NoneType]
    return members[0] if len(members) == 1 and value is not None else value_type


def _is_union(value_type: Any) -> bool:  # noqa: ANN401 - any type
    return get_origin(value_type) in {Union, UnionType}


def is_table_type(value_type: Any) -> bool:  # noqa: ANN401 - any type
    return isinstance(value_type, type) and issubclass(value_type, Value)


def find_fix(value_type: Any) -> str | None:  # noqa: ANN401 - any type
    """Return the fix that an annotated type names."""
    if get_origin(value_type) is not Annotated:
        return None
    for annotation in get_args(value_type)[1:]:
        if isinstance(annotation, msgspec.Meta) and annotation.extra:
            return str(annotation.extra["fix"])
    return None
