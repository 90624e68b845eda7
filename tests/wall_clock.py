"""Set the wall clock of medley's processes, as NTP sets a host's; no other clock, and no other program's.

A Jetson without a battery starts in the past, and its clock jumps when the network is there. Debian's
libfaketime moves waits as well, which then fail or never end.
"""

import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")


class WallClock:
    """The clock of processes that start with `variables`; `seen_as` is how they see `folder`."""

    def __init__(self, folder: Path, seen_as: str | None = None) -> None:
        self._file, library = folder / "wall_clock", folder / "wall_clock.so"
        subprocess.run(["gcc", "-shared", "-fPIC", "-O2", "-o", library, SOURCE, "-ldl"], check=True)
        self.set_ahead(0)
        there = seen_as or str(folder)
        self.variables = {
            "LD_PRELOAD": f"{there}/{library.name}",
            "WALL_CLOCK": f"{there}/{self._file.name}",
        }

    def set_ahead(self, seconds: int) -> None:
        """Set it ahead of the machine's, or behind; at once, also where it is read already."""
        with self._file.open("r+b" if self._file.exists() else "wb") as file:
            file.write(struct.pack("q", seconds))
