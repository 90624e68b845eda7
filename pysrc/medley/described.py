"""What a server runs, told to whoever measures it: engine, model, layout, and the command that started it."""

import dataclasses
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medley import serving, store
from medley.layout.shapes import Layout
from medley.tables import Engine

if TYPE_CHECKING:
    from pydantic import TypeAdapter

    from medley.launch import Launch
    from medley.recipe import Order

_HIDDEN = "API-KEY"


@dataclass(frozen=True)
class Description:
    engine: Engine
    model: str
    """What `medley serve` was given."""
    target: str
    """Where its weights are."""
    argv: tuple[str, ...]
    env: dict[str, str]
    plan: dict[str, Any]
    layout: Layout | None = None

    @property
    def programs(self) -> Path:
        """The folder of the engine environment's programs; out of an image it is that of docker or podman."""
        return Path(self.argv[0]).parent


def description(order: "Order", launch: "Launch", layout: Layout | None) -> Description:
    command = launch.command
    return Description(
        order.wanted.engine,
        order.weights.name,
        order.serving.target,
        tuple(_without_keys(command.argv)),
        dict(command.env),
        json.loads(json.dumps(dataclasses.asdict(launch.plan))),
        layout,
    )


@contextmanager
def kept(port: int, found: Description | None) -> Iterator[None]:
    """It stands beside the note of its server while that runs."""
    if found is None:
        yield
        return
    store.write(_file(port), json.dumps(dataclasses.asdict(found)))
    try:
        yield
    finally:
        _file(port).unlink(missing_ok=True)


def of(port: int) -> Description | None:
    """What is served at this port; None where another medley wrote it, or nothing is."""
    from pydantic import ValidationError  # noqa: PLC0415 - as below

    table = store.table(_file(port))
    try:
        return None if table is None else _shape().validate_python(table)
    except ValidationError:
        return None


@cache
def _shape() -> "TypeAdapter[Description]":
    from pydantic import TypeAdapter  # noqa: PLC0415 - a tenth of a second, which only a reader needs

    return TypeAdapter(Description)


def _without_keys(argv: tuple[str, ...]) -> Iterator[str]:
    """A user's own --api-key among them was a secret to nobody here, and need not go on from here."""
    before = ""
    for word in argv:
        name, equals, _ = word.partition("=")
        if before in {"--api-key", "--admin-api-key"}:
            yield _HIDDEN
        elif name in {"--api-key", "--admin-api-key"} and equals:
            yield f"{name}={_HIDDEN}"
        else:
            yield word
        before = word


def _file(port: int) -> Path:
    return serving.folder() / f"{port}.what"
