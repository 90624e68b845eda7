"""One fault on a cluster that serves: what clients lose, what medley says, what comes back, what stays."""

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from medley.command import Command
from medley.process import Process, ProcessResult
from tests.rack import ssh
from tests.rack.cluster import MEDLEY, STATE, token_of
from tests.rack.fault_reports import Signs
from tests.rack.host import Host
from tests.rack.leftovers import inventory, left
from tests.rack.rack import up
from tests.rack.spec import Spec
from tests.rack.ssh_cluster import LINKS, SshCluster, process
from tests.rack.stream_clients import Request, Streams
from tests.waiting import becomes_true, wait_for
from tests.wall_clock import WallClock

CLIENTS = 4
CORES = {"host1": "0", "host2": "1"}
"""Threads of two ranks that spin on one core slow each other down tenfold."""
STALL_LIMIT_S = 20
NAME_LIMIT_S = 45
BACK_LIMIT_S = 420
SERVE_LIMIT_S = 400
_CLEAN_LIMIT_S = 20
_CALM_S = 6
SERVE = ("serve", "demo", "--pp", "2")
FLOAT32 = ("--", "--dtype=float32")
"""In which rounding does not decide between two tokens, however many requests are answered together."""
JOIN = "while :; do {medley} join {head} --token-file /tmp/home/brought >>{log} 2>&1; sleep 2; done"
"""As a unit of the user's that restarts it."""


@dataclass(frozen=True)
class Fault:
    name: str
    strike: "Callable[[Scene], None]"
    named: tuple[str, ...] = ()
    """Patterns that must be said; {host} is the one it happens to, {rank} its rank."""
    mend: "Callable[[Scene], None] | None" = None
    """What makes the hosts whole again, as a person who plugs in a cable."""
    back: bool = True
    """Whether the hosts allow the service to come back by itself."""
    breaks: bool = True
    """Whether requests may be lost; else none may."""
    lasts_s: float = 0
    """For so long it stays at least, where nothing has to be said about it."""
    name_limit_s: float = NAME_LIMIT_S
    family: str = "ray"
    prepare: "Callable[[Scene], None]" = lambda _: None
    """Before the cluster is up, on hosts of its own."""
    own_hosts: bool = False
    """Whether nothing else runs on these hosts before or after."""
    serves: bool = True
    """Whether a model is served, and asked, when it comes."""


@dataclass(frozen=True)
class Outcome:
    fault: str
    seed: int
    where: str
    seen_s: float | None
    named_s: float | None
    missing: list[str]
    said: list[str]
    """Of what was said, the lines with trouble."""
    answered: int
    broken: int
    hung: int
    refused: int
    changed: int
    back_s: float | None
    """0: it was never away."""
    left: list[str]
    expects_name: bool
    expects_back: bool
    may_break: bool

    @property
    def defects(self) -> list[str]:
        found = []
        if self.missing:
            found.append(f"not named: {', '.join(self.missing)}")
        if self.changed:
            found.append(f"{self.changed} whole answers changed")
        if self.expects_back and self.back_s is None:
            found.append("not back")
        if not self.may_break and self.broken + self.hung:
            found.append(f"{self.broken + self.hung} requests lost")
        return found + ([f"left: {', '.join(self.left)}"] if self.left else [])


