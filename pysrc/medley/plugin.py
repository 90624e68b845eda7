"""A plugin is our own code in an engine: a package in its environment, found there by an entry point."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.resources import files as resources
from pathlib import Path

from medley.tables import Plugin


@dataclass(frozen=True)
class _Installed:
    """What a plugin, which is a folder of medley/inside, is called in an environment."""

    package: str
    distribution: str
    group: str
    """Of entry points: who looks for it."""
    # What tells two of them apart is their hash.
    version: str = "1"

    @property
    def about(self) -> str:
        return f"{self.distribution.replace('-', '_')}-{self.version}.dist-info"


_PLUGINS: Mapping[Plugin, _Installed] = {
    "cpu_ray": _Installed("medley_cpu_ray", "medley-cpu-ray", "vllm.platform_plugins"),
    # torch itself looks for it, in every process: SGLang's ranks and Ray's actors import no module of ours.
    "sgl_kernel_standin": _Installed(
        "sgl_kernel", "medley-sgl-kernel-standin", "torch.backends", "0.4.10+medley.standin"
    ),
}


def write(site_packages: Path, names: Iterable[Plugin]) -> None:
    for name in names:
        for path, text in files(name).items():
            (site_packages / path).parent.mkdir(exist_ok=True)
            (site_packages / path).write_text(text, encoding="utf-8")


def files(name: Plugin) -> dict[str, str]:
    """All files of a plugin by their path in site-packages: the package, then its .dist-info."""
    source, installed = resources("medley") / "inside" / name, _PLUGINS[name]
    package = {
        f"{installed.package}/{each.name}": each.read_text(encoding="utf-8")
        for each in sorted(source.iterdir(), key=lambda each: each.name)
        if each.name.endswith(".py")
    }
    about = _about(name, installed)
    record = f"{installed.about}/RECORD"
    return {**package, **about, record: "".join(f"{path},,\n" for path in (*package, *about, record))}


def contents(names: Iterable[Plugin]) -> dict[str, str]:
    """Each plugin's hash: hosts whose engines run other code of ours must not join."""
    return {name: hashlib.sha256(json.dumps(files(name)).encode()).hexdigest() for name in names}


def _about(name: Plugin, installed: _Installed) -> dict[str, str]:
    summary = f"medley's plugin {name} for this environment's engine"
    return {
        f"{installed.about}/METADATA": f"Metadata-Version: 2.1\nName: {installed.distribution}\n"
        f"Version: {installed.version}\nSummary: {summary}\n",
        f"{installed.about}/INSTALLER": "medley\n",
        f"{installed.about}/entry_points.txt": (
            f"[{installed.group}]\n{name} = {installed.package}:register\n"
        ),
    }
