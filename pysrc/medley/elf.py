"""An ELF program names the loader that runs it, and with the loader a libc: the host's own, or Nix's."""

import struct
from pathlib import Path

_HEADER = struct.Struct("<4sBB10xHHIQQQIHHH")
_SEGMENT = struct.Struct("<IIQQQQ")
LOADERS = ("lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1")
"""Where the psABIs have them, from the root on."""
_64_BIT, _LITTLE_ENDIAN, _PT_INTERP = 2, 1, 3


def loader(path: Path) -> str | None:
    """The loader that a program asks for; None for a script, a library, or a static program."""
    with path.open("rb") as file:
        header = file.read(_HEADER.size)
        if len(header) < _HEADER.size:
            return None
        magic, bits, order, *_ = fields = _HEADER.unpack(header)
        if magic != b"\x7fELF" or bits != _64_BIT or order != _LITTLE_ENDIAN:
            return None
        offset, size, count = fields[7], fields[11], fields[12]
        if size < _SEGMENT.size:  # an object file, which has no segments
            return None
        file.seek(offset)
        table = file.read(size * count)
        for at in range(0, len(table) - _SEGMENT.size + 1, size):
            kind, _, start, _, _, length = _SEGMENT.unpack_from(table, at)
            if kind == _PT_INTERP:
                file.seek(start)
                return file.read(length).rstrip(b"\0").decode()
    return None


def is_hosts(loader: str | None) -> bool:
    """Whether a loader lies where every system but Nix's keeps it: /lib/ld-linux-… or /lib64/ld-linux-…"""
    return loader is not None and loader.startswith(("/lib/", "/lib64/"))
