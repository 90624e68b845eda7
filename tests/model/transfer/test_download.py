"""Whole transfers between folders, over the loopback."""

import contextlib
import fcntl
import os
import re
import shlex
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from medley import storage
from medley.model import hub
from medley.model.transfer import Manifest, ManifestFile, connection
from medley.model.transfer.download import FetchStopped, ModelFetch, Source
from medley.model.transfer.inventory import build_manifest, find_root
from medley.model.transfer.pieces import PieceStore
from medley.network.secure_channel import Channel, ChannelClosed
from medley.progress import SilentProgress
from tests.model.transfer.models import COUNT, PIECE, SECRET, SIZES, files, flip, model, repository
from tests.problems import raises_problem
from tests.waiting import NewThreads, wait_for

TOTAL = sum(SIZES.values())
Serve = Callable[[PieceStore], Source]


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.said: list[str] = []

    def note(self, text: str) -> None:
        self.said.append(text)


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PieceStore:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    top = model(tmp_path / "from")
    return PieceStore(build_manifest(str(top), piece_bytes=PIECE), top, whole=True)


@pytest.fixture
def serve() -> Iterator[Serve]:
    with contextlib.ExitStack() as stack:
        yield lambda held: Source(
            held.root.name,
            "127.0.0.1",
            stack.enter_context(connection.serve_pieces(held, "127.0.0.1", SECRET)),
        )


@pytest.fixture
def held(source: PieceStore, tmp_path: Path) -> PieceStore:
    return PieceStore(source.manifest, tmp_path / "to")


def test_from_one_to_another(source: PieceStore, held: PieceStore, serve: Serve) -> None:
    said: list[tuple[int, int]] = []
    run = ModelFetch(held, [serve(source)], SECRET, on_progress=lambda *each: said.append(each))
    run.run()
    assert files(held.root) == files(source.root)
    assert run.received_bytes == TOTAL
    assert said == sorted(said)
    assert said[-1] == (TOTAL, TOTAL)


class AskedHeld(PieceStore):
    """Pieces of a model, with an event: a receiver waits for one of them."""

    def __init__(self, manifest: Manifest, root: Path) -> None:
        super().__init__(manifest, root)
        self.asked = threading.Event()

    def wait_for_piece(self, number: int, limit_s: float) -> bool:
        self.asked.set()
        return super().wait_for_piece(number, limit_s)


def test_a_chain_passes_on_what_it_does_not_have_yet(
    source: PieceStore, tmp_path: Path, serve: Serve
) -> None:
    all_held = [AskedHeld(source.manifest, tmp_path / f"to{number}") for number in range(4)]
    sources = [serve(held) for held in all_held]
    notes = Notes()
    with ThreadPoolExecutor(4) as pool:
        # The last begins first: each waits for the one before it.
        runs = [
            pool.submit(ModelFetch(held, [before], SECRET, progress=notes).run)
            for held, before in zip(all_held[:0:-1], sources[-2::-1], strict=True)
        ]
        wait_for("each asks the one before it", lambda: all(held.asked.is_set() for held in all_held[:-1]))
        ModelFetch(all_held[0], [serve(source)], SECRET).run()
        for run in runs:
            run.result(20)
    for held in all_held:
        assert files(held.root) == files(source.root)
    assert notes.said == []


def test_a_repository_is_in_the_cache_only_when_it_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    top = repository(tmp_path / "hub", "org/name")
    found = build_manifest("org/name", piece_bytes=PIECE)
    from_ = serve(PieceStore(found, top, whole=True))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "other"))
    seen: list[bool] = []
    held = PieceStore(found, find_root("org/name"))
    ModelFetch(
        held, [from_], SECRET, on_progress=lambda *_: seen.append(bool(hub.list_snapshots("org/name")))
    ).run()
    assert set(seen[:-1]) == {False}
    assert seen[-1]
    assert files(held.root) == files(top)
    assert (held.root / "snapshots/c/config.json").is_symlink()
    assert build_manifest("org/name", piece_bytes=PIECE) == found


