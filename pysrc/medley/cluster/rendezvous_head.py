"""Let the hosts of a model without Ray join its head, and detect lost hosts.

A host runs `medley join`, proves that it has the token, and sends its facts. Once all have joined, each gets
its order, and both ends send signs of life. A host that is silent for too long is lost. The messages:

    head to host                         host to head
    terms   what the host must share     host, facts  its introduction
    order   the command of its ranks     problem      it cannot take part: the reason
    look    report the ranks; true:      ready        its environment and model are there
            with their stacks            looked       the report
    again   rejoin after a loss          low          the figures of low memory, or null
    end     end the ranks                done         its script ended without an error
    alive   a sign of life               ended        its ranks ended: the reason
                                         alive        a sign of life
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
from medley.json_shape import has_type
from medley.network import tcp
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from medley.network.tcp import Guest, Listener
from medley.progress import Progress

ALIVE_INTERVAL_S = 2.0
SILENT_LIMIT_S = 12.0
_INTRODUCTION_LIMIT_S = 60
_PREPARE_LIMIT_S = 24 * 3600
"""Seconds that a host may take to build its environment and download the model."""
_PREPARING_CHECK_INTERVAL_S = 2.0
_END_LIMIT_S = 25
_RANK_REPORT_LIMIT_S = 15
# Messages of an engine that lost the connection to another host's rank.
_OTHER_HOST_PATTERN = re.compile(
    r"(?i)closed by (?:the )?(?:remote )?peer|connection (?:was )?(?:reset|closed|refused)|"
    r"broken pipe|timed out|remote (?:process|error)|stopped heartbeat"
)
# Messages of an engine without a reason.
_NO_REASON_PATTERN = re.compile(r"EngineDeadError|EngineCore encountered an issue|died unexpectedly")


class _Introduction(TypedDict):
    host: str
    facts: str


@dataclass
class JoinedHost:
    """A host that joined, with its connection and the last reports about its ranks."""

    name: str
    facts: Facts
    channel: Channel
    own_address: str
    """The head's address in the network of this host."""
    rank: int = 0
    end_reason: str | None = None
    """The reason why it left or its ranks ended; None before."""
    ended_at_s: float = 0.0
    is_done: bool = False
    """Whether its script ended without an error."""
    low_memory: str | None = None
    """The figures while its memory is low."""
    rank_report: dict[str, Any] | None = None
    """The answer about its ranks, since the head asked last."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def send(self, message: Mapping[str, Any]) -> None:
        with self._lock, contextlib.suppress(ChannelClosed):  # receive_until_end notices a lost host
            self.channel.send(message)

    def receive_until_end(self) -> None:
        """Send signs of life and read its messages until it is gone, or has ended."""
        while self.end_reason is None:
            self.send({"alive": True})
            try:
                message = self.channel.receive(ALIVE_INTERVAL_S) or {}
            except (ChannelClosed, ChannelRefused) as error:
                message = {"ended": f"it left: {error}"}
            self.is_done = self.is_done or "done" in message
            self.low_memory = message.get("low", self.low_memory)
            self.rank_report = message.get("looked", self.rank_report)
            if "ended" not in message and time.monotonic() - self.channel.last_received_s > SILENT_LIMIT_S:
                message = {"ended": f"nothing came for {SILENT_LIMIT_S:.0f} s: its power or link is gone"}
            if "ended" in message:
                self.ended_at_s = time.monotonic()
                self.end_reason = str(message["ended"])


class Rendezvous:
    """The port where hosts join; `terms` are what they must share with this host."""

    def __init__(self, port: int, token: str, terms: Mapping[str, Any], progress: Progress) -> None:
        self._token, self._terms, self._progress = token, terms, progress
        self._ready: queue.Queue[JoinedHost] = queue.Queue()
        self.members: list[JoinedHost] = []
        self.is_restarting = False
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
        self._listener = Listener(server, self._admit_guest)

    def wait_for_hosts(self, count: int, limit_s: float) -> Sequence[JoinedHost]:
        """Wait for `count` hosts; return them in the order in which they joined."""
        next_s = limit_s
        while not process.wait_until(lambda: self._admit_hosts(count), next_s):
            if self._preparing:
                next_s = _PREPARING_CHECK_INTERVAL_S
                continue
            joined_names = ", ".join(member.name for member in self.members) or "none"
            raise Problem(
                f"{count} more hosts are needed, and {len(self.members)} joined",
                cause=f"joined within {limit_s:.0f} s: {joined_names}",
                fix="on each missing host: medley join HEAD; or wait longer: --wait 600",
            )
        self._listener.stop()
        return self.members

    def _admit_hosts(self, count: int) -> bool:
        """Admit hosts that joined; return whether all joined. A second host of one name gets a number."""
        while len(self.members) < count and not self._ready.empty():
            member = self._ready.get()
            if any(other.name == member.name for other in self.members):
                member.name = f"{member.name}-{len(self.members) + 1}"
            self.members.append(member)
            threading.Thread(target=member.receive_until_end, daemon=True).start()
            self._progress.note(f"{member.name} has joined")
        self.members = [other for other in self.members if other.end_reason is None]
        return len(self.members) >= count

    def check(self) -> None:
        """Raise a Problem for a host that left."""
        if lost_host := next((member for member in self.members if member.end_reason is not None), None):
            raise _lost_host_problem(lost_host)

    def find_low_memory(self) -> str | None:
        """Return the figures of a host whose memory is low."""
        return next(
            (f"{member.name}: {member.low_memory}" for member in self.members if member.low_memory), None
        )

    def announce_restart(self) -> None:
        """Tell the hosts to rejoin by themselves after a loss, because the head restarts the model."""
        self.is_restarting = True
        for member in self.members:
            member.send({"again": True})

    def ask_hosts(self, *, is_final: bool) -> dict[str, Any]:
        """Return the hosts' reports about their ranks, by name; None for a host without an answer.

        `is_final`: with the ranks' stacks.
        """
        for member in self.members:
            member.rank_report = None
            member.send({"look": is_final})
        process.wait_until(
            lambda: all(member.rank_report or member.end_reason for member in self.members),
            _RANK_REPORT_LIMIT_S,
        )
        return {
            member.name: member.rank_report
            for member in self.members
            if member.rank_report or not member.end_reason
        }

    @contextlib.contextmanager
    def blame_first_host(self) -> Iterator[None]:
        """Report the host whose engine ended first, because the engine here often ends after it.

        A host counts only if it ended before, or if the engine here lost the connection to it.
        """
        try:
            yield
        except Problem as problem:
            ended_at_s = time.monotonic()
            is_elsewhere = _OTHER_HOST_PATTERN.search(problem.cause) or _NO_REASON_PATTERN.search(
                problem.cause
            )

            def list_lost() -> list[JoinedHost]:
                ended_members = ((member, member.end_reason) for member in self.members if member.end_reason)
                return [
                    member
                    for member, reason in ended_members
                    if member.ended_at_s < ended_at_s
                    or (is_elsewhere and not _OTHER_HOST_PATTERN.search(reason))
                ]

            if lost_hosts := process.wait_until(list_lost, SILENT_LIMIT_S):
                raise _lost_host_problem(lost_hosts[0]) from problem
            raise

    def end_hosts(self) -> None:
        """End the model on all hosts, and wait for that; lost hosts end by themselves."""
        self._listener.stop()
        for member in self.members:
            member.send({"end": True, "again": self.is_restarting})
        process.wait_until(
            lambda: all(member.end_reason is not None for member in self.members), _END_LIMIT_S
        )
        while not self._ready.empty():
            self._ready.get().channel.close()
        for member in self.members:
            member.channel.close()

    def _admit_guest(self, guest: Guest) -> bool:
        try:
            channel = Channel(guest.connection, self._token, server=True)
            _require_admissible(guest.admit(guest), "too many hosts have joined already")
            channel.send({"terms": self._terms})
            introduction = _receive_message(channel, _INTRODUCTION_LIMIT_S)
            _require_admissible(has_type(introduction, _Introduction), "its introduction is not valid")
            self._preparing.add(id(guest))
            _receive_message(channel, _PREPARE_LIMIT_S)  # `ready`: its environment and model are there
            host_facts = facts.read_facts(transcript.parse_transcript(introduction["facts"]))
        except (ChannelRefused, ChannelClosed, TimeoutError, ValueError, LookupError, Problem) as error:
            self._progress.note(f"{guest.address} did not join: {str(error).partition(chr(10))[0]}")
            return False
        finally:
            self._preparing.discard(id(guest))
        own_address = guest.connection.getsockname()[0]
        self._ready.put(
            JoinedHost(f"{introduction['host']} ({guest.address})", host_facts, channel, own_address)
        )
        return True


def _require_admissible(is_admissible: bool, cause: str) -> None:  # noqa: FBT001 - it is the question itself
    if not is_admissible:
        raise ChannelRefused(cause)


def _lost_host_problem(member: JoinedHost) -> Problem:
    return Problem(
        f"{member.name}, rank {member.rank}, is lost, and the model with it",
        cause=f"{tcp.explain_lost_address(member.own_address)}{member.end_reason}",
        fix="read the last lines of its output, then start both again: medley serve, medley join",
    )


def _receive_message(channel: Channel, limit_s: float) -> dict[str, Any]:
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
