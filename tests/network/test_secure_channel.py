"""A channel whose two ends hold one token; here both are threads of this process, over real sockets."""

import itertools
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from medley.network.secure_channel import Channel, ChannelClosed, ChannelRefused, connect_to_head
from tests.odd_input import COUNTS, blobs, hold, json_texts
from tests.problems import raises_problem
from tests.waiting import wait_for

TOKEN, OTHER = "0123456789abcdef", "fedcba9876543210"


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(server.getsockname()) as one,
        server.accept()[0] as other,
    ):
        yield one, other


def both(pair: tuple[socket.socket, socket.socket], other: str = TOKEN) -> tuple[Channel, Channel]:
    with ThreadPoolExecutor() as pool:
        server = pool.submit(Channel, pair[0], TOKEN, server=True)
        client = pool.submit(Channel, pair[1], other, server=False)
        return server.result(20), client.result(20)


def test_what_is_said_is_heard_in_order(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = both(pair)
    for number in range(3):
        client.send({"number": number, "text": "ä\n"})
    assert [server.receive(20) for _ in range(3)] == [{"number": each, "text": "ä\n"} for each in range(3)]
    server.send({"large": "x" * 200_000})
    assert len((client.receive(20) or {})["large"]) == 200_000


def test_a_part_of_a_file_goes_beside_the_messages(
    pair: tuple[socket.socket, socket.socket], tmp_path: Path
) -> None:
    server, client = both(pair)
    content = bytes(range(256)) * 20_000
    (tmp_path / "x").write_bytes(content)
    into = memoryview(bytearray(len(content) - 1000))
    assert client.receive_file_part(into, 0.1) == 0
    with ThreadPoolExecutor() as pool, (tmp_path / "x").open("rb") as file:
        server.send({"comes": len(into)})
        given = pool.submit(server.send_file_part, file, 1000, len(into), 20)
        assert client.receive(20) == {"comes": len(into)}
        at = 0
        while at < len(into):
            at += client.receive_file_part(into[at:], 20)
        given.result(20)
        assert bytes(into) == content[1000:]
        with pytest.raises(ChannelClosed, match="ended 1 bytes too soon"):
            server.send_file_part(file, len(content) - 1, 2, 20)
        server.send({"next": 1})
    assert client.receive_file_part(into[:1], 20) == 1
    assert client.receive(20) == {"next": 1}


def test_a_part_ends_with_its_channel(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = both(pair)
    server.close()
    with pytest.raises(ChannelClosed):
        client.receive_file_part(memoryview(bytearray(10)), 20)


def test_nothing_said_is_none_in_time(pair: tuple[socket.socket, socket.socket]) -> None:
    server, _ = both(pair)
    began = time.monotonic()
    assert server.receive(0.2) is None
    assert 0.1 < time.monotonic() - began < 20


def test_another_token_is_refused_on_both_ends(pair: tuple[socket.socket, socket.socket]) -> None:
    with ThreadPoolExecutor() as pool:
        ends = [
            pool.submit(Channel, pair[0], TOKEN, server=True),
            pool.submit(Channel, pair[1], OTHER, server=False),
        ]
        for end in ends:
            assert isinstance(end.exception(20), ChannelRefused | ChannelClosed)


def test_the_token_is_not_on_the_wire() -> None:
    said: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def listen() -> None:
            connection = server.accept()[0]
            with connection:
                connection.sendall(b"00" * 32 + b"\n")
                while read := connection.recv(4096):
                    said.append(read)

        thread = threading.Thread(target=listen)
        thread.start()
        connection = socket.create_connection(server.getsockname())
        with ThreadPoolExecutor() as pool:
            end = pool.submit(Channel, connection, TOKEN, server=False)
            wait_for("it has sent its challenge and its answer", lambda: b"".join(said).count(b"\n") == 2)
            connection.shutdown(socket.SHUT_RDWR)
            assert isinstance(end.exception(20), ChannelClosed | ChannelRefused)
        thread.join(20)
    assert said
    assert TOKEN.encode() not in b"".join(said)


def test_whoever_sends_ones_own_words_back_is_refused(pair: tuple[socket.socket, socket.socket]) -> None:
    """An echo knows no token."""

    def echo() -> None:
        try:
            while read := pair[1].recv(4096):
                pair[1].sendall(read)
        except OSError:
            return

    thread = threading.Thread(target=echo)
    thread.start()
    with pytest.raises(ChannelRefused):
        Channel(pair[0], TOKEN, server=True)
    thread.join(20)


@pytest.mark.parametrize(
    "spoiled",
    [
        pytest.param(lambda line: line.replace(b"1", b"2"), id="changed"),
        pytest.param(lambda line: line + line, id="repeated"),
        pytest.param(lambda _: b"hello\n", id="another's"),
    ],
)
def test_a_message_that_is_not_as_it_was_sent_is_refused(spoiled: object) -> None:
    """Between the ends somebody sits who hands on the handshake, and then what he likes."""
    assert callable(spoiled)
    with socket.create_server(("127.0.0.1", 0)) as front, socket.create_server(("127.0.0.1", 0)) as back:
        client_end = socket.create_connection(front.getsockname())
        middle_front = front.accept()[0]
        middle_back = socket.create_connection(back.getsockname())
        server_end = back.accept()[0]
        with client_end, middle_front, middle_back, server_end:

            def between() -> None:
                for source, target in ((middle_front, middle_back), (middle_back, middle_front)) * 2:
                    target.sendall(_line(source))
                middle_back.sendall(spoiled(_line(middle_front)))

            thread = threading.Thread(target=between)
            thread.start()
            server, client = both((server_end, client_end))
            client.send({"pay": 1})
            with pytest.raises(ChannelRefused):
                [server.receive(20) for _ in range(2)]
            thread.join(20)


def _line(source: socket.socket) -> bytes:
    found = b""
    while not found.endswith(b"\n"):
        found += source.recv(1)
    return found


def test_an_end_that_is_gone_is_closed(pair: tuple[socket.socket, socket.socket]) -> None:
    server, client = both(pair)
    client.close()
    with pytest.raises(ChannelClosed):
        server.receive(20)


def test_nobody_listens(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text(TOKEN)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    began = time.monotonic()
    fix = "medley serve MODEL --launcher mp --hosts 2"
    with raises_problem(f"127.0.0.1:{port} ", "1 s", cause="Connection refused", fix=fix):
        connect_to_head("127.0.0.1", port, token, 1)
    assert 1 <= time.monotonic() - began < 30


def test_a_server_says_nothing_made_of_the_token_to_who_has_not_shown_it(
    pair: tuple[socket.socket, socket.socket],
) -> None:
    """An HMAC of it would let a stranger try tokens at leisure."""
    with ThreadPoolExecutor() as pool:
        server = pool.submit(Channel, pair[0], TOKEN, server=True)
        pair[1].sendall(b"ab" * 32 + b"\n" + b"cd" * 32 + b"\n")
        with pytest.raises(ChannelRefused, match="its token is different"):
            server.result(20)
    said = b"".join(iter(lambda: pair[1].recv(4096), b""))
    assert len(said) == 65
    assert said.endswith(b"\n")


@pytest.mark.parametrize(
    "challenge", [b"", b"ab" * 31, b"ab" * 33, b"AB" * 32, b"zz" * 32, b"ab" * 32 + b"\r", b"x" * 5000]
)
def test_a_challenge_has_one_form(pair: tuple[socket.socket, socket.socket], challenge: bytes) -> None:
    with ThreadPoolExecutor() as pool:
        server = pool.submit(Channel, pair[0], TOKEN, server=True)
        pair[1].sendall(challenge + b"\n")
        with pytest.raises(ChannelRefused, match=r"another protocol|too long"):
            server.result(20)


@pytest.mark.parametrize("odd", [b"[1]", b"null", b'"x"', b"", b"{", b"[" * 100_000], ids=range(6))
def test_what_is_no_table_is_no_message(pair: tuple[socket.socket, socket.socket], odd: bytes) -> None:
    listening, speaking = both(pair)
    speaking.send_text(odd)
    with pytest.raises(ChannelRefused, match="invalid message"):
        listening.receive(20)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_a_handshake(count: int) -> None:
    """The server's end, and the client's: whatever comes, it is refused, or closed."""
    whole = b"ab" * 32 + b"\n" + b"cd" * 32 + b"\n" + b"ef" * 32 + b' {"a": 1}\n'
    sides = itertools.cycle((True, False))

    def shake(said: bytes) -> None:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname()) as one,
            server.accept()[0] as other,
        ):
            other.setblocking(False)  # noqa: FBT003 - the name is the standard library's
            other.send(said[:100_000])
            other.shutdown(socket.SHUT_WR)
            Channel(one, TOKEN, server=next(sides))

    hold(shake, blobs([whole]), count, (ChannelRefused, ChannelClosed))


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_messages(count: int, pair: tuple[socket.socket, socket.socket]) -> None:
    """Of one who holds the token: each is a table, or refused."""
    server, client = both(pair)

    def say(text: str) -> None:
        nonlocal server, client
        raw = text.encode("utf-8", "replace")[: 1 << 20].replace(b"\n", b" ")
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(client.send_text, raw)
            try:
                assert isinstance(server.receive(20), dict)
            finally:
                sending.result(20)

    hold(say, json_texts([{"order": {"words": ["vllm"]}, "alive": True}]), count, (ChannelRefused,))
