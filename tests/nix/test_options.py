"""The reference of the NixOS module's options is what nix/nixos.nix has."""

import shutil
from pathlib import Path

import pytest

from tools import nixos_options

pytestmark = pytest.mark.nix
PAGE = Path(__file__).parents[2] / "docs/reference/nixos-options.md"


def test_the_page_is_what_the_command_prints() -> None:
    if shutil.which("nix-instantiate") is None:
        pytest.skip("there is no nix on PATH")
    assert PAGE.read_text(encoding="utf-8") == nixos_options.page(), "run the command that the page names"
