"""Strangers at our listeners, many and slow ones: the right host comes in beside them, and after them."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.cluster import rendezvous_head
from medley.cluster.rendezvous_head import Rendezvous
from medley.model.transfer.connection import serve_pieces
from medley.model.transfer.inventory import build_manifest
from medley.model.transfer.pieces import PieceStore
from medley.network.secure_channel import Channel, connect_to_head
from medley.network.tcp import Guest, Listener, ListenLimits
from tests.model.transfer.models import PIECE, SECRET, model
from tests.waiting import NewThreads, wait_for

TOKEN = "0123456789abcdef" * 2
SAFE_S = ListenLimits().min_stranger_s + 0.2
"""After so long those who came first make room."""
# A process of its own, whose sockets do not count as the listener's: each says a byte now and then.
FLOOD = """
import socket, sys, time
port, count, source = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
held = []
for number in range(count):
    try:
        held.append(socket.create_connection(("127.0.0.1", port), timeout=20, source_address=(source, 0)))
    except OSError:
        pass
print("open", flush=True)
while True:
    for each in held:
        try:
            each.send(b"a")
        except OSError:
            pass
    time.sleep(0.2)
"""


@contextlib.contextmanager
def flood(port: int, count: int, source: str = "127.0.0.2") -> Iterator[None]:
    words = (sys.executable, "-c", FLOOD, str(port), str(count), source)
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "open\n"
        yield
        process.kill()


@pytest.fixture
def few_handles() -> Iterator[None]:
    """As many as this process has, and 120 more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(each.name) for each in Path("/proc/self/fd").iterdir())
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 120, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Notes:
    def note(self, text: str) -> None:
        pass


@pytest.mark.usefixtures("few_handles")
def test_a_host_joins_beside_and_after_a_flood_of_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handles ran out, accept gave up, and the meeting place was deaf from then on."""
    monkeypatch.setattr(rendezvous_head, "ALIVE_INTERVAL_S", 0.2)
    (tmp_path / "token").write_text(TOKEN)
    met = Rendezvous(0, TOKEN, {"engine": "vLLM"}, Notes())  # type: ignore[arg-type]
    facts = (Path(__file__).parents[1] / "host" / "recorded" / "spark.txt").read_text(encoding="utf-8")
    came = []
    try:
        with flood(met.port, 300):
            time.sleep(SAFE_S)
            came.append(connect_to_head("127.0.0.1", met.port, tmp_path / "token", 10))
        came.append(connect_to_head("127.0.0.1", met.port, tmp_path / "token", 10))
        for each in came:
            assert each.receive(10) == {"terms": {"engine": "vLLM"}}
            each.send({"host": "one", "facts": facts})
            each.send({"ready": True})
        assert len(met.wait_for_hosts(2, 10)) == 2
    finally:
        for each in came:
            each.close()
        met.end_hosts()


def test_a_host_gets_its_pieces_beside_slow_strangers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sixty-four of them held every place that there was."""
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    top = model(tmp_path / "from")
    source = PieceStore(build_manifest(str(top), piece_bytes=PIECE), top, whole=True)
    with serve_pieces(source, "127.0.0.1", SECRET) as port, flood(port, 200):
        time.sleep(SAFE_S)
        for _ in range(3):
            with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
                channel = Channel(connection, SECRET, server=False)
                channel.send({"piece": 0})
                assert channel.receive(10) == {"piece": 0}


@contextlib.contextmanager
def listening(limits: ListenLimits, *, admits: bool = False) -> Iterator[tuple[int, list[Guest]]]:
    """One whose guests say nothing until they are let go."""
    guests: list[Guest] = []

    def attend(guest: Guest) -> bool:
        if not admits or guest.admit(guest):
            guests.append(guest)
            while guest.connection.recv(100):
                pass
        return False

    new_threads = NewThreads()
    server = socket.create_server(("127.0.0.1", 0))
    port = server.getsockname()[1]
    listener = Listener(server, attend, limits)
    try:
        yield port, guests
    finally:
        listener.close()
        new_threads.wait_until_ended()


def attended(guests: list[Guest], count: int) -> None:
    wait_for(f"{count} are attended", lambda: len(guests) == count, state=lambda: guests)


def let_go(connection: socket.socket, limit_s: float = 30) -> bool:
    connection.settimeout(limit_s)
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True
    except TimeoutError:
        return False


def test_a_stranger_has_one_time_limit_for_all_that_it_says() -> None:
    with (
        listening(ListenLimits(stranger_limit_s=1)) as (port, _),
        socket.create_connection(("127.0.0.1", port)) as stranger,
    ):
        began = time.monotonic()
        while not let_go(stranger, 0.1) and time.monotonic() - began < 30:
            stranger.send(b"x")
        assert 0.8 < time.monotonic() - began < 30


def test_strangers_of_one_address_are_few_and_one_who_was_here_long_makes_room() -> None:
    with (
        listening(ListenLimits(max_per_address=3, min_stranger_s=300, stranger_limit_s=3000)) as (
            port,
            guests,
        ),
        contextlib.ExitStack() as stack,
    ):

        def come(source: str) -> socket.socket:
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
            )

        first = [come("127.0.0.2") for _ in range(3)]
        assert let_go(come("127.0.0.2")), "the fourth, at once"
        other = come("127.0.0.3")
        attended(guests, 4)
        for guest in guests:
            guest.since -= 600  # as if they had come ten minutes ago
        late = come("127.0.0.2")
        assert let_go(first[0])
        assert not any(let_go(each, 0.2) for each in (first[1], first[2], late, other))
        attended(guests, 5)


def test_in_all_they_are_few_and_the_address_with_most_makes_room() -> None:
    limits = ListenLimits(max_strangers=4, max_per_address=4, min_stranger_s=0)
    with listening(limits) as (port, _), contextlib.ExitStack() as stack:

        def come(source: str) -> socket.socket:
            return stack.enter_context(
                socket.create_connection(("127.0.0.1", port), source_address=(source, 0))
            )

        many = [come("127.0.0.2") for _ in range(3)]
        one, new = come("127.0.0.3"), come("127.0.0.4")
        assert let_go(many[0])
        assert not any(let_go(each, 0.2) for each in (one, new, many[2]))


def test_who_is_known_has_limits_of_its_own_and_stays() -> None:
    limits = ListenLimits(max_strangers=1, max_per_address=1, stranger_limit_s=2, max_authenticated=2)
    with listening(limits, admits=True) as (port, guests), contextlib.ExitStack() as stack:

        def come() -> socket.socket:
            return stack.enter_context(socket.create_connection(("127.0.0.1", port)))

        came = []
        for count in (1, 2):
            came.append(come())
            attended(guests, count)
        assert let_go(come())
        time.sleep(2.5)  # longer than a stranger has
        assert not any(let_go(each, 0.2) for each in came)
