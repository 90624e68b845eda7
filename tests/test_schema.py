from pathlib import Path

import pytest

from medley.schema import (
    Arguments,
    Container,
    Driver,
    ExtraFile,
    HostTable,
    Made,
    MemoryTable,
    Model,
    Recipe,
    Recognise,
    RemoteCode,
    Shape,
    StrictTable,
    ToolkitTable,
)

DOCUMENT = Path(__file__).parents[1] / "docs" / "reference" / "tables.md"


@pytest.mark.parametrize(
    "shape",
    [
        Arguments,
        Container,
        HostTable,
        Recognise,
        ToolkitTable,
        Driver,
        MemoryTable,
        Model,
        Made,
        ExtraFile,
        Recipe,
        RemoteCode,
        Shape,
    ],
)
def test_every_key_is_documented(shape: type[StrictTable]) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    missing = [
        name
        for name in shape.model_fields
        if f"`{name}`" not in text and f"[{name}]" not in text and f".{name}]" not in text
    ]
    assert missing == []
