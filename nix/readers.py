"""Compares the host tables as Nix read them (a JSON file) with what Python reads from the same folder."""  # noqa: INP001

import json
import sys
import tomllib
from pathlib import Path

seen_by_nix = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
seen_by_python = {path.stem: tomllib.loads(path.read_text()) for path in Path(sys.argv[2]).glob("*.toml")}
if not seen_by_python or seen_by_nix != seen_by_python:
    sys.exit(f"Nix and Python disagree:\n{seen_by_nix}\n{seen_by_python}")
