"""A script that runs: from the command that starts it to its own end, here or over a cluster."""

import sys
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from medley import brought, carry, failure, loss, machine, serving, spreading, store
from medley.cli.progress import watch
from medley.cli.served import say
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, MutableMapping

    from medley.engine import Engine
    from medley.launch import Launch
    from medley.meeting import Meeting
    from medley.membership import Membership
    from medley.spreading import Taken

_LOOK_EVERY_S = 0.1
_RANKS_EVERY_S = 4
_LAST_ERRORS = 400


@dataclass(frozen=True)
class Ran:
    engine: "Engine"
    launch: "Launch"
    script: Path
    target: str
    """Of the model: a folder's path, or ORG/NAME."""

    def here(self, joined: "Membership | None", taken: "Taken | None") -> int:
        """On this host alone; in a cluster its slots are taken while it runs."""
        with ExitStack() as held:
            if joined and taken:
                held.enter_context(spreading.held(joined, taken.slots))
            return self._run()

    def spread(self, joined: "Membership", taken: "Taken") -> int:
        """The script here, the ranks of its engine over the cluster's hosts, where the plan has them."""
        carry.write(self.launch.reasoned)
        if Path(self.target).is_absolute():
            spreading.require_weights(joined, Path(self.target))
        brought.bring(joined, self.launch.beside, watch())
        places: dict[int, str] = {}
        with loss.told_of_loss(joined, places), ExitStack() as start:
            start.enter_context(spreading.held(joined, taken.spare))
            return self._run(_Placed(self.launch, joined, taken, start, places).look)

    def together(self, met: "Meeting") -> int:
        """The same script on every host; it is done when it is done on all."""
        with met.blamed():
            status = self._run(met.require_all)
            while not all(each.done for each in met.members):
                met.require_all()
                time.sleep(_LOOK_EVERY_S)
        return status

    def _run(self, look: "Callable[[], None]" = lambda: None) -> int:
        for reason in (*self.launch.plan.why, *self.launch.beside.why()):
            say(reason)
        keep_files(self.launch)
        say(f"$ {self.launch.command}")
        log = store.state() / "logs" / f"run-{self.script.stem}.log"
        lost, errors = list[str](), deque[str](maxlen=_LAST_ERRORS)
        with serving.log(log) as keep:
            for reason in self.launch.plan.why:
                keep(f"medley: {reason}")
            keep(f"$ {self.launch.command}")

            def on_line(line: str) -> None:
                keep(line)
                _pass_on(line, sys.stdout)

            def on_error(line: str) -> None:
                keep(line)
                errors.append(line)
                if self.engine.fatal(line):
                    lost.append(line)
                _pass_on(line, sys.stderr)

            process = machine.Process(self.launch.command, on_line, on_error)
            try:
                while process.wait(_LOOK_EVERY_S) is None and not lost:
                    look()
            finally:
                process.stop()
        finished = process.poll()
        status = 1 if lost or not finished else finished.status
        if status:
            raise self._failed(status, lost or list(process.last), errors, log)
        return 0

    def _failed(self, status: int, lines: list[str], errors: "Iterable[str]", log: Path) -> Problem:
        """Stdout and stderr arrive in no order of their own, so its last word is that of stderr."""
        spoken = [each for each in (*lines, *errors) if each.strip()]
        said = self.engine.last_error(lines) or (spoken[-1] if spoken else "")
        problem = Problem(
            f"{self.script.name} ended with exit code {status}",
            cause=said.strip()[:1000] or "it said nothing",
            fix=f"read its whole output: less {log}",
            status=status,
        )
        return failure.known(problem, log)


@dataclass
class _Placed:
    """Watches until the script's engine has its ranks; then nothing need be held from others any more."""

    launch: "Launch"
    joined: "Membership"
    taken: "Taken"
    start: ExitStack
    places: "MutableMapping[int, str]"
    """The address of each rank, once they are known."""
    next_look: float = 0.0

    def look(self) -> None:
        if self.places or time.monotonic() < self.next_look:
            return
        seen = self._seen()
        if len(seen) == sum(self.taken.slots.values()):
            self.start.close()
            spreading.require_order(seen, self.taken.slots, self.launch.plan.tensor_parallel)
            self.places.update(enumerate(address for _, _, address in seen))
            for stage, tensor, address in seen:
                say(f"stage {stage}, tensor rank {tensor}: {address}")
        self.next_look = time.monotonic() + _RANKS_EVERY_S

    def _seen(self) -> list[tuple[int, int, str]]:
        try:
            return spreading.ranks(self.joined)
        except Problem:  # the head is busy; it is asked again
            return []


def _pass_on(line: str, to: TextIO) -> None:
    """In one write, also where PYTHONUNBUFFERED is set: both streams may be one pipe."""
    print(f"{line}\n", end="", file=to, flush=True)


def keep_files(launch: "Launch") -> None:
    """What the command reads; what is there already is the same, or the script itself."""
    for name, text in launch.files.items():
        if not Path(name).exists():
            store.write(Path(name), text)
