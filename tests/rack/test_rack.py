"""The rack is what it says: hosts that are apart, wires that can be cut, and nothing left of either."""

import socket
import sys
import threading
import time
from pathlib import Path

import pytest

from medley import process
from medley.command import Command
from medley.process_identity import list_descendants
from tests.problems import raises_problem
from tests.rack import running_racks
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.rack import Rack
from tests.rack.spec import Link, Spec
from tests.waiting import wait_for

pytestmark = pytest.mark.rack


def reaches(host: Host, name: str) -> bool:
    return host.run(["ping", "-c1", "-W0.5", name]).status == 0


def test_hosts_are_apart_and_meet_by_name(rack: Up) -> None:
    one, two = rack(2).hosts
    assert (one.says("hostname"), two.says("uname", "-n")) == ("host1", "host2")
    assert reaches(one, "host2")
    assert reaches(two, "host1")
    assert one.says("ls", "/sys/class/net").split() == ["eth0", "lo"]
    for folder in ("/tmp", "/dev/shm", "/run", "/etc"):
        one.says("touch", f"{folder}/mark-of-host1")
        assert two.run(["test", "-e", f"{folder}/mark-of-host1"]).status == 1, folder
        assert not Path(f"{folder}/mark-of-host1").exists(), folder
    assert one.path("/tmp/mark-of-host1").exists()


def test_a_host_has_its_own_home_state_and_processes(rack: Up) -> None:
    (host,) = rack(1).hosts
    assert host.says("sh", "-c", "echo $HOME ~root; pwd") == "/tmp/home /tmp/home\n/tmp/home"
    assert host.says("sh", "-c", "echo $MEDLEY_STATE").startswith("/tmp/home/")
    assert host.says("sh", "-c", "echo /proc/[0-9]*").split()[0] == "/proc/1"
    assert len(host.says("sh", "-c", "ls -d /proc/[0-9]*").split()) <= 3
    given = host.run(Command(("sh", "-c", "echo $OURS; exit 7"), env={"OURS": "given"}))
    assert given == process.ProcessResult(7, ("given",))
    assert host.says(sys.executable, "-c", "import medley; print('seen')") == "seen"


def test_an_orphan_is_reaped(rack: Up) -> None:
    (host,) = rack(1).hosts
    orphan = host.says("sh", "-c", "setsid sh -c 'sleep 0.2 >/dev/null & echo $!'")
    state = f"cat /proc/{orphan}/stat || true"
    wait_for(
        "the orphan is reaped",
        lambda: host.run(["test", "-e", f"/proc/{orphan}"]).status == 1,
        state=lambda: host.says("sh", "-c", state),
    )


def test_kill_takes_everything_and_the_others_stay(rack: Up) -> None:
    made = rack(2)
    one, two = made.hosts
    busy = two.start(["sh", "-c", "trap '' TERM HUP; setsid sleep 600 & echo up; wait"])
    wait_for("the program runs", lambda: "up" in list(busy.last_lines), state=lambda: list(busy.last_lines))
    family = list_descendants(two.first_process) | list_descendants(busy.pid)
    assert len(family) >= 2
    two.kill()
    assert [each for each in family if each.is_alive] == []
    finished = busy.wait(20)
    assert finished is not None
    assert finished.status == 137
    assert not reaches(one, "host2")
    assert two.path("/etc/hostname").read_text() == "host2\n", "a disk outlives its host"


def test_a_cut_link_stops_traffic_until_it_is_mended(rack: Up) -> None:
    made = rack(Spec(3, (Link("lan"), Link("back"))))
    one = made.hosts[0]
    made.cut("lan", "host2")
    assert not reaches(one, "host2")
    assert one.says("cat", "/sys/class/net/eth0/carrier") == "1"
    assert made["host2"].says("cat", "/sys/class/net/eth0/carrier") == "0"
    assert reaches(one, "host3")
    assert reaches(one, "host2.back")
    made.mend("lan", "host2")
    wait_for("host1 reaches host2", lambda: reaches(one, "host2"))


def test_a_cable_joins_two_and_its_dead_end_is_seen(rack: Up) -> None:
    made = rack(Spec(3, (Link.cable("cx7", "host1", "host2", mtu=9000, interface="enp1s0f0np0"),)))
    one, two, three = made.hosts
    assert one.says("ping", "-c1", "-W1", "-Mdo", "-s8900", "host2.cx7")
    assert three.says("ls", "/sys/class/net") == "lo"
    carrier = "/sys/class/net/enp1s0f0np0/carrier"
    made.cut("cx7")
    assert (one.says("cat", carrier), two.says("cat", carrier)) == ("0", "0")
    made.mend("cx7")
    wait_for("host1 reaches host2", lambda: reaches(one, "host2"))
    two.kill()
    wait_for("host1 has no carrier", lambda: one.says("cat", carrier) == "0")


