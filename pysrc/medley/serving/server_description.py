"""Store the model, command and plan of a server next to its record."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from medley import storage
from medley.engine.launch import Launch, LaunchOrder
from medley.planner import Layout
from medley.schema import EngineName
from medley.serving.server_records import get_records_folder
from medley.unusable_file import skip_unusable_file
from medley.values import Value

_API_KEY_FLAGS, _KEY_PLACEHOLDER = {"--api-key", "--admin-api-key"}, "API-KEY"


class Description(Value):
    """The model, command and plan of a server; stored next to its record."""

    engine: EngineName
    model: str
    """The model's name on the command line."""
    target: str
    """The folder or repository of its weights."""
    argv: tuple[str, ...]
    env: dict[str, str]
    plan: dict[str, Any]
    layout: Layout | None = None

    @property
    def programs_folder(self) -> Path:
        """The folder of the command's program, in an engine environment, or of docker or podman."""
        return Path(self.argv[0]).parent


def build_description(order: LaunchOrder, launch: Launch, layout: Layout | None) -> Description:
    command = launch.command
    return Description(
        order.placement.engine,
        order.weights.name,
        order.serving.target,
        tuple(_replace_keys(command.argv)),
        dict(command.env),
        json.loads(json.dumps(launch.plan.to_table())),
        layout,
    )


@contextmanager
def store_description(port: int, description: Description) -> Iterator[None]:
    """Store the description next to its server's record while that runs."""
    file = get_records_folder() / f"{port}.what"
    with skip_unusable_file():
        storage.write_text(file, json.dumps(description.to_table()))
    try:
        yield
    finally:
        with skip_unusable_file():
            storage.remove_file(file)


def read_description(port: int) -> Description | None:
    """Return the description of this port's server; None without one of this version."""
    try:
        description = msgspec.convert(storage.read_table(get_records_folder() / f"{port}.what"), Description)
    except msgspec.ValidationError:
        return None
    return description if description.argv else None


def _replace_keys(argv: tuple[str, ...]) -> Iterator[str]:
    """Yield the words of a command without the values of the user's own --api-key."""
    previous_word = ""
    for word in argv:
        name, equals, _ = word.partition("=")
        if previous_word in _API_KEY_FLAGS:
            yield _KEY_PLACEHOLDER
        elif name in _API_KEY_FLAGS and equals:
            yield f"{name}={_KEY_PLACEHOLDER}"
        else:
            yield word
        previous_word = word
