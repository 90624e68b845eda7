"""A cable between two hosts that nothing uses: what doctor says of it, and what plan says it would gain."""

from collections.abc import Collection

import pytest

from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.host.facts import Facts
from medley.host.facts.network import Interface
from medley.host.kind import SiteHost
from medley.model.resolve import Weights
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.per_host import rank_host_links
from medley.planner.placement import PlacementOptions
from medley.planner.site import Site
from medley.serving.alternatives import plan_order
from tests.host.recordings import recorded
from tests.planner.imagined import shape, site

FAST = 100_000


def without(facts: Facts) -> Facts:
    """The same with its fast ports up, and without an address."""
    fast = {link.name for link in facts.net.links if (link.mbit or 0) >= FAST}

    def bare(link: Interface) -> Interface:
        return link.replace(addresses=()) if link.name in fast else link

    ports = tuple(
        port.replace(gids=tuple(gid for gid in port.gids if gid.address is None)) for port in facts.rdma
    )
    return facts.replace(net=facts.net.replace(links=tuple(map(bare, facts.net.links))), rdma=ports)


def stripped(on: Site, names: Collection[str]) -> Site:
    hosts = {
        name: SiteHost(without(facts) if name in names else facts, kind)
        for name, (facts, kind) in on.hosts.items()
    }
    return on.replace(hosts=hosts)


def warnings(on: Site, wanted: PlacementOptions | None = None) -> list[str]:
    order = LaunchOrder(
        Weights("gpt-oss-120b", "x/y", None), ServerSpec("x/y", "y"), wanted or PlacementOptions()
    )
    return [each for each in plan_order(order, shape("gpt-oss-120b"), on).warnings if "lie idle" in each]


@pytest.mark.parametrize(
    "names",
    [
        pytest.param(("spark-1", "spark-2"), id="no address on the cable"),
        pytest.param(("spark-2",), id="an address on one side alone"),
    ],
)
def test_what_addresses_on_a_cable_would_give_is_said(names: tuple[str, ...]) -> None:
    whole = site("spark:2")
    assert warnings(whole) == []
    on = stripped(whole, names)
    (said,) = warnings(on)
    assert "with addresses on them 46.9 tok/s instead of 35.8 (tensor parallel 2" in said
    assert "sudo $(command -v medley) link setup" in said
    assert warnings(on, PlacementOptions(network=NetworkOptions(transport="tcp"))) == []
    (finding,) = [each for each in choose_fabric(on.facts).findings if each.topic == "idle"]
    assert finding.what.startswith("spark-1 and spark-2 have fast ports that are up and unused")
    assert all(f"{name} enp1s0f" in finding.cause for name in names)
    assert "$(command -v medley) link setup" in finding.fix
    if len(names) == 1:
        assert finding.fix.startswith("on spark-2: sudo $(command -v medley) link setup --interface enp1s0f")


def test_a_port_at_one_host_alone_may_lead_anywhere() -> None:
    on = stripped(site("spark,orin"), ("spark-1",))
    assert [each for each in choose_fabric(on.facts).findings if each.topic == "idle"] == []


def test_a_port_that_a_ring_needs_gets_one_address() -> None:
    hosts = {name: recorded(f"faults/{name}") for name in ("spark-ring4-a", "spark-ring4-b", "spark-ring4-c")}
    addresses = dict.fromkeys(hosts, "")
    addresses |= {name: end.address for name, end in choose_fabric(hosts).endpoints.items()}
    for options in (NetworkOptions(), NetworkOptions(ray_addresses=addresses)):
        assert [each.topic for each in choose_fabric(hosts, options).findings] == ["ring"]


def test_one_host_says_it_of_itself() -> None:
    facts = without(site("spark").facts["spark-1"])
    (finding,) = rank_host_links("spark-1", facts, NetworkOptions()).findings
    assert finding.topic == "idle"
    assert "has no IPv4 address" in finding.cause
