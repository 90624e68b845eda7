"""Boards by device tree, L4T release and DGX release."""

import pytest

from medley.facts import board
from medley.facts.board import Board, L4t
from medley.transcript import Answer


@pytest.mark.parametrize(
    ("line", "l4t"),
    [
        pytest.param(
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic", L4t("36", "4.3"), id="r36"
        ),
        pytest.param("# R39 (release), REVISION: 2.0, GCID: 45755727", L4t("39", "2.0"), id="r39"),
        pytest.param("R36", None, id="another file"),
        pytest.param("", None, id="none"),
    ],
)
def test_l4t(line: str, l4t: L4t | None) -> None:
    assert board.board({board.L4T_RELEASE: Answer(line)}).l4t == l4t


@pytest.mark.parametrize(
    ("compatible", "soc", "tegra"),
    [
        ("nvidia,p3737-0000+p3701-0005\nnvidia,p3701-0005\nnvidia,tegra234\n", "tegra234", True),
        ("raspberrypi,5-model-b\nbrcm,bcm2712\n", "bcm2712", False),
        ("", None, False),
    ],
    ids=["orin", "raspberry pi", "pc"],
)
def test_soc(compatible: str, soc: str | None, *, tegra: bool) -> None:
    found = board.board({board.COMPATIBLE: Answer(compatible)})
    assert (found.soc, found.is_tegra) == (soc, tegra)


@pytest.mark.parametrize(
    ("said", "dgx"),
    [
        ('DGX_PRETTY_NAME="NVIDIA DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n', "NVIDIA DGX Spark 7.2.3"),
        ("DGX_PRETTY_NAME=DGX\nDGX_SWBUILD_VERSION=1\nDGX_OTA_VERSION=2\n", "DGX 2"),
        ("", None),
    ],
    ids=["as built", "updated since", "no DGX"],
)
def test_dgx(said: str, dgx: str | None) -> None:
    assert board.board({board.DGX: Answer(said)}).dgx == dgx


def test_nothing_asked() -> None:
    assert board.board({}) == Board()
