"""Names and addresses that follow from a spec; nothing is started."""

import json
import tempfile
from pathlib import Path

import pytest

from tests.rack.rack import with_needed
from tests.rack.spec import Link, Spec

TWO_WIRES = Spec(
    3, (Link(), Link.cable("fast", "host1", "host3", mbit=400, interface="enp1s0f0np0")), cpus={"host3": 0.3}
)


def test_each_host_has_an_address_on_each_link() -> None:
    assert [(port.host, port.interface, port.address, port.switch_port) for port in TWO_WIRES.ports] == [
        ("host1", "eth0", "10.78.0.1", "lan.1"),
        ("host2", "eth0", "10.78.0.2", "lan.2"),
        ("host3", "eth0", "10.78.0.3", "lan.3"),
        ("host1", "enp1s0f0np0", "10.78.1.1", "fast.1"),
        ("host3", "enp1s0f0np0", "10.78.1.3", "fast.3"),
    ]


def test_a_host_is_its_first_address() -> None:
    assert TWO_WIRES.etc_hosts.splitlines() == [
        "127.0.0.1 localhost",
        "10.78.0.1 host1 host1.lan",
        "10.78.0.2 host2 host2.lan",
        "10.78.0.3 host3 host3.lan",
        "10.78.1.1 host1.fast",
        "10.78.1.3 host3.fast",
    ]


def test_json_and_back() -> None:
    assert Spec.from_json(TWO_WIRES.to_json()) == TWO_WIRES


def test_what_another_checkout_adds_is_left_out() -> None:
    table = json.loads(TWO_WIRES.to_json())
    table["links"][0]["color"] = table["weather"] = "new"
    assert Spec.from_json(json.dumps(table)) == TWO_WIRES


@pytest.mark.parametrize(
    ("hosts", "links", "says"),
    [
        pytest.param(0, (), "1 to 254", id="no-host"),
        pytest.param(2, (Link("a"), Link("a")), ": a, a$", id="same-name"),
        pytest.param(2, (Link("a", ("host3",)),), "host3; .* host1, host2$", id="no-such-host"),
        pytest.param(2, (Link("a", ("host1",), direct=True),), "cable a ", id="half-a-cable"),
        pytest.param(2, (Link("a-long-name-it-is"),), "a-long-name-it-is .* 11 ", id="long-name"),
    ],
)
def test_refused(hosts: int, links: tuple[Link, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        Spec(hosts, links)


def test_a_host_sees_a_cache_that_is_in_tmp_and_needs_no_share_elsewhere(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        monkeypatch.setenv("MEDLEY_CACHE", f"{folder}/cache")
        shared = with_needed(Spec(1, share=("/var/tmp/model", folder))).share
        assert {folder, f"{folder}/cache", f"{folder}/medley-tests"} <= set(shared)
        assert "/var/tmp/model" not in shared
        assert all(Path(each).is_dir() for each in shared)
