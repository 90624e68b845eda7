from pathlib import Path

import pytest

from medley.tables import (
    Arguments,
    Container,
    Driver,
    Host,
    Made,
    Memory,
    Model,
    Need,
    Recipe,
    Recognise,
    RemoteCode,
    Shape,
    Table,
    Toolkit,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "tables.md"


@pytest.mark.parametrize(
    "shape",
    [
        Arguments,
        Container,
        Host,
        Recognise,
        Toolkit,
        Driver,
        Memory,
        Model,
        Made,
        Need,
        Recipe,
        RemoteCode,
        Shape,
    ],
)
def test_every_key_is_documented(shape: type[Table]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [
        name
        for name in shape.model_fields
        if f"`{name}`" not in text and f"[{name}]" not in text and f".{name}]" not in text
    ]
    assert missing == []
