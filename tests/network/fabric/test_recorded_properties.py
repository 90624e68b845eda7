"""What is true of any group of recorded hosts, most of which never met."""

from collections.abc import Mapping, Sequence

from hypothesis import example, given, settings
from hypothesis import strategies as st

from medley.errors import Problem
from medley.host.facts import Facts
from medley.network.fabric.choice import Fabric, NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.variables import list_group_variables
from tests.host.recordings import AGAIN, hosts, with_networks

WIRES = {"ethernet", "bond", "vlan", "bridge", "infiniband", "wifi"}
NAMES = (*sorted(with_networks()), *(f"{name} again" for name in AGAIN))

bounded = settings(max_examples=30, deadline=None, derandomize=True)
groups = st.lists(st.sampled_from(NAMES), min_size=2, max_size=4, unique=True)


left_out = st.frozensets(
    st.sampled_from(
        sorted(
            {link.name for facts in with_networks().values() for link in facts.net.links if link.addresses}
        )
    ),
    max_size=4,
)
CLUTTERED = ["rtx-vpn-docker", "rtx-vpn-docker again"]


def made(found: Mapping[str, Facts], exclude: frozenset[str] = frozenset()) -> Fabric | Problem:
    try:
        return choose_fabric(found, NetworkOptions(exclude=exclude))
    except Problem as problem:
        return problem


@bounded
@given(groups, left_out)
@example(CLUTTERED, frozenset({"enp5s0", "wlp6s0"}))
def test_no_link_is_chosen_that_is_no_wire(names: list[str], exclude: frozenset[str]) -> None:
    """Nor where the wires were left out, and tunnels still reach every host."""
    found = hosts(tuple(names))
    chosen = made(found, exclude)
    if isinstance(chosen, Problem):
        assert chosen.what
        assert chosen.cause
        assert chosen.fix
        return
    for name, end in chosen.endpoints.items():
        kinds = {link.name: link.kind for link in found[name].net.links}
        taken = {end.interface, *end.lanes, *(port.interface or "" for port in end.ports)}
        assert {kinds[interface] for interface in taken} <= WIRES
        assert not taken & exclude


@bounded
@given(groups)
def test_a_group_has_one_transport(names: list[str]) -> None:
    found = hosts(tuple(names))
    chosen = made(found)
    if isinstance(chosen, Problem):
        return
    assert {"rdma" if end.ports else "tcp" for end in chosen.endpoints.values()} == {chosen.transport}
    shared = {each.name for each in list_group_variables(chosen, found)}
    assert not {"NCCL_NET", "NCCL_IB_DISABLE"} <= shared


@bounded
@given(groups.flatmap(lambda names: st.tuples(st.just(names), st.permutations(names))))
def test_what_hosts_are_called_changes_nothing(orders: tuple[Sequence[str], Sequence[str]]) -> None:
    """The first host of one order is h1, and of the other perhaps h3: each keeps its end all the same."""
    one, other = (called(order) for order in orders)
    assert one == other


def called(order: Sequence[str]) -> object:
    """Each recording's end, when the hosts are called h1, h2, ... in this order."""
    found = hosts(tuple(order))
    chosen = made({f"h{nth}": found[name] for nth, name in enumerate(order, 1)})
    if isinstance(chosen, Problem):
        return None
    ends = {name: chosen.endpoints[f"h{nth}"] for nth, name in enumerate(order, 1)}
    return chosen.transport, chosen.networks, ends


def test_enough_of_these_groups_can_talk() -> None:
    """Else the properties above would be of Problems alone."""
    pairs = [(one, other) for nth, one in enumerate(NAMES) for other in NAMES[:nth]]
    made_so = [made(hosts(pair)) for pair in pairs[::5]]
    transports = [each.transport for each in made_so if isinstance(each, Fabric)]
    assert len(transports) > len(made_so) / 2
    assert set(transports) == {"rdma", "tcp"}
