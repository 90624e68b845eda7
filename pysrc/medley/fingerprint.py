"""A fingerprint is the SHA-256 of a file, or one over several: what `sha256sum FILE… | sha256sum` says."""

import hashlib
from collections.abc import Mapping
from pathlib import Path


def of_bytes(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def of_file(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_all(files: Mapping[str, str]) -> str:
    """One for files of which each has its own, by name, whatever order they are in."""
    return of_bytes("".join(f"{each}  {name}\n" for name, each in sorted(files.items())).encode())
