import json
from dataclasses import replace

import pytest

from medley.facts.net import Route
from medley.neighbours import ANNOUNCED, TABLE, links, mentions
from medley.transcript import Answer
from tests.recorded import recorded

SPARK = recorded("spark-pair-a")
DESK = recorded("rtx-vpn-docker")


def seen(*rows: tuple[str, str, str]) -> dict[str, Answer]:
    table = [
        {"dst": address, "dev": interface, "lladdr": "0:0", "state": [state]}
        for address, interface, state in rows
    ]
    return {TABLE: Answer(json.dumps(table))}


def test_links_are_those_that_a_cluster_could_use() -> None:
    assert links(DESK) == {"enp5s0": False}
    assert links(SPARK)["enp1s0f1np1"]
    assert not links(SPARK)["enP7s7"]


@pytest.mark.parametrize(
    ("row", "by", "likely"),
    [
        pytest.param(("192.168.100.11", "enp1s0f1np1", "REACHABLE"), "enp1s0f1np1", True, id="fast"),
        pytest.param(("192.168.1.50", "enP7s7", "STALE"), "enP7s7", False, id="of a home's network"),
        pytest.param(("192.168.1.50", "enP7s7", "DELAY"), "enP7s7", False, id="just asked again"),
        pytest.param(("192.168.1.50", "enP7s7", "FAILED"), None, False, id="gone"),
        pytest.param(("192.168.1.50", "enP7s7", "INCOMPLETE"), None, False, id="never there"),
        pytest.param(("172.17.0.2", "docker0", "REACHABLE"), None, False, id="a container"),
        pytest.param(("fe80::1", "enP7s7", "REACHABLE"), None, False, id="IPv6"),
        pytest.param(("$(x)", "enP7s7", "REACHABLE"), None, False, id="no address"),
    ],
)
def test_neighbours_on_a_link(row: tuple[str, str, str], by: str | None, likely: bool) -> None:  # noqa: FBT001 - of a table
    found = mentions(seen(row), SPARK)
    assert [(each.name, each.by, each.likely) for each in found] == (
        [(row[0], f"neighbour on {by}", likely)] if by else []
    )


def test_tunnels_and_containers_have_no_neighbours_of_ours() -> None:
    rows = [("100.100.1.1", "tailscale0", "REACHABLE"), ("172.17.0.2", "docker0", "STALE")]
    assert mentions(seen(*rows, ("10.8.0.9", "wg0", "REACHABLE")), DESK) == ()


def test_the_way_out_is_no_host_of_a_cluster() -> None:
    way_out = Route("default", "enP7s7", gateway="192.168.1.1")
    routed = replace(SPARK, net=replace(SPARK.net, routes=(way_out,)))
    rows = [("192.168.1.1", "enP7s7", "REACHABLE"), ("192.168.1.2", "enP7s7", "REACHABLE")]
    assert [each.name for each in mentions(seen(*rows), routed)] == ["192.168.1.2"]


AVAHI = """\
+;enP7s7;IPv4;spark-2;SSH Remote Terminal;local
=;enP7s7;IPv4;spark-2;SSH Remote Terminal;local;spark-2.local;192.168.1.51;22;
=;enP7s7;IPv6;spark-2;SSH Remote Terminal;local;spark-2.local;fe80::1;22;
=;docker0;IPv4;x;SSH Remote Terminal;local;x.local;172.17.0.2;22;
=;enP7s7;IPv4;odd;SSH Remote Terminal;local;a\\032b.local;192.168.1.52;22;
=;enP7s7
"""


def test_hosts_that_announce_ssh() -> None:
    found = mentions({ANNOUNCED: Answer(AVAHI)}, SPARK)
    assert [(each.name, each.also, each.where) for each in found] == [
        ("spark-2.local", ("192.168.1.51",), "enP7s7"),
        ("a b.local", ("192.168.1.52",), "enP7s7"),
    ]


@pytest.mark.parametrize("text", ["", "[", "{}", "[1]", '[{"dst": 1}]'], ids=repr)
def test_an_answer_that_is_none_names_nobody(text: str) -> None:
    assert mentions({TABLE: Answer(text), ANNOUNCED: Answer(text)}, SPARK) == ()
