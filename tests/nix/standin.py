"""Prepares a copy of this tree whose flake.lock has the stand-in package set in nixpkgs' place.

    python tests/nix/standin.py DIR [VENV]     prints the lines to `export`; then, in DIR/medley:
    nix flake check; nix run .#serve -- demo; nix develop .#cpu -c env

A copy, because medley itself calls `nix build FLAKE#toolkit-KIND`, which no flag given by hand reaches; the
lock and NIX_CONFIG do. VENV is a virtualenv with what locks/base.txt and locks/dev.txt name, by default the
one that runs this. It can be run again over the same DIR, and starts afresh.
"""

import argparse
import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {
    "libgcc_s.so.1": "libgcc-s1",
    "libstdc++.so.6": "libstdc++6",
    "libz.so.1": "zlib1g",
    "libnuma.so.1": "libnuma1",
    "libibverbs.so.1": "libibverbs1",
    "libmlx5.so.1": "ibverbs-providers",
}
"""What the stand-in is made of, and Debian's package of each."""


def prepare(
    folder: Path, venv: Path = Path(sys.prefix), cuda: Mapping[str, Path] | None = None
) -> dict[str, str]:
    """Make folder/medley and folder/hostpkgs; returns the variables that Nix needs to use them.

    `cuda` has, by version, a folder of NVIDIA's own parts, to stand in the fakes' place.
    """
    for name in ("medley", "hostpkgs"):
        shutil.rmtree(folder / name, ignore_errors=True)
    for path in tracked():
        target = folder / "medley" / path
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, target)
    hostpkgs = folder / "hostpkgs"
    shutil.copytree(ROOT / "tests/nix/hostpkgs", hostpkgs)
    host = describe(venv) | {"cuda": {version: str(parts) for version, parts in (cuda or {}).items()}}
    (hostpkgs / "host.json").write_text(json.dumps(host, indent=2) + "\n", encoding="utf-8")
    variables = {"NIX_CONFIG": config(host, *(cuda or {}).values())}
    lock = ["nix", "flake", "lock", "--override-input", "nixpkgs", f"path:{hostpkgs}"]
    subprocess.run(lock, cwd=folder / "medley", env=os.environ | variables, check=True, capture_output=True)
    return variables


def tracked() -> list[Path]:
    """The files that a checkout has: tracked, or new and not ignored."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [Path(name) for name in names.split("\0") if name and (ROOT / name).is_file()]


def describe(venv: Path) -> dict[str, object]:
    """host.json: where this machine has what the stand-in is made of."""
    known = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    paths = [line.split(" => ")[1] for line in known.splitlines() if "x86-64" in line or "AArch64" in line]
    search = f"{venv / 'bin'}:{os.environ['PATH']}"
    return {
        "venv": str(venv.absolute()),
        "pythons": pythons(),
        "interpreter": next(path for path in paths if Path(path).name.startswith("ld-linux")),
        "libraries": libraries(paths),
        "uv": which("uv", search),
        "ninja": which("ninja", search),
        "patchelf": which("patchelf", search),
        "nix": str(Path(which("nix-instantiate", search))),
    }


def libraries(paths: list[str]) -> dict[str, str]:
    """Where ldconfig has each; exits with the package of those it lacks."""
    found = {name: path for path in reversed(paths) if (name := Path(path).name) in LIBRARIES}
    lacking = [name for name in LIBRARIES if name not in found]
    if lacking:
        packages = " ".join(dict.fromkeys(LIBRARIES[name] for name in lacking))
        raise SystemExit(f"{', '.join(lacking)}: not on this machine\n  fix:   apt-get install {packages}")
    return found


def which(name: str, search: str) -> str:
    """A program's path, or a path that cannot exist and says which is missing."""
    return shutil.which(name, path=search) or f"/missing/{name}"


def pythons() -> dict[str, str]:
    """The engines' interpreters; where this machine has no 3.12 (Debian 12), its 3.11 stands in for it."""
    found = {version: python(version) for version in ("3.11", "3.12")}
    return {version: path if Path(path).exists() else found["3.11"] for version, path in found.items()}


def python(version: str) -> str:
    """A Python on PATH or of pyenv; rather one with headers, because engines compile at run time."""
    folders = [Path(folder) for folder in os.environ["PATH"].split(":") if "shims" not in folder]
    folders += sorted((Path.home() / ".pyenv/versions").glob(f"{version}.*/bin"))
    question = "import sys, sysconfig; print(sys.base_prefix, sysconfig.get_path('include'))"
    plain = f"/missing/python{version}"
    for candidate in (folder / f"python{version}" for folder in reversed(folders)):
        if not candidate.is_file():
            continue
        said = subprocess.run([candidate, "-c", question], capture_output=True, text=True, check=False)
        prefix, _, include = said.stdout.strip().partition(" ")
        if said.returncode:
            continue
        plain = str(Path(prefix) / "bin" / f"python{version}")
        if (Path(include) / "Python.h").is_file():
            return plain
    return plain


def config(host: dict[str, object], *folders: Path) -> str:
    """Nix's settings, in NIX_CONFIG because a nix started by medley must see them too."""
    text = json.dumps(host)
    paths = {"/usr", "/lib", "/lib64", "/opt/nix-deb", "/etc/alternatives", str(host["venv"])}
    of_venv = Path(str(host["venv"]), "bin/python").resolve().parents[1]
    paths |= {str(Path(sys.base_prefix)), str(of_venv), *map(str, folders)}
    paths |= {
        str(Path(word).resolve().parents[1])
        for word in text.split('"')
        if word.startswith("/") and Path(word).is_file()
    }
    outside = sorted(
        path for path in paths if Path(path).exists() and path != "/" and not path.startswith("/usr/")
    )
    return "\n".join(
        [
            "experimental-features = nix-command flakes auto-allocate-uids",
            f"extra-sandbox-paths = {' '.join(outside)}",
            # The stand-in for aarch64 is made of this machine's programs too, so it can be built here.
            "extra-platforms = aarch64-linux x86_64-linux",
        ]
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("venv", type=Path, nargs="?", default=Path(sys.prefix))
    arguments = parser.parse_args()
    for name, value in prepare(arguments.folder.resolve(), arguments.venv).items():
        print(f"export {name}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
