"""Writes an image to standard output as `docker save` would: BASE.json LAYER.tar CLOSURE NAME:TAG."""

import hashlib
import io
import json
import sys
import tarfile
from pathlib import Path


def main(base: Path, layer: Path, closure: Path, tag: str) -> None:
    layers = [packed(closure.read_text(encoding="utf-8").split()), layer.read_bytes()]
    digests = [hashlib.sha256(each).hexdigest() for each in layers]
    config = json.loads(base.read_text(encoding="utf-8"))
    config["rootfs"] = {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]}
    text = json.dumps(config).encode()
    name = f"{hashlib.sha256(text).hexdigest()}.json"
    names = [f"{digest}/layer.tar" for digest in digests]
    manifest = json.dumps([{"Config": name, "RepoTags": [tag], "Layers": names}]).encode()
    with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
        for path, content in [*zip(names, layers, strict=True), (name, text), ("manifest.json", manifest)]:
            about = tarfile.TarInfo(path)
            about.size = len(content)
            archive.addfile(about, io.BytesIO(content))


def packed(paths: list[str]) -> bytes:
    """A layer of store paths, as root's and without times."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in paths:
            archive.add(path, filter=_plain)
    return written.getvalue()


def _plain(about: tarfile.TarInfo) -> tarfile.TarInfo:
    about.uid = about.gid = 0
    about.uname = about.gname = "root"
    about.mtime = 1
    return about


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), Path(sys.argv[3]), sys.argv[4])
