"""Let the hosts of a model without Ray join its head; notice one that is lost.

A host runs `medley join`, proves that it has the token, and sends its facts. Once all have joined, each gets
its order, and both ends send signs of life. A host that is silent for too long is lost.
"""

import contextlib
import queue
import re
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypedDict

from medley import process, transcript
from medley.errors import Problem
from medley.host import facts
from medley.host.facts import Facts
from medley.json_shape import fits
from medley.network import tcp
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.network.tcp import Guest, Listener
from medley.progress import Progress

ALIVE_EVERY_S = 2.0
SILENT_LIMIT_S = 12.0
_TELL_LIMIT_S = 60
_PREPARE_LIMIT_S = 24 * 3600
"""How long a host may take to build its environment and download the model."""
_PREPARING_LOOK_S = 2.0
_END_LIMIT_S = 25
_LOOK_LIMIT_S = 15
# Messages of an engine that lost the connection to another host's rank.
_ELSEWHERE = re.compile(
    r"(?i)closed by (?:the )?(?:remote )?peer|connection (?:was )?(?:reset|closed|refused)|"
    r"broken pipe|timed out|remote (?:process|error)|stopped heartbeat"
)
# Messages of an engine without a reason.
_EMPTY = re.compile(r"EngineDeadError|EngineCore encountered an issue|died unexpectedly")


class _Introduction(TypedDict):
    host: str
    facts: str