@dataclass
class Scene:
    """Two hosts with a cluster, on which faults happen one after another."""

    desk: SshCluster
    fault: Fault
    random: Random = field(default_factory=Random)
    host: str = "host2"
    """To which the fault happens."""
    streams: Streams = field(init=False)
    signs: Signs = field(init=False)
    started: list[Process] = field(default_factory=list)
    clock: WallClock | None = None
    """That of medley's processes on the head, if it can be set."""
    fresh: bool = True
    """Whether nothing is wrong with it, and the next fault may come."""

    @property
    def victim(self) -> Host:
        return self.desk.rack[self.host]

    @property
    def words(self) -> tuple[str, ...]:
        """The patterns of the fault's name, for this host."""
        address = self.victim.port("fast").address if self.victim.ports else ""
        where = {"host": f"(?:{self.host}|{address.replace('.', '[.]')})", "rank": self.host[4:]}
        where["rank"] = str(int(where["rank"]) - 1)
        return tuple(each.format(**where) for each in self.fault.named)

    def kill(self, word: str, number: str, *, host: str | None = None) -> None:
        target = self.desk.rack[host or self.host]
        target.says("kill", f"-{number}", str(process(target, word)))

    def inventory(self) -> dict[str, Counter[str]]:
        return {host.name: inventory(host) for host in self.desk.rack.hosts}

    def left(self, before: Mapping[str, Counter[str]]) -> list[str]:
        """What is there now and was not before; asked until nothing is, or the limit."""
        found: list[str] = []

        def clean() -> bool:
            found.clear()
            now = self.inventory()
            found.extend(f"{name}: {each}" for name in now for each in left(before[name], now[name]))
            found.extend(f"{name}: {row}" for name, row in self._slots())
            return not found

        becomes_true(clean, _CLEAN_LIMIT_S)
        return found

    def _slots(self) -> Iterator[tuple[str, str]]:
        """Slots of Ray's that are taken while nothing is served: a placement group that stayed."""
        for name, row in self.desk.states().items() if self.fault.family == "ray" else ():
            if "taken" in row and " 0 of " not in f" {row}":
                yield name, f"slots taken ({row})"

    def serve(self) -> None:
        more = stall_switch(self.desk.head)
        if self.fault.family == "mp":
            self._serve_apart(more)
            return
        words = (*SERVE, "--detach", "--restart", *more, *FLOAT32)
        serve = Command((*MEDLEY, *words)).add_variables(self.clock.variables if self.clock else {})
        _require(self.desk.head.run(serve, limit_s=SERVE_LIMIT_S))

    def _serve_apart(self, more: tuple[str, ...]) -> None:
        lines: list[str] = []
        words = (
            *SERVE,
            "--detach",
            "--restart",
            "--launcher",
            "mp",
            "--hosts",
            "2",
            "--wait",
            "300",
            *more,
            *FLOAT32,
        )
        serve = self.desk.head.start(Command((*MEDLEY, *words)), lines.append)
        wait_for(
            "serve prints the command to join",
            lambda: any("medley join" in line for line in lines),
            60,
            state=lambda: lines,
        )
        worker = self.desk.rack["host2"]
        worker.says("mkdir", "-p", f"{STATE}/logs")
        worker.path("/tmp/home/brought").write_text(token_of(self.desk.head))
        line = next(line for line in lines if "medley join" in line)
        head = line.partition("medley join ")[2].split()[0]
        loop = JOIN.format(medley=" ".join(MEDLEY), head=head, log=f"{STATE}/logs/join.log")
        self.started.append(worker.start(["sh", "-c", loop]))
        finished = serve.wait(SERVE_LIMIT_S)
        assert finished, lines
        _require(finished)

    def end(self) -> list[str]:
        """End what is served; what went wrong with that."""
        said = self.desk.type("stop")
        for each in self.started:
            each.stop(5)
        if self.started:
            self.desk.rack["host2"].run(["pkill", "-TERM", "-f", "medley join"])
        self.started.clear()
        return [] if said.status == 0 else [f"stop: {' '.join(said.lines)[:200]}"]

    def power_on(self, name: str) -> None:
        """As its init does; where there is no systemd, it resumes what is kept there."""
        self.desk.rack = self.desk.rack.boot(name)
        ssh.serve(self.desk.rack, self.desk.rack[name])
        self.desk.done("service", "start", at=name)


def stall_switch(head: Host) -> tuple[str, ...]:
    known = any("--stall-limit" in line for line in head.run(Command((*MEDLEY, "serve", "--help"))).lines)
    return ("--stall-limit", str(STALL_LIMIT_S)) if known else ()


