"""What nixpkgs' buildPythonApplication does, in small: build a wheel, check, install and wrap it."""

import importlib.metadata
import json
import subprocess
import sys
import tomllib
import zipfile
from configparser import ConfigParser
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WRAPPED = """\
#!{python}
import sys

sys.path.insert(0, "{site}")
from {module} import {function}

sys.argv[0] = "{name}"
sys.exit({function}())
"""


def main(application: dict[str, Any], out: Path) -> None:
    needs = tomllib.loads(Path("pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    missing(needs, application["build-system"], "build-system")
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", "dist"], check=True)
    (wheel,) = Path("dist").glob("*.whl")
    site = out / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    zipfile.ZipFile(wheel).extractall(site)
    (info,) = importlib.metadata.distributions(name=application["pname"], path=[str(site)])
    if info.version != application["version"]:
        sys.exit(f"the wheel is {info.version}, the package {application['version']}")
    removed = application["pythonRemoveDeps"]
    asked = [line for line in info.requires or [] if Requirement(line).name not in removed]
    missing(asked, application["dependencies"], "dependencies")
    for module in application["pythonImportsCheck"]:
        subprocess.run(
            [sys.executable, "-c", f"import sys; sys.path.insert(0, {str(site)!r}); import {module}"],
            check=True,
        )
    entries = ConfigParser()
    entries.read_string(info.read_text("entry_points.txt") or "")
    for name, target in entries["console_scripts"].items():
        wrap(out / "bin" / name, target, site, application["makeWrapperArgs"])


def missing(requirements: list[str], given: list[str], what: str) -> None:
    """Refuse what pythonRuntimeDepsCheckHook refuses: not given, or given in another version."""
    for requirement in map(Requirement, requirements):
        if requirement.marker and not requirement.marker.evaluate():
            continue
        if canonicalize_name(requirement.name) not in map(canonicalize_name, given):
            sys.exit(f"{requirement.name} not installed: it is not among {what}")
        found = importlib.metadata.version(requirement.name)
        if not requirement.specifier.contains(found, prereleases=True):
            sys.exit(f"{requirement} not satisfied by version {found}")


def wrap(program: Path, target: str, site: Path, arguments: list[str]) -> None:
    """As makeWrapper writes it: PATH and PYTHONNOUSERSITE, no PYTHONPATH."""
    module, function = target.split(":")
    hidden = program.with_name(f".{program.name}-wrapped")
    program.parent.mkdir(parents=True, exist_ok=True)
    text = WRAPPED.format(python=sys.executable, site=site, module=module, function=function, name=program)
    hidden.write_text(text, encoding="utf-8")
    lines = ["#!/usr/bin/bash", f"export PATH={program.parent}:$PATH", "export PYTHONNOUSERSITE=true"]
    words = iter(arguments)
    for flag, name, value in zip(words, words, words, strict=True):
        if flag != "--set-default":
            sys.exit(f"the stand-in knows no makeWrapper flag {flag}")
        lines.append(f"export {name}=${{{name}-{value}}}")
    program.write_text("\n".join([*lines, f'exec {hidden} "$@"', ""]), encoding="utf-8")
    hidden.chmod(0o755)
    program.chmod(0o755)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")), Path(sys.argv[2]))
