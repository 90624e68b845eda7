"""Refuse a download or a copy for which the disk has no room, before its first byte."""

import socket
from pathlib import Path

from medley import storage
from medley.command import quote_path
from medley.errors import Problem


def require_space(folder: Path, needed_bytes: int) -> None:
    """Raise a Problem unless the file system of a folder, which may not exist yet, has these bytes free."""
    free_bytes = storage.measure_free_bytes(folder)
    existing = next(each for each in (folder, *folder.parents) if each.exists())
    if needed_bytes > free_bytes:
        raise Problem(
            f"{socket.gethostname()} has no room for {folder}",
            cause=f"{needed_bytes} bytes are needed ({needed_bytes / 1e9:.1f} GB), "
            f"{free_bytes} are free ({free_bytes / 1e9:.1f} GB)",
            fix=f"df -h {quote_path(existing)}  # and make room there, or leave this host out",
        )