def _require(finished: ProcessResult) -> None:
    assert finished.status == 0, "\n".join(finished.lines)


@contextmanager
def scene(fault: Fault, name: str, cache: Path | None = None) -> Iterator[Scene]:
    """Hosts for a fault, and for others that need no hosts of their own; `cache` has their engine."""
    with up(Spec(2, LINKS, cores=CORES, name=name, cache=str(cache) if cache else None)) as rack:
        made = Scene(SshCluster.of(rack), fault)
        fault.prepare(made)
        if fault.family == "ray":
            made.desk.done("up")
            made.desk.all_up()
        yield made


def happen(on: Scene, fault: Fault, seed: int) -> Outcome:
    """The fault comes at a moment, on a host and among requests that the seed chooses."""
    on.fault, on.random = fault, Random(f"{fault.name} {seed}")
    on.host = on.random.choice(("host1", "host2"))
    before = on.inventory()
    on.streams = Streams(lambda: on.desk.head, CLIENTS, on.random)
    on.signs = Signs(lambda: on.desk)
    if fault.serves:
        on.serve()
        on.streams.record()
        on.streams.start()
    on.signs.start()
    time.sleep(on.random.uniform(1, 4))
    began = time.monotonic()
    try:
        fault.strike(on)
        words = on.words
        becomes_true(lambda: on.signs.named(words) is not None, fault.name_limit_s if words else 0)
        time.sleep(max(0, began + fault.lasts_s - time.monotonic()))
        allowed = began
        if fault.mend:
            fault.mend(on)
            allowed = time.monotonic()
        back_s = _back(on, allowed) if fault.serves and fault.back else None
    finally:
        on.signs.stop()
        on.streams.stop()
    return _outcome(on, seed, began, back_s, before)


def _back(on: Scene, allowed: float) -> float | None:
    """Seconds until requests are answered again, and all of them; 0 where they always were."""

    def calm() -> bool:
        failed = max((each.ended for each in on.streams.failed()), default=0)
        after = [each for each in list(on.streams.done) if each.began > max(failed, allowed)]
        whole = sum(each.fate == "whole" for each in after)
        return whole >= CLIENTS and time.monotonic() > max(failed, allowed) + _CALM_S

    if not becomes_true(calm, BACK_LIMIT_S):
        return None
    failed = max((each.ended for each in on.streams.failed()), default=None)
    if failed is None:
        return 0.0
    return max(0.0, _first_answer(on.streams.done, failed) - allowed)


def _first_answer(done: list[Request], after: float) -> float:
    return min(each.ended for each in done if each.fate == "whole" and each.began >= after)


def _outcome(
    on: Scene, seed: int, began: float, back_s: float | None, before: Mapping[str, Counter[str]]
) -> Outcome:
    fault, words, done = on.fault, on.words, on.streams.done
    seen, named = on.signs.seen(), on.signs.named(words) if words else None
    wrong = on.end()
    found = on.left(before)
    fates = Counter(each.fate for each in done)
    outcome = Outcome(
        fault=fault.name,
        seed=seed,
        where=on.host,
        seen_s=None if seen is None else seen - began,
        named_s=None if named is None else named - began,
        missing=on.signs.missing(words),
        said=[*on.streams.differences(), *(each.text for each in on.signs.heard if each.trouble)][:40],
        answered=fates["whole"],
        broken=fates["broken"],
        hung=fates["hung"],
        refused=fates["refused"],
        changed=len(on.streams.changed()),
        back_s=back_s,
        left=[*wrong, *found],
        expects_name=bool(words),
        expects_back=fault.back and fault.serves,
        may_break=fault.breaks,
    )
    on.fresh = not fault.own_hosts and not outcome.left and (back_s is not None or not outcome.expects_back)
    return outcome
