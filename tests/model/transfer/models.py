"""A model of random bytes, and what a test of a transfer asks of the folder that it went to."""

import os
import random
from pathlib import Path

PIECE = 4096
SECRET = "of this transfer alone"
SIZES = {"a.safetensors": 10 * PIECE + 5, "b/b.safetensors": 3 * PIECE, "empty": 0, "config.json": 20}
COUNT = 11 + 3 + 1
"""Its pieces."""


def model(folder: Path, seed: int = 0) -> Path:
    source = random.Random(seed)
    for name, size in SIZES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(source.randbytes(size))
    return folder


def repository(hub: Path, name: str) -> Path:
    """The same in the hub's cache, as its client lays it out."""
    top = hub / f"models--{name.replace('/', '--')}"
    snapshot, blobs = top / "snapshots" / "c", top / "blobs"
    for number, (path, content) in enumerate(files(model(hub / "made")).items()):
        blobs.mkdir(parents=True, exist_ok=True)
        (blobs / str(number)).write_bytes(content)
        link = snapshot / path
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(blobs / str(number), link.parent))
    (top / "refs").mkdir()
    (top / "refs" / "main").write_text("c")
    return top


def files(folder: Path) -> dict[str, bytes]:
    """What lies there, by name; of a link what it leads to."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def flip(path: Path, at: int) -> None:
    """One bit, as a disk does it: size and time stay."""
    before = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
