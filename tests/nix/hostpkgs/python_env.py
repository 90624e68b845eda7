"""A virtualenv with some packages of this one and what they require, like nixpkgs' python.withPackages.

python python_env.py OUT NAME-OR-FOLDER...     a folder is a built application, whose own module is taken
"""

import importlib.metadata
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

from packaging.requirements import Requirement

SITE = Path("lib") / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"


def main(out: Path, wanted: Iterable[str]) -> None:
    base = Path(sys.base_prefix) / "bin" / SITE.parts[1]
    subprocess.run([base, "-m", "venv", "--without-pip", out], check=True)
    site = out / SITE
    for each in wanted:
        if each.startswith("/"):
            for entry in (Path(each) / SITE).iterdir():
                link(entry, site)
        else:
            for name in closure(each, set()):
                for entry in entries(name):
                    link(entry, site)
                for program in programs(name):
                    link(program, out / "bin")


def closure(name: str, seen: set[str]) -> set[str]:
    """The distribution and all that it requires here, its extras aside."""
    if name.lower() not in seen:
        seen.add(name.lower())
        for line in importlib.metadata.distribution(name).requires or ():
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                closure(requirement.name, seen)
    return seen


def entries(name: str) -> set[Path]:
    """What stands of it in site-packages."""
    found = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in found.files or () if file.parts[0] not in {"..", "__pycache__"}}
    return {Path(str(found.locate_file(top))) for top in tops}


def programs(name: str) -> set[Path]:
    """Its programs that are no scripts: those would start the virtualenv's Python."""
    found = importlib.metadata.distribution(name)
    files = (Path(str(found.locate_file(file))) for file in found.files or () if "bin" in file.parts[:-1])
    return {file for file in files if file.read_bytes()[:2] != b"#!"}


def link(entry: Path, site: Path) -> None:
    target = site / entry.name
    if not target.exists():
        target.symlink_to(entry)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
