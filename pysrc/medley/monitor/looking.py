"""Looking at GPUs is one nvidia-smi that goes on telling; on a Jetson it is files besides."""

import threading
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from medley import machine
from medley.command import Command
from medley.monitor import gpus
from medley.monitor.sample import Gpu
from medley.problem import Problem

_SILENT_S = 15
_AGAIN_S = 30
"""After it ended by itself: a driver that is being replaced, or a GPU that fell off its bus."""
_SAID = 200


class Looking:
    def __init__(self, every_s: float, sys: Path = Path("/sys")) -> None:
        self._every_s, self._sys = every_s, sys
        self._lock = threading.Lock()
        self._fields = list(gpus.FIELDS)
        self._process: machine.Process | None = None
        self._began = float("-inf")
        self._found: dict[int, tuple[float, Gpu]] = {}
        self._odd: str | None = None

    def seen(self) -> tuple[tuple[Gpu, ...], str | None]:
        """The GPUs as they were told last, and what is wrong where they should show and do not."""
        self._tend()
        oldest = time.monotonic() - max(_SILENT_S, 5 * self._every_s)
        with self._lock:
            fresh = [gpu for at, gpu in self._found.values() if at > oldest]
        found = self._with_files(sorted(fresh, key=lambda gpu: gpu.index))
        return tuple(found), None if found else self._silent()

    def end(self) -> None:
        if self._process:
            self._process.stop(grace_s=0.2)

    def _tend(self) -> None:
        """Start it, and again when it has ended: with fewer fields where it did not know one."""
        ended = self._process.poll() if self._process else None
        refused = ended and any(gpus.REFUSED in line for line in ended.lines)
        if refused and len(self._fields) > 1:
            del self._fields[0]
        elif not self._due(ended) or not machine.program("nvidia-smi"):
            return
        self._began, self._odd = time.monotonic(), None
        fields = self._fields[0]
        command = Command(gpus.query(fields, self._every_s))
        with suppress(Problem):
            self._process = machine.Process(command, lambda line: self._take(line, fields))

    def _due(self, ended: machine.Finished | None) -> bool:
        return self._process is None or (ended is not None and time.monotonic() > self._began + _AGAIN_S)

    def _take(self, line: str, fields: tuple[str, ...]) -> None:
        found = gpus.gpu(line, fields)
        with self._lock:
            if found:
                self._found[found.index] = time.monotonic(), found
            elif line.strip():
                self._odd = line.strip()[:_SAID]

    def _silent(self) -> str | None:
        if self._process is None:
            return None
        if self._odd or self._process.poll():
            return f"nvidia-smi: {self._odd or 'it ended and said nothing'}"
        waited_s = time.monotonic() - self._began
        return f"nvidia-smi has said nothing for {waited_s:.0f} s" if waited_s > _SILENT_S else None

    def _with_files(self, found: list[Gpu]) -> list[Gpu]:
        """A Jetson's nvidia-smi leaves open what its kernel has in files, or is not there at all."""
        load = self._sys / gpus.LOAD
        if not load.exists():
            return found
        name = found[0].name if found else "integrated GPU"
        told = gpus.jetson(name, self._files(load))
        if not found:
            return [told]
        own = {key: value for key, value in vars(found[0]).items() if value not in (None, ())}
        return [replace(told, **own), *found[1:]]

    def _files(self, load: Path) -> dict[str, str]:
        files = {"load": load}
        for zone in (self._sys / "class/thermal").glob("thermal_zone*"):
            with suppress(OSError):
                if (zone / "type").read_text().strip() == gpus.ZONE:
                    files["temp"] = zone / "temp"
        for device in (self._sys / "class/devfreq").glob("*gpu*"):
            files |= {name: device / name for name in ("cur_freq", "max_freq")}
        said = {}
        for name, file in files.items():
            with suppress(OSError):
                said[name] = file.read_text().strip()
        return said
