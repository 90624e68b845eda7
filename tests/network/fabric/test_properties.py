"""What is true of the fabric of any hosts whatever."""

from collections.abc import Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from medley.errors import Problem
from medley.host.facts import Facts
from medley.host.facts.network import Net, Route
from medley.network.fabric.choice import Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import LOCKED_NCCL, SUBNET_AWARE_NCCL, has_nccl_gpu
from medley.network.fabric.variables import list_group_variables, list_host_variables
from tests.network.networks import LAN, group, host, link, port, rtx, server, spark, thor, trio

WIRES = ("ethernet", "bond", "vlan", "bridge", "infiniband", "wifi")
NEVER = ("container", "tunnel", "gadget", "virtual", "loopback")
SUBNETS = ("10.0.0", "10.0.1", "192.168.100", "169.254.3")

kinds = st.sampled_from((*WIRES, *WIRES, "ethernet", "ethernet", *NEVER))
links = st.lists(
    st.tuples(
        st.sampled_from(SUBNETS),
        st.sampled_from((16, 24, 30)),
        kinds,
        st.sampled_from((None, 1000, 100_000)),
        st.sampled_from((1500, 9000)),
        st.booleans(),
        st.sampled_from((None, 3, 5)),
    ),
    max_size=2,
)
wishes = st.builds(
    NetworkOptions,
    link=st.sampled_from((None, None, None, None, None, "n0", "10.0.0.0/24")),
    exclude=st.frozensets(st.sampled_from(("n0", "n1")), max_size=1),
    transport=st.sampled_from((None, None, None, "tcp", "rdma")),
)


sparks: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    second=st.sampled_from(("192.168.101", "192.168.101", "192.168.100", None)),
    cage=st.sampled_from((0, 1)),
    gids=st.sampled_from(((3, 3), (3, 3), (3, 5))),
    mtu=st.sampled_from((9000, 9000, 1500)),
    second_up=st.sampled_from((True, True, False)),
)


@st.composite
def hosts(draw: st.DrawFn) -> dict[str, Facts]:
    """Hosts as there are, most of a sort, with odd links besides."""
    many = range(1, draw(st.integers(2, 4)) + 1)
    sorts = draw(st.sampled_from(("spark", "spark", "trio", "mixed", "server", "bare")))
    if sorts == "trio":
        made = [trio(nth, lan=draw(st.sampled_from((LAN, LAN, None)))) for nth in (1, 2, 3)]
    else:
        made = [one(nth, sorts, draw) for nth in many]
    return group(*(besides(facts, nth, draw(links)) for nth, facts in enumerate(made, 1)))


def one(nth: int, sort: str, draw: st.DrawFn) -> Facts:
    match draw(st.sampled_from(("spark", "rtx", "thor"))) if sort == "mixed" else sort:
        case "spark":
            return spark(nth, **draw(sparks))
        case "rtx":
            return rtx(nth, gpus=draw(st.integers(1, 2)))
        case "thor":
            return thor(nth)
        case "server":
            return server(nth)
        case _:
            return host(())


def besides(facts: Facts, nth: int, drawn: list[tuple[Any, ...]]) -> Facts:
    """These facts and further links n0, n1, ..., some of them with RDMA ports."""
    found, ports = [], []
    for n, (subnet, prefix, kind, mbit, mtu, up, gid) in enumerate(drawn):
        address = f"{subnet}.{nth + 60}/{prefix}"
        extra = link(f"n{n}", address, kind=kind, mbit=mbit, mtu=mtu, up=up, port_name=f"p{n // 2}")
        found.append(extra)
        if gid:
            # Every second one in the other PCI domain: halves of a cage, as a Spark has them.
            ports.append(port(extra, f"dev{n}", f"000{2 * (n % 2)}:81:00.{n // 2}", gid=gid, system_guid="1"))
    routes = tuple(Route("default", extra.name, "10.0.0.254") for extra in found[:1])
    net = Net((*facts.net.links, *found), (*facts.net.routes, *routes))
    return facts.replace(net=net, rdma=(*facts.rdma, *ports))


def said(found: Mapping[str, Facts], wished: NetworkOptions, version: tuple[int, ...]) -> dict[str, Any]:
    try:
        return choose_fabric(found, wished.replace(nccl_version=version)).to_table()
    except Problem as problem:
        return {"what": problem.what, "cause": problem.cause, "fix": problem.fix}


def had(found: Mapping[str, Facts], wished: NetworkOptions, version: tuple[int, ...]) -> Fabric | None:
    """None where these hosts cannot talk: what is then raised is the table's to test."""
    try:
        return choose_fabric(found, wished.replace(nccl_version=version))
    except Problem:
        return None


def backwards(facts: Facts) -> Facts:
    net = Net(facts.net.links[::-1], facts.net.routes[::-1])
    return facts.replace(net=net, rdma=facts.rdma[::-1])


versions = st.sampled_from((LOCKED_NCCL, SUBNET_AWARE_NCCL))


@settings(max_examples=30, deadline=None, derandomize=True)
@given(hosts(), wishes, versions, st.randoms(use_true_random=False))
def test_the_order_of_hosts_and_interfaces_changes_nothing(
    found: dict[str, Facts], wished: NetworkOptions, version: tuple[int, ...], random: Any
) -> None:
    names = list(found)
    random.shuffle(names)
    shuffled = {name: backwards(found[name]) for name in names}
    assert said(shuffled, wished, version) == said(found, wished, version)


@settings(max_examples=30, deadline=None, derandomize=True)
@given(hosts(), versions)
def test_no_link_is_chosen_that_others_cannot_reach(
    found: dict[str, Facts], version: tuple[int, ...]
) -> None:
    chosen = had(found, NetworkOptions(), version)
    if chosen is None:
        return
    for name, end in chosen.endpoints.items():
        by_name = {one.name: one for one in found[name].net.links}
        taken = {end.interface, *end.lanes, *(port.interface or "" for port in end.ports)}
        assert all(by_name[one].up and by_name[one].kind in WIRES for one in taken)
        assert end.address in {address.ip for address in by_name[end.interface].addresses}
        # Every link of the host is either taken or has its reason.
        assert {one.interface for one in chosen.rejected if one.host == name} == set(by_name) - taken


@settings(max_examples=30, deadline=None, derandomize=True)
@given(hosts(), wishes, versions)
def test_all_hosts_of_a_group_have_one_transport(
    found: dict[str, Facts], wished: NetworkOptions, version: tuple[int, ...]
) -> None:
    chosen = had(found, wished, version)
    if chosen is None:
        return
    rdma = chosen.transport == "rdma"
    assert {bool(end.ports) for end in chosen.endpoints.values()} == {rdma}
    names = {each.name for each in list_group_variables(chosen, found)}
    each = [{one.name for one in list_host_variables(chosen, name, facts)} for name, facts in found.items()]
    if any(has_nccl_gpu(facts) for facts in found.values()):
        assert ("NCCL_IB_DISABLE" in names) is not rdma
    assert {"NCCL_IB_HCA" in one for one in each} == {rdma}