@dataclass
class JoinedHost:
    name: str
    facts: Facts
    channel: Channel
    met_at: str
    """This host's address in its network."""
    rank: int = 0
    ended: str | None = None
    ended_at: float = 0.0
    done: bool = False
    low: str | None = None
    """The figures while its memory is low."""
    looked: dict[str, Any] | None = None
    """What its ranks do, since it was asked last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Mapping[str, Any]) -> None:
        with self._lock, contextlib.suppress(ChannelClosed):  # listen() notices a lost host
            self.channel.send(message)

    def listen(self) -> None:
        """Exchange signs of life until it is gone, or has ended."""
        while self.ended is None:
            self.send({"alive": True})
            try:
                message = self.channel.receive(ALIVE_EVERY_S) or {}
            except (ChannelClosed, ChannelRefused) as error:
                message = {"ended": f"it left: {error}"}
            self.done, self.low = self.done or "done" in message, message.get("low", self.low)
            self.looked = message.get("looked", self.looked)
            if "ended" not in message and time.monotonic() - self.channel.last_received_s > SILENT_LIMIT_S:
                message = {"ended": f"nothing came for {SILENT_LIMIT_S:.0f} s: its power or link is gone"}
            if "ended" in message:
                self.ended_at = time.monotonic()
                self.ended = str(message["ended"])


class Rendezvous:
    """The port where hosts join; `terms` are what they must share with this host."""

    def __init__(self, port: int, token: str, terms: Mapping[str, Any], watch: Progress) -> None:
        self._token, self._terms, self._watch = token, terms, watch
        self._ready: queue.Queue[JoinedHost] = queue.Queue()
        self.members: list[JoinedHost] = []
        self.again = False
        """Whether the head starts the model again after a Problem."""
        self._preparing: set[int] = set()
        """Hosts that still build or download something; the wait for them is longer."""
        try:
            # Every address, because the user may name any; without the token it reveals nothing.
            server = socket.create_server(("", port))
        except OSError as error:
            raise Problem(
                f"port {port}, where other hosts would join, is in use",
                cause=f"{error.strerror}: another model may use it to let hosts join",
                fix=f"--join-port {port + 1}, and on the other hosts: medley join HEAD:{port + 1}",
            ) from error
        self.port: int = server.getsockname()[1]
        self._listener = Listener(server, self._meet)

    def wait(self, count: int, limit_s: float) -> Sequence[JoinedHost]:
        """Wait for `count` hosts; returns them in the order in which they joined."""
        next_s = limit_s
        while not process.wait_until(lambda: self._admit(count), next_s):
            if self._preparing:
                next_s = _PREPARING_LOOK_S
                continue
            here = ", ".join(each.name for each in self.members) or "none"
            raise Problem(
                f"{count} more hosts are needed, and {len(self.members)} joined",
                cause=f"joined within {limit_s:.0f} s: {here}",
                fix="on each missing host: medley join HEAD; or wait longer: --wait 600",
            )
        self._listener.stop()
        return self.members

    def _admit(self, count: int) -> bool:
        """Admit hosts that joined; return whether all have. A second host of one name gets a number."""
        while len(self.members) < count and not self._ready.empty():
            member = self._ready.get()
            if any(each.name == member.name for each in self.members):
                member.name = f"{member.name}-{len(self.members) + 1}"
            self.members.append(member)
            threading.Thread(target=member.listen, daemon=True).start()
            self._watch.note(f"{member.name} has joined")
        self.members = [each for each in self.members if each.ended is None]
        return len(self.members) >= count

    def check(self) -> None:
        """Raise a Problem for a host that left."""
        if lost := next((each for each in self.members if each.ended is not None), None):
            raise _lost(lost)

    def low(self) -> str | None:
        """Return the figures of a host whose memory is low."""
        return next((f"{each.name}: {each.low}" for each in self.members if each.low), None)

    def will_restart(self) -> None:
        """Let the hosts meet this one again by themselves after a loss."""
        self.again = True
        for each in self.members:
            each.send({"again": True})

    def ask_hosts(self, *, stacks: bool) -> dict[str, Any]:
        """Ask the hosts what their ranks do; None of one that does not answer in time."""
        for each in self.members:
            each.looked = None
            each.send({"look": stacks})
        process.wait_until(lambda: all(each.looked or each.ended for each in self.members), _LOOK_LIMIT_S)
        return {each.name: each.looked for each in self.members if each.looked or not each.ended}

    @contextlib.contextmanager
    def blamed(self) -> Iterator[None]:
        """Report the host whose engine ended first, because the engine here often ends after it.

        A host counts only if it ended before, or if the engine here lost the connection to it.
        """
        try:
            yield
        except Problem as problem:
            ended = time.monotonic()
            elsewhere = _ELSEWHERE.search(problem.cause) or _EMPTY.search(problem.cause)

            def first_lost() -> list[JoinedHost]:
                ended_too = ((each, each.ended) for each in self.members if each.ended)
                return [
                    each
                    for each, how in ended_too
                    if each.ended_at < ended or (elsewhere and not _ELSEWHERE.search(how))
                ]

            if lost := process.wait_until(first_lost, SILENT_LIMIT_S):
                raise _lost(lost[0]) from problem
            raise

    def end(self) -> None:
        """End the model on all hosts, and wait for that; lost hosts end by themselves."""
        self._listener.stop()
        for each in self.members:
            each.send({"end": True, "again": self.again})
        process.wait_until(lambda: all(each.ended is not None for each in self.members), _END_LIMIT_S)
        while not self._ready.empty():
            self._ready.get().channel.close()
        for each in self.members:
            each.channel.close()

    def _meet(self, guest: Guest) -> bool:
        try:
            channel = Channel(guest.connection, self._token, server=True)
            _require(guest.admit(guest), "too many hosts have joined already")
            channel.send({"terms": self._terms})
            told = _told(channel, _TELL_LIMIT_S)
            _require(fits(told, _Introduction), "its introduction is not valid")
            self._preparing.add(id(guest))
            _told(channel, _PREPARE_LIMIT_S)
            found = facts.read_facts(transcript.parse(told["facts"]))
        except (ChannelRefused, ChannelClosed, TimeoutError, ValueError, LookupError, Problem) as error:
            self._watch.note(f"{guest.address} did not join: {str(error).partition(chr(10))[0]}")
            return False
        finally:
            self._preparing.discard(id(guest))
        at = guest.connection.getsockname()[0]
        self._ready.put(JoinedHost(f"{told['host']} ({guest.address})", found, channel, at))
        return True


def _require(right: bool, cause: str) -> None:  # noqa: FBT001 - it is the question itself
    if not right:
        raise ChannelRefused(cause)


def _lost(member: JoinedHost) -> Problem:
    return Problem(
        f"{member.name}, rank {member.rank}, is lost, and the model with it",
        cause=f"{tcp.explain_lost_address(member.met_at)}{member.ended}",
        fix="read the last lines of its output, then start both again: medley serve, medley join",
    )


def _told(channel: Channel, limit_s: float) -> dict[str, Any]:
    """Return the next message other than a sign of life."""
    deadline = time.monotonic() + limit_s
    while time.monotonic() < deadline:
        message = channel.receive(1.0)
        if message and "problem" in message:
            raise ChannelRefused(str(message["problem"]))
        if message and "alive" not in message:
            return message
        if time.monotonic() - channel.last_received_s > SILENT_LIMIT_S:
            break
    raise TimeoutError("it sent nothing")
