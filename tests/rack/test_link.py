"""`medley link` on real wires: measured is what they carry; what is set up is there, and goes again."""

import json
import sys

import pytest

from medley import process
from tests.rack.conftest import Up
from tests.rack.host import Host
from tests.rack.spec import Link, Spec
from tests.waiting import wait_for

pytestmark = pytest.mark.rack

MEDLEY = (sys.executable, "-m", "medley")


def started(host: Host, *words: str) -> process.Process:
    """Its process id on the host is in /tmp/pid."""
    return host.start(["sh", "-c", 'echo $$ >/tmp/pid; exec "$@"', "sh", *MEDLEY, *words])


def serves(server: process.Process, address: str) -> None:
    line = f"on the other host: medley link test {address}"
    wait_for(
        f"it prints: {line}", lambda: line in list(server.last_lines), state=lambda: list(server.last_lines)
    )


def test_a_link_is_measured_at_what_it_carries(rack: Up) -> None:
    made = rack(Spec(2, (Link("lan"), Link.cable("cx7", "host1", "host2", mbit=200))))
    one, two = made.hosts
    there = two.port("cx7")
    server = started(two, "link", "test", "--serve", "--link", there.interface)
    serves(server, there.address)
    ended = one.run([*MEDLEY, "link", "test", there.address, "--seconds", "2", "--json"])
    found = json.loads(ended.lines[-1])
    assert found["interface"] == "eth1"
    assert 120 < found["there"]["mbit"] < 260
    assert 120 < found["back"]["mbit"] < 260
    assert (found["ping"]["received"], found["full_ping"]["received"]) == (10, 3)
    # A virtual wire reports 10 Gb/s, so that one of 200 Mb/s is slow.
    assert ended.status == 1
    assert [each["what"] for each in found["problems"]] == ["eth1 carries less than half of what it should"]
    two.says("sh", "-c", "kill -INT $(cat /tmp/pid)")
    finished = server.wait(20)
    assert finished is not None
    assert finished.status == 130
    assert "iperf3" not in two.says("sh", "-c", "cat /proc/[0-9]*/comm")


def test_a_switch_with_a_smaller_mtu_is_found(rack: Up) -> None:
    one, two = rack(2).hosts
    for host in (one, two):
        host.says("ip", "link", "set", "dev", "eth0", "mtu", "4000")
    server = started(two, "link", "test", "--serve")
    serves(server, two.address)
    ended = one.run([*MEDLEY, "link", "test", "host2", "--seconds", "1", "--streams", "1"])
    assert ended.status == 1
    assert "medley: packets of 4000 bytes do not get through to host2" in ended.lines


def test_who_does_not_serve_is_named(rack: Up) -> None:
    one, two = rack(2).hosts
    ended = one.run([*MEDLEY, "link", "test", "host2"])
    assert ended.status == 1
    assert f"medley: nothing answers at {two.address}:5201" in ended.lines
    assert one.run([*MEDLEY, "link", "test", "host1"]).lines[0] == "medley: host1 is this host itself"


def test_a_taken_port_is_said(rack: Up) -> None:
    (host,) = rack(1).hosts
    host.start(["iperf3", "-s", "-B", host.address])
    wait_for("iperf3 listens", lambda: "5201" in host.says("ss", "-Hltn"))
    ended = host.run([*MEDLEY, "link", "test", "--serve"])
    assert ended.status == 1
    assert f"medley: iperf3 does not serve at {host.address}:5201" in ended.lines


def test_traffic_is_seen_on_its_own_link(rack: Up) -> None:
    one, two = rack(Spec(2, (Link("lan"), Link.cable("cx7", "host1", "host2")))).hosts
    one.start(["ping", "-q", "-i", "0.002", "-s", "1000", two.port("cx7").address])
    ended = one.run([*MEDLEY, "link", "watch", "--once", "--interval", "1", "--json"])
    rates = {each["name"]: each for each in json.loads(ended.lines[-1])["rates"]}
    assert set(rates) == {"eth0", "eth1"}
    assert rates["eth1"]["in_mbit"] > 0.5
    assert rates["eth1"]["out_mbit"] > 0.5
    assert rates["eth0"]["in_mbit"] < 0.1
    lines = one.run([*MEDLEY, "link", "watch", "--once", "--interval", "1"]).lines
    assert [line for line in lines if line.startswith("eth1 ") and "Mb/s  out" in line]
    assert max(map(len, lines)) <= 80