def test_what_is_there_is_not_fetched_again(source: PieceStore, held: PieceStore, serve: Serve) -> None:
    from_ = serve(source)
    ModelFetch(held, [from_], SECRET).run()
    flip(held.root / "a.safetensors", 5 * PIECE)
    (held.root / "a.safetensors").rename(held.root / "a.safetensors.medley-part")
    again = ModelFetch(PieceStore(source.manifest, held.root), [from_], SECRET)
    again.run()
    assert again.received_bytes == PIECE
    assert files(held.root) == files(source.root)


def test_nothing_to_do_asks_nobody(source: PieceStore) -> None:
    run = ModelFetch(PieceStore(source.manifest, source.root), [], SECRET)
    run.run()
    assert run.received_bytes == 0


def test_a_source_that_is_not_there_and_one_that_is(
    source: PieceStore, held: PieceStore, serve: Serve
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        gone = Source("gone", "127.0.0.1", closed.getsockname()[1])
    notes = Notes()
    ModelFetch(held, [gone, serve(source)], SECRET, progress=notes).run()
    assert files(held.root) == files(source.root)
    assert notes.said == [f"{gone}: Connection refused; going on from from"]


def test_a_source_with_a_wrong_piece(
    source: PieceStore, held: PieceStore, serve: Serve, tmp_path: Path
) -> None:
    other = PieceStore(source.manifest, model(tmp_path / "other"), whole=True)
    flip(other.root / "a.safetensors", 4 * PIECE)
    notes = Notes()
    run = ModelFetch(held, [serve(other), serve(source)], SECRET, progress=notes)
    run.run()
    assert files(held.root) == files(source.root)
    assert "it sent something else for piece 5 of 11 of a.safetensors; going on from from" in notes.said[0]
    assert len(notes.said) == 1
    assert run.received_bytes <= TOTAL + 5 * PIECE


def test_a_wrong_piece_and_nobody_else(source: PieceStore, held: PieceStore, serve: Serve) -> None:
    flip(source.root / "a.safetensors", 4 * PIECE)
    run = ModelFetch(held, [serve(source)], SECRET, retry_limit_s=0.5)
    with raises_problem(str(held.root), f"1 of {COUNT} ", cause="5 of 11"):
        run.run()
    assert not (held.root / "config.json").exists()
    assert not (held.root / "a.safetensors").exists()


def test_another_secret(source: PieceStore, held: PieceStore, serve: Serve) -> None:
    with raises_problem(str(held.root), f"{COUNT} of {COUNT} ") as caught:
        ModelFetch(held, [serve(source)], "another", retry_limit_s=0.2).run()
    assert "secret" in caught.value.cause or "closed" in caught.value.cause


def test_nobody_to_ask(held: PieceStore) -> None:
    with raises_problem(str(held.root), f"{COUNT} of {COUNT} ", cause="no host"):
        ModelFetch(held, [], SECRET, retry_limit_s=0).run()


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "SILENT_LIMIT_S", 0.5)
    monkeypatch.setattr(connection, "WAIT_LIMIT_S", 1.0)
    monkeypatch.setattr(connection, "POLL_INTERVAL_S", 0.1)


@pytest.fixture
def other(source: PieceStore, serve: Serve) -> Source:
    return serve(source)


@contextlib.contextmanager
def odd(behave: Callable[[Channel, socket.socket], None]) -> Iterator[Source]:
    """A source that knows the secret, and then behaves so."""
    with socket.create_server(("127.0.0.1", 0)) as server, contextlib.ExitStack() as stack:

        def attend() -> None:
            connection = stack.enter_context(server.accept()[0])
            with contextlib.suppress(ChannelClosed):
                behave(Channel(connection, SECRET, server=True), connection)

        thread = threading.Thread(target=attend)
        thread.start()
        yield Source("odd", "127.0.0.1", server.getsockname()[1])
        thread.join()


def dies(channel: Channel, connection: socket.socket) -> None:
    channel.receive(10)
    channel.send({"piece": 0})
    connection.sendall(b"x" * 100)
    connection.close()


def silent(channel: Channel, connection: socket.socket) -> None:
    del connection
    channel.receive(10)


def stalls(channel: Channel, connection: socket.socket) -> None:
    channel.receive(10)
    channel.send({"piece": 0})
    connection.sendall(b"x" * 100)


def waits(channel: Channel, connection: socket.socket) -> None:
    del connection
    while True:
        channel.send({"wait": 0})
        time.sleep(0.1)


