"""Brings small files to every host of a Ray cluster, or asks what they have; run in an engine's Python.

    python files.py put HOST:PORT OWN JSON     {"FILE": "needs/ABC/NAME"…}: which go where in a host's cache
    python files.py python HOST:PORT OWN FOLDER   the SHA-256 of every Python file there

It prints one JSON object: what came of it on each living host that has a slot, this one too.
"""

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from cluster import connect, nodes, on
from ray._raylet import GcsClient

LIMIT_S = 25
LARGEST_BYTES = 16 << 20


def main(verb: str, address: str, own: str, what: str) -> dict[str, Any]:
    try:
        asked = [
            node for node in nodes(GcsClient(address=address), address) if node["alive"] and node["slots"]
        ]
        connect(address, own)
        if verb == "put":
            return {"hosts": answers(asked, put, contents(json.loads(what)))}
        return {"hosts": answers(asked, python, what)}
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def contents(files: dict[str, str]) -> dict[str, bytes]:
    found = {name: Path(file).read_bytes() for file, name in files.items()}
    if any(len(each) > LARGEST_BYTES for each in found.values()):
        raise ValueError(f"no file may have more than {LARGEST_BYTES >> 20} MiB")
    return found


def answers(
    nodes: list[dict[str, Any]], function: Callable[..., dict[str, Any]], given: object
) -> dict[str, Any]:
    """By NAME (ADDRESS), all at once; a host that does not answer in time ends it."""
    there = ray.put(given)
    tasks = [on(node, function).remote(there) for node in nodes]
    said = ray.get(tasks, timeout=LIMIT_S)
    return {f"{node['name']} ({node['address']})": each for node, each in zip(nodes, said, strict=True)}


def put(files: dict[str, bytes]) -> dict[str, Any]:
    """Runs on each host: write what it lacks or has otherwise; its hash, its path, and whether it was.

    The same three places as medley.store looks for a cache.
    """
    base = os.environ.get("XDG_CACHE_HOME", "")
    usual = (Path(base) if base.startswith("/") else Path.home() / ".cache") / "medley"
    cache = Path(os.environ["MEDLEY_CACHE"]).absolute() if os.environ.get("MEDLEY_CACHE") else usual
    said: dict[str, Any] = {}
    for name, content in files.items():
        path = cache / name
        wanted = hashlib.sha256(content).hexdigest()
        try:
            have = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else None
            if have != wanted:
                path.parent.mkdir(parents=True, exist_ok=True)
                part = path.with_name(f".{path.name}.{os.getpid()}")
                part.write_bytes(content)
                part.replace(path)
            found = hashlib.sha256(path.read_bytes()).hexdigest()
            said[name] = {"path": str(path), "sha256": found, "written": have != wanted}
        except OSError as error:
            said[name] = {"path": str(path), "error": str(error)}
    return said


def python(folder: str) -> dict[str, Any]:
    """Runs on each host. A link to a folder is named as such: what is behind it would be imported too."""
    found = {}
    for where, folders, names in os.walk(folder):
        for name in folders:
            if (path := Path(where) / name).is_symlink():
                found[path.relative_to(folder).as_posix()] = f"none: a link to {path.readlink()}"
        for name in names:
            if name.endswith(".py") and (path := Path(where) / name).is_file():
                found[path.relative_to(folder).as_posix()] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
