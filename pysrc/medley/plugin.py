"""A plugin is our own code in an engine: a package in its environment, found there by an entry point."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from importlib.resources import files as resources
from pathlib import Path

from medley.tables import Plugin

# Which group of entry points the engine searches for it.
_GROUPS: Mapping[Plugin, str] = {"cpu_ray": "vllm.platform_plugins"}
# What tells two of them apart is their hash.
_VERSION = "1"


def write(site_packages: Path, names: Iterable[Plugin]) -> None:
    for name in names:
        for path, text in files(name).items():
            (site_packages / path).parent.mkdir(exist_ok=True)
            (site_packages / path).write_text(text, encoding="utf-8")


def files(name: Plugin) -> dict[str, str]:
    """All files of a plugin by their path in site-packages: the package, then its .dist-info."""
    source = resources("medley") / "inside" / name
    package = {
        f"medley_{name}/{each.name}": each.read_text(encoding="utf-8")
        for each in sorted(source.iterdir(), key=lambda each: each.name)
        if each.name.endswith(".py")
    }
    about = _about(name)
    return {
        **package,
        **about,
        _record(name): "".join(f"{path},,\n" for path in (*package, *about, _record(name))),
    }


def contents(names: Iterable[Plugin]) -> dict[str, str]:
    """Each plugin's hash: hosts whose engines run other code of ours must not join."""
    return {name: hashlib.sha256(json.dumps(files(name)).encode()).hexdigest() for name in names}


def _about(name: Plugin) -> dict[str, str]:
    summary = f"medley's plugin {name} for this environment's engine"
    return {
        f"{_folder(name)}/METADATA": f"Metadata-Version: 2.1\nName: medley-{name.replace('_', '-')}\n"
        f"Version: {_VERSION}\nSummary: {summary}\n",
        f"{_folder(name)}/INSTALLER": "medley\n",
        f"{_folder(name)}/entry_points.txt": f"[{_GROUPS[name]}]\n{name} = medley_{name}:register\n",
    }


def _record(name: Plugin) -> str:
    return f"{_folder(name)}/RECORD"


def _folder(name: Plugin) -> str:
    return f"medley_{name}-{_VERSION}.dist-info"