def test_watching_ends_quietly_with_ctrl_c(rack: Up) -> None:
    (host,) = rack(1).hosts
    process = started(host, "link", "watch", "--interval", "1")
    wait_for(
        "two lines are printed", lambda: len(process.last_lines) >= 2, state=lambda: list(process.last_lines)
    )
    host.says("sh", "-c", "kill -INT $(cat /tmp/pid)")
    finished = process.wait(20)
    assert finished is not None
    assert finished.status == 130
    assert not [line for line in finished.lines if "Traceback" in line or "Interrupt" in line]


def test_a_link_is_set_up_used_and_taken_back(rack: Up) -> None:
    """Both hosts as they come, a management link and a bare cable: only that is set up."""
    one, two = rack(Spec(2, (Link("lan"), Link.cable("cx7", "host1", "host2", mtu=9000)))).hosts
    before = {}
    for host in (one, two):
        # The default route makes eth0 the one that this host is reached by.
        host.says("ip", "route", "add", "default", "via", "10.78.0.9")
        host.says("ip", "address", "flush", "dev", "eth1")
        before[host.name] = host.says("ip", "-4", "-o", "address"), host.says("ip", "link", "show", "eth1")
        ended = host.run([*MEDLEY, "link", "setup", "--dry-run", "--mtu", "4000"])
        assert ended.status == 0
        assert host.says("ip", "-4", "-o", "address") == before[host.name][0]
        ended = host.run([*MEDLEY, "link", "setup", "--yes", "--mtu", "4000"])
        assert ended.status == 0, ended.lines
    assert one.says("ping", "-c1", "-M", "do", "-s", "3972", "192.168.100.2")
    assert one.run([*MEDLEY, "link", "setup", "--mtu", "4000"]).lines[-1] == "all of it is so already"
    for host in (one, two):
        assert host.run([*MEDLEY, "link", "setup", "--undo"]).status == 0
        after = host.says("ip", "-4", "-o", "address"), host.says("ip", "link", "show", "eth1")
        assert after == before[host.name]
        assert "there is nothing to undo" in host.run([*MEDLEY, "link", "setup", "--undo"]).lines[0]


def test_setup_leaves_what_this_host_is_reached_by_alone(rack: Up) -> None:
    """Neither by the default route nor by ssh; and asks first."""
    one = rack(Spec(2, (Link("lan"), Link("back")))).hosts[0]
    one.start(["env", f"SSH_CONNECTION=10.78.1.2 5000 {one.port('back').address} 22", "sleep", "600"])
    one.says("ip", "route", "add", "default", "via", "10.78.0.2")
    ended = one.run([*MEDLEY, "link", "setup"])
    assert ended.status == 1
    assert "medley: there is no fast link to set up" in ended.lines
    assert "eth1: the ssh session from 10.78.1.2 uses it" in ended.lines[-2]
    assert "eth0 was not changed" in one.run([*MEDLEY, "link", "setup", "--interface", "eth0"]).lines[0]
    by_force = [*MEDLEY, "link", "setup", "--interface", "eth1", "--mtu", "1400", "--force"]
    ended = one.run(by_force)
    assert (ended.status, ended.lines[-3]) == (1, "medley: no one can confirm the change")
    assert "ip link set dev eth1 mtu 1400" in ended.lines
    assert one.says("cat", "/sys/class/net/eth1/mtu") == "1500"


def test_a_step_that_the_kernel_refuses_is_taken_back(rack: Up) -> None:
    (host,) = rack(Spec(1, (Link("lan"),))).hosts
    before = host.says("ip", "-4", "-o", "address"), host.says("ip", "link", "show", "eth0")
    words = ("--interface", "eth0", "--address", "10.99.0.1/24", "--mtu", "65535", "--yes")
    host.says("ip", "link", "set", "dev", "eth0", "mtu", "1500")
    (broken := host.path("/tmp/bin")).mkdir()
    (broken / "ip").write_text(
        '#!/bin/sh\ncase "$*" in "address add"*) echo no room; exit 2 ;; esac\nexec /sbin/ip "$@"\n'
    )
    (broken / "ip").chmod(0o755)
    ended = host.run(["sh", "-c", 'PATH=/tmp/bin:$PATH exec "$@"', "sh", *MEDLEY, "link", "setup", *words])
    assert ended.status == 1
    assert any(line.startswith("medley: a step failed, ") for line in ended.lines)
    assert "         no room" in ended.lines
    assert (host.says("ip", "-4", "-o", "address"), host.says("ip", "link", "show", "eth0")) == before