def mbit(made: Rack, size: int) -> float:
    """What a TCP connection between the first two hosts carries."""
    sender, receiver = made.hosts
    with receiver.network():
        server = socket.create_server((receiver.address, 0))
    with sender.network():
        client = socket.create_connection(server.getsockname(), timeout=30)
    there, _ = server.accept()
    with server, client, there:
        begin = time.monotonic()
        writer = threading.Thread(target=client.sendall, args=(bytes(size),))
        writer.start()
        got = 0
        while got < size:
            got += len(there.recv(1 << 20))
        writer.join()
        return size * 8 / 1e6 / (time.monotonic() - begin)


def test_a_shaped_link_is_as_fast_as_it_says(rack: Up) -> None:
    made = rack(Spec(2, (Link(mbit=40),)))
    slow = mbit(made, 4_000_000)
    made.shape("lan", 200)
    fast = mbit(made, 20_000_000)
    assert slow < 48
    assert 2.5 < fast / slow < 7, f"{slow:.0f} and {fast:.0f} Mbit/s"


def test_a_slow_host_gets_its_share_of_a_core(rack: Up) -> None:
    (host,) = rack(Spec(1, cpus={"host1": 0.3})).hosts
    loop = "while time.monotonic() < t + 1.5: pass"
    busy = f"import time; t = time.monotonic()\n{loop}\nprint(time.process_time())"
    assert float(host.says(sys.executable, "-c", busy)) < 0.75


def test_a_firewall_swallows_a_range(rack: Up) -> None:
    one, two = rack(2).hosts
    with two.network():
        server = socket.create_server((two.address, 6379))
    with server:
        two.drop(6000, 7000)
        with one.network(), pytest.raises(TimeoutError):
            socket.create_connection((two.address, 6379), timeout=0.5)
        two.allow()
        with one.network(), socket.create_connection((two.address, 6379), timeout=20):
            pass


def test_a_paused_host_says_nothing_until_it_goes_on(rack: Up) -> None:
    (host,) = rack(1).hosts
    ticks = host.path("/tmp/ticks")
    ticks.touch()
    host.start(["sh", "-c", "while echo tick >>/tmp/ticks; do sleep 0.05; done"])
    wait_for("it ticks", lambda: ticks.stat().st_size)
    host.pause()
    seen = ticks.stat().st_size
    time.sleep(0.5)  # in which it would tick ten times
    assert ticks.stat().st_size == seen
    host.resume()
    wait_for("it ticks again", lambda: ticks.stat().st_size > seen)
    host.pause()  # and is taken down like any other


def test_two_racks_at_once_do_not_meet(rack: Up) -> None:
    (first,) = rack(1).hosts
    (second,) = rack(1).hosts
    assert first.address == second.address
    first.says("touch", "/tmp/mark")
    assert second.run(["test", "-e", "/tmp/mark"]).status == 1


def test_what_cannot_come_up_says_why(rack: Up) -> None:
    with raises_problem(cause="mtu"):
        rack(Spec(1, (Link("lan", mtu=1),)))
    wait_for(
        "the keeper of that rack has ended",
        lambda: all(keeper.spec.links[0].mtu != 1 for keeper in running_racks.keepers()),
        state=running_racks.keepers,
    )


def test_a_host_boots_again(rack: Up) -> None:
    made = rack(Spec(2, (Link("lan"), Link.cable("cx7", "host1", "host2", mtu=9000))))
    two = made["host2"]
    two.says("sh", "-c", "echo kept >/tmp/home/file; echo gone >/dev/shm/file")
    two.start(["sleep", "600"])
    two.kill()
    assert made["host1"].run(["ping", "-c1", "-W1", "host2"]).status == 1
    made = made.boot("host2")
    two = made["host2"]
    assert two.says("cat", "/tmp/home/file") == "kept"
    assert two.run(["cat", "/dev/shm/file"]).status == 1
    assert "sleep" not in two.says("ps", "ax")
    for link in ("lan", "cx7"):
        made["host1"].says("ping", "-c1", "-W2", f"host2.{link}")
    two.pause()
    two.resume()
