import hashlib
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from medley.model.transfer import connection
from medley.model.transfer.inventory import build_manifest
from medley.model.transfer.pieces import PieceStore
from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused
from tests.model.transfer.models import COUNT, PIECE, SECRET, model
from tests.problems import raises_problem
from tests.waiting import NewThreads, wait_for


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PieceStore:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    top = model(tmp_path / "from")
    return PieceStore(build_manifest(str(top), piece_bytes=PIECE), top, whole=True)


@contextmanager
def channel(port: int, secret: str = SECRET) -> Iterator[Channel]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as connection:
        yield Channel(connection, secret, server=False)


def asked(source: PieceStore, channel: Channel, number: int) -> bytes:
    channel.send({"piece": number})
    assert channel.receive(10) == {"piece": number}
    into = memoryview(bytearray(source.manifest.pieces[number].size_bytes))
    at = 0
    while at < len(into):
        at += channel.receive_file_part(into[at:], 10)
    return bytes(into)


def test_pieces_are_handed_out_in_any_order(source: PieceStore) -> None:
    with connection.serve_pieces(source, "127.0.0.1", SECRET) as port:
        assert port in range(24_020, 24_100)
        with channel(port) as one, channel(port) as other:
            for number in (COUNT - 1, 0, 11, 0):
                for each in (one, other):
                    said = asked(source, each, number)
                    assert hashlib.sha256(said).hexdigest() == source.manifest.pieces[number].sha256


def test_who_lacks_the_secret_gets_nothing(source: PieceStore) -> None:
    with connection.serve_pieces(source, "127.0.0.1", SECRET) as port:
        with pytest.raises((ChannelRefused, ChannelClosed)), channel(port, "another"):
            pass
        with socket.create_connection(("127.0.0.1", port), timeout=10) as stranger:
            stranger.sendall(b"GET / HTTP/1.1\r\n\r\n")
            said = b"".join(iter(lambda: stranger.recv(4096), b""))
        assert len(said) < 300, "a challenge, and an answer to the stranger's"


@pytest.mark.parametrize(
    "message", [{"piece": 10**9}, {"piece": "x"}, {"piece": None}, {}, {"piece": -(10**9)}]
)
def test_nonsense_ends_a_connection_and_no_other(source: PieceStore, message: dict[str, object]) -> None:
    with connection.serve_pieces(source, "127.0.0.1", SECRET) as port, channel(port) as well:
        with channel(port) as odd:
            odd.send(message)
            with pytest.raises(ChannelClosed):
                odd.receive(10)
        assert asked(source, well, 0)


def test_who_asks_too_early_is_told_to_wait(
    source: PieceStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "WAIT_MESSAGE_INTERVAL_S", 0.1)
    held = PieceStore(source.manifest, tmp_path / "to")
    with connection.serve_pieces(held, "127.0.0.1", SECRET) as port, channel(port) as one:
        one.send({"piece": 2})
        assert one.receive(10) == {"wait": 2}
        with source.open_piece(2) as file:
            file.seek(2 * PIECE)
            held.store_piece(2, memoryview(file.read(PIECE)))
        while (said := one.receive(10)) == {"wait": 2}:
            pass
        assert said == {"piece": 2}


def test_who_asks_in_vain_is_told(source: PieceStore, tmp_path: Path) -> None:
    held = PieceStore(source.manifest, tmp_path / "to")
    held.end()
    with connection.serve_pieces(held, "127.0.0.1", SECRET) as port, channel(port) as one:
        one.send({"piece": 0})
        assert "it lacks piece 1 of 11 of a.safetensors" in (one.receive(10) or {})["gone"]
    (source.root / "a.safetensors").unlink()
    with connection.serve_pieces(source, "127.0.0.1", SECRET) as port, channel(port) as one:
        one.send({"piece": 0})
        assert (one.receive(10) or {})["gone"] == "a.safetensors is no longer there"


def test_at_the_end_nothing_is_left(source: PieceStore, tmp_path: Path) -> None:
    """Neither with one who only listens, nor one who waits for a piece, nor one who says nothing at all."""
    new_threads = NewThreads()
    held = PieceStore(source.manifest, tmp_path / "to")
    with connection.serve_pieces(held, "127.0.0.1", SECRET) as port, channel(port), channel(port) as waiting:
        waiting.send({"piece": 0})
        silent = socket.create_connection(("127.0.0.1", port))
        # The listener has a thread, and one for each of the three.
        wait_for("all three are attended", lambda: len(new_threads.alive()) == 4)
        begun = time.monotonic()
    assert time.monotonic() - begun < 8, "and not the ten that a stranger has"
    assert new_threads.alive() == []
    silent.close()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))


def test_several_at_once_have_ports_of_their_own(source: PieceStore) -> None:
    with (
        connection.serve_pieces(source, "127.0.0.1", SECRET) as one,
        connection.serve_pieces(source, "127.0.0.1", SECRET) as two,
    ):
        assert one != two


def test_no_port_is_left(source: PieceStore, monkeypatch: pytest.MonkeyPatch) -> None:
    with connection.serve_pieces(source, "127.0.0.1", SECRET) as port:
        monkeypatch.setattr(connection, "TRANSFER_PORTS", range(port, port + 1))
        with (
            raises_problem("127.0.0.1", cause=f"{port} to {port} ", fix="ss -ltnp"),
            connection.serve_pieces(source, "127.0.0.1", SECRET),
        ):
            pass


def test_an_address_of_another_host(source: PieceStore) -> None:
    with (
        raises_problem("192.0.2.1", fix="ip -brief address"),
        connection.serve_pieces(source, "192.0.2.1", SECRET),
    ):
        pass
