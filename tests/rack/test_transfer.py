"""A model from one host to three over shaped wires, and all that can happen on the way."""

import filecmp
import os
from collections.abc import Iterator

import pytest

from medley.model.transfer import PIECE_BYTES
from tests.model.transfer.models import flip
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec
from tests.rack.transfers import ROOT, Transfer, model, start

pytestmark = pytest.mark.rack

SIZE = 40 << 20
MBIT = 200
ALONE_S = SIZE * 8 / (MBIT * 1e6)
NAMES = ("model-1.safetensors", "model-2.safetensors", "config.json")


@pytest.fixture(scope="module")
def made() -> Iterator[Rack]:
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces and mounts")
    with up(Spec(4, (Link(mbit=MBIT),), name=f"pytest-{os.getpid()}-transfer")) as rack:
        model(rack.hosts[0], SIZE)
        yield rack


@pytest.fixture
def lacking(made: Rack) -> tuple[Host, ...]:
    """Three hosts without the model."""
    for host in made.hosts[1:]:
        host.says("rm", "-rf", ROOT)
    return made.hosts[1:]


def same(one: Host, other: Host) -> bool:
    return filecmp.cmpfiles(one.path(ROOT), other.path(ROOT), NAMES, shallow=False) == ([*NAMES], [], [])


def test_to_three_as_fast_as_to_one(made: Rack, lacking: tuple[Host, ...]) -> None:
    alone_s = seconds(made, lacking[:1])
    lacking[0].says("rm", "-rf", ROOT)
    took_s = seconds(made, lacking)
    assert 0.9 * ALONE_S < took_s < 2.2 * alone_s, "one after the other takes three times as long"


def seconds(made: Rack, lacking: tuple[Host, ...]) -> float:
    """How long it takes to send the model to these hosts."""
    transfer = Transfer(made.hosts[:1], lacking)
    runs = [transfer.runs[host.name] for host in lacking]
    began = min(run.at("port") for run in runs)
    for run in runs:
        assert run.await_("done") == SIZE + 2
        assert same(made.hosts[0], run.host)
        assert run.all("note") == []
    took_s = max(run.at("done") for run in runs) - began
    transfer.stop()
    return took_s


def test_killed_and_resumed(made: Rack, lacking: tuple[Host, ...]) -> None:
    """In the middle of the chain: the next one goes on from the first host meanwhile."""
    transfer = Transfer(made.hosts[:1], lacking)
    two, three, four = (transfer.runs[host.name] for host in lacking)
    three.await_bytes(SIZE // 2)
    three.kill()
    there = three.host.path(ROOT)
    assert not (there / "config.json").exists()
    again = transfer.again(three.host)
    received = again.await_("done")
    lost = received + max(done for done, _ in three.all("progress")) - SIZE
    assert lost <= 4 * PIECE_BYTES, "what was asked for and not yet whole"
    for run in (two, again, four):
        run.await_("done")
        assert same(made.hosts[0], run.host)
    assert "going on from host2" in four.all("note")[0]
    assert four.all("done")[0] <= SIZE + 4 * PIECE_BYTES
    transfer.stop()


def test_a_silent_source_is_left(made: Rack, lacking: tuple[Host, ...]) -> None:
    transfer = Transfer(made.hosts[:1], lacking[:2])
    two, three = (transfer.runs[host.name] for host in lacking[:2])
    three.await_bytes(SIZE // 4)
    two.host.pause()
    try:
        assert three.await_("done") <= SIZE + 4 * PIECE_BYTES
        assert "; going on from host1" in three.all("note")[0]
        assert same(made.hosts[0], three.host)
    finally:
        two.host.resume()
    two.await_("done")
    assert same(made.hosts[0], two.host)
    transfer.stop()


def test_a_flipped_bit_is_found_and_mended(made: Rack, lacking: tuple[Host, ...]) -> None:
    transfer = Transfer(made.hosts[:1], lacking[:1])
    run = transfer.runs["host2"]
    run.await_("done")
    assert start("check", run.host).await_("damage") == []
    flip(run.host.path(f"{ROOT}/{NAMES[1]}"), 3 * PIECE_BYTES + 1000)
    assert start("check", run.host).await_("damage") == [f"piece 4 of 5 of {NAMES[1]} is damaged"]
    assert not same(made.hosts[0], run.host)
    run.kill()
    assert transfer.again(run.host).await_("done") == PIECE_BYTES
    assert same(made.hosts[0], run.host)
    transfer.stop()


def test_a_disk_without_room(made: Rack, lacking: tuple[Host, ...]) -> None:
    """Found before anything is sent; and the other hosts get it all the same."""
    small = lacking[0]
    small.says("mkdir", ROOT)
    small.says("mount", "-t", "tmpfs", "-o", "size=20m", "small", ROOT)
    try:
        transfer = Transfer(made.hosts[:1], lacking[:2])
        problem = transfer.runs[small.name].await_("problem")
        assert problem["what"] == f"{small.name} has no room for {ROOT}"
        assert f"{SIZE + 2} bytes are needed" in problem["cause"]
        assert f"{20 << 20} are free" in problem["cause"]
        assert small.says("ls", "-A", ROOT) == ""
        assert transfer.runs[lacking[1].name].await_("done") == SIZE + 2
        transfer.stop()
    finally:
        small.says("umount", ROOT)


def test_a_power_cut(made: Rack, lacking: tuple[Host, ...]) -> None:
    """The last test here: host2 is gone then."""
    transfer = Transfer(made.hosts[:1], lacking[:2])
    two, three = (transfer.runs[host.name] for host in lacking[:2])
    three.await_bytes(SIZE // 4)
    two.host.kill()
    assert three.await_("done") <= SIZE + 4 * PIECE_BYTES
    assert "; going on from host1" in three.all("note")[0]
    assert same(made.hosts[0], three.host)
    assert not (two.host.path(ROOT) / "config.json").exists()
    transfer.stop()
