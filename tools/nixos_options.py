"""Prints the reference of the NixOS module's options, from nix/nixos.nix.

.venv/bin/python -m tools.nixos_options > docs/reference/nixos-options.md      (needs nix, and no nixpkgs)
"""

import json
import subprocess
from pathlib import Path

OPTIONS = Path(__file__).with_suffix(".nix")
HEAD = """\
# Options of the NixOS module

`.venv/bin/python -m tools.nixos_options > docs/reference/nixos-options.md` writes this page from
`nix/nixos.nix`.
[Start at boot](../how-to/start-at-boot.md#nixos) explains how to use the module.
"""


def options() -> list[dict[str, str | None]]:
    words = ["nix-instantiate", "--eval", "--strict", "--json", str(OPTIONS)]
    said = subprocess.run(words, capture_output=True, text=True, check=True)
    found: list[dict[str, str | None]] = json.loads(said.stdout)
    return found


def page() -> str:
    return "\n".join([HEAD, *map(section, options())])


def section(option: dict[str, str | None]) -> str:
    facts = [f"- Type: {option['type']}"]
    facts += [
        f"- {name.capitalize()}: {value if '`' in value else f'`{value}`'}"
        for name in ("default", "example")
        if (value := option[name]) is not None
    ]
    if option["default"] is None:
        facts.append("- Required")
    return "\n".join([f"## `{option['name']}`", "", (option["description"] or "").strip(), "", *facts, ""])


if __name__ == "__main__":
    print(page(), end="")