@pytest.mark.parametrize(
    ("behave", "said"),
    [
        pytest.param(dies, r"closed the connection|reset by peer|Broken pipe", id="dies"),
        pytest.param(silent, "it was silent for", id="silent"),
        pytest.param(stalls, "it was too slow: 100 of 4096 bytes", id="stalls within a piece"),
        pytest.param(waits, "it had itself to wait", id="waits for ever"),
    ],
)
@pytest.mark.usefixtures("impatient")
def test_a_source_that_fails_midway(
    held: PieceStore,
    other: Source,
    behave: Callable[[Channel, socket.socket], None],
    said: str,
    tmp_path: Path,
) -> None:
    notes = Notes()
    begun = time.monotonic()
    with odd(behave) as source_:
        ModelFetch(held, [source_, other], SECRET, progress=notes).run()
    assert files(held.root) == files(tmp_path / "from")
    assert re.search(said, notes.said[0])
    assert time.monotonic() - begun < 20


@pytest.mark.parametrize("behave", [silent, waits], ids=["silent", "waiting"])
def test_it_stops_when_it_is_told(
    held: PieceStore, behave: Callable[[Channel, socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    for limit in ("SILENT_LIMIT_S", "WAIT_LIMIT_S"):
        monkeypatch.setattr(connection, limit, 600)
    new_threads, asked = NewThreads(), threading.Event()

    def noted(channel: Channel, theirs: socket.socket) -> None:
        asked.set()
        behave(channel, theirs)

    with odd(noted) as source_, ThreadPoolExecutor() as pool:
        run = ModelFetch(held, [source_], SECRET)
        result = pool.submit(run.run)
        assert asked.wait(30)
        run.stop()
        assert isinstance(result.exception(30), FetchStopped)
    assert held.is_ended, "and who waits for us is let go"
    assert new_threads.alive() == []


def test_it_stops_while_it_still_hashes(source: PieceStore, serve: Serve) -> None:
    held = PieceStore(source.manifest, source.root)
    run = ModelFetch(held, [serve(source)], SECRET)
    run.stop()
    with pytest.raises(FetchStopped):
        run.run()


def test_what_came_before_a_stop_is_kept(source: PieceStore, held: PieceStore, serve: Serve) -> None:
    from_ = serve(source)

    def stop(done_bytes: int, _: int) -> None:
        if done_bytes >= 5 * PIECE:
            run.stop()

    run = ModelFetch(held, [from_], SECRET, on_progress=stop)
    with pytest.raises(FetchStopped):
        run.run()
    again = ModelFetch(PieceStore(source.manifest, held.root), [from_], SECRET)
    again.run()
    assert again.received_bytes <= TOTAL - 5 * PIECE
    assert files(held.root) == files(source.root)


def test_no_room_is_a_problem_before_anything_comes(source: PieceStore, tmp_path: Path, serve: Serve) -> None:
    size_bytes, piece_bytes = storage.measure_free_bytes(tmp_path) * 2, 64 << 20
    huge = ManifestFile("x", size_bytes, ("0" * 64,) * -(-size_bytes // piece_bytes))
    held = PieceStore(Manifest((huge,), (), piece_bytes), tmp_path / "to")
    with raises_problem(
        socket.gethostname(), str(held.root), cause=f"{size_bytes} ", fix=f"df -h {held.root}"
    ):
        ModelFetch(held, [serve(source)], SECRET).run()
    assert files(held.root) == {}


def test_a_folder_that_cannot_be_made(source: PieceStore, serve: Serve, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    to = tmp_path / "file" / "to; $(id)"
    with raises_problem(
        str(to), socket.gethostname(), fix=f"sudo install -d -o $USER {shlex.quote(str(to))}"
    ):
        ModelFetch(PieceStore(source.manifest, to), [serve(source)], SECRET).run()


def test_two_to_one_folder(held: PieceStore, serve: Serve, source: PieceStore) -> None:
    held.root.mkdir()
    handle = os.open(held.root, os.O_RDONLY)
    fcntl.flock(handle, fcntl.LOCK_EX)
    run = ModelFetch(held, [serve(source)], SECRET)
    with raises_problem(str(held.root), cause="lock"):
        run.run()
    os.close(handle)
    ModelFetch(PieceStore(source.manifest, held.root), [serve(source)], SECRET).run()
