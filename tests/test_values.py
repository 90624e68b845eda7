"""A table that does not fit: each mistake with its key, and nothing taken for something else."""

from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta, ValidationError

from medley.values import FileTable, WrongKey, list_mistakes


class Port(FileTable):
    number: Annotated[int, Meta(ge=1, le=65_535)]
    name: Annotated[str, Meta(pattern=r"^[a-z]+\Z")] = "api"
    side: Literal["in", "out"] = "in"

    @cached_property
    def label(self) -> str:
        return f"{self.name}:{self.number}"


class Server(FileTable):
    ports: Annotated[Mapping[str, Port], Meta(min_length=1, extra={"fix": "medley init"})]
    share: float = 1
    words: tuple[str, ...] = ()
    one: Port | None = None
    command: str | tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if "x" in self.words:
            raise WrongKey("words", "x is no word")


GOOD: Mapping[str, Any] = {"ports": {"a": {"number": 1}}}


@pytest.mark.parametrize(
    ("table", "paths"),
    [
        pytest.param({}, ["ports missing"], id="a required key"),
        pytest.param({"ports": {}}, ["ports wrong"], id="no table in it"),
        pytest.param({**GOOD, "shar": 1}, ["shar unknown"], id="an unknown key"),
        pytest.param(
            {"ports": {"a": {"number": 0}, "b": {"nam": "x"}}, "share": "1"},
            ["ports.a.number wrong", "ports.b.nam unknown", "ports.b.number missing", "share wrong"],
            id="all of several",
        ),
        pytest.param({**GOOD, "one": {"number": True}}, ["one.number wrong"], id="a boolean for a number"),
        pytest.param({**GOOD, "one": {"number": 1.0}}, ["one.number wrong"], id="a fraction for a whole"),
        pytest.param(
            {**GOOD, "one": {"number": 1, "name": "api\n"}}, ["one.name wrong"], id="a last newline"
        ),
        pytest.param({**GOOD, "words": ["a", 2]}, ["words.1 wrong"], id="an element"),
        pytest.param({**GOOD, "words": ["x"]}, ["words wrong"], id="a reason of the table's own"),
        pytest.param({**GOOD, "command": 3}, ["command wrong"], id="neither of two"),
        pytest.param({"ports": [1]}, ["ports wrong"], id="a list for a table"),
    ],
)
def test_every_mistake_has_its_key(table: Mapping[str, Any], paths: list[str]) -> None:
    with pytest.raises(ValidationError):
        Server.from_table(table)
    mistakes = list_mistakes(table, Server)
    assert [f"{'.'.join(map(str, each.path))} {each.kind}" for each in mistakes] == paths


def test_half_a_surrogate_is_a_mistake_of_its_key() -> None:
    """JSON can write it, and msgspec raises a UnicodeEncodeError for it."""
    (mistake,) = list_mistakes({**GOOD, "words": "\ud800"}, Server)
    assert mistake.path == ("words",)


def test_a_right_table_has_none() -> None:
    table = {**GOOD, "share": 1, "words": ["a"], "one": {"number": 2, "side": "out"}, "command": ["a", "b"]}
    assert not list(list_mistakes(table, Server))
    server = Server.from_table(table)
    assert (server.share, server.words, server.command) == (1.0, ("a",), ("a", "b"))
    assert server.one
    assert server.one.label == "api:2"


def test_a_mistake_names_the_words_and_the_fix() -> None:
    (side,) = list_mistakes({**GOOD, "one": {"number": 1, "side": "up"}}, Server)
    assert side.why == "up is none of in, out"
    (ports,) = list_mistakes({}, Server)
    assert ports.fix == "medley init"


def test_a_table_without_its_defaults() -> None:
    server = Server.from_table({**GOOD, "one": {"number": 1, "name": "x"}})
    assert server.to_table(omit_defaults=True) == {
        "ports": {"a": {"number": 1}},
        "one": {"number": 1, "name": "x"},
    }
    assert Server.from_json(server.to_json()) == server
    assert server.replace(share=2.0).share == 2
