"""Links by themselves: one that is down where it is wanted, and the GIDs by which RDMA finds an address."""

from collections.abc import Iterator
from ipaddress import IPv4Interface

from medley.doctor.shapes import GROUP, Case, Check, Mend, mended, ok, wrong
from medley.facts import Facts
from medley.facts.net import Link

_WIRES = {"ethernet", "infiniband", "bond"}


def down(case: Case) -> Iterator[Check]:
    """A link that has an address where others are, and no carrier."""
    for name, host in case.hosts.items():
        clean = True
        for link in host.facts.net.links:
            where = _shared(link, case, name)
            if link.up or not where or link.kind not in _WIRES:
                continue
            clean = False
            problem = wrong(
                name,
                f"{link.name} is down, or no cable is in it",
                cause=f"it has {where}, where {_others(where, case, name)} also has an address",
                fix="",
            )
            yield mended(problem, Mend(name, ("ip", "link", "set", link.name, "up"), root=True))
        if clean:
            yield ok(name, f"{_up(host.facts)} up")


def _up(facts: Facts) -> str:
    names = [link.name for link in facts.net.links if link.up and link.kind not in {"loopback", "container"}]
    return f"{', '.join(names) or 'no link'} {'are' if len(names) > 1 else 'is'}"


def _shared(link: Link, case: Case, name: str) -> str | None:
    """The address of it that is in a network of another host's, or in the one that is wished for."""
    wish = case.wishes.link_of(name)
    for each in link.addresses:
        at = IPv4Interface(f"{each.ip}/{each.prefix}")
        if wish in {link.name, each.ip, str(at.network)} or _others(str(at), case, name):
            return str(at)
    return None


def _others(address: str, case: Case, name: str) -> str:
    network = IPv4Interface(address).network
    return ", ".join(
        other
        for other, host in case.hosts.items()
        if other != name
        for link in host.facts.net.links
        if link.kind in _WIRES
        and any(IPv4Interface(f"{at.ip}/{at.prefix}").network == network for at in link.addresses)
    )


def gids(case: Case) -> Iterator[Check]:
    """Every active RoCE port has the RoCE v2 GID of the address on its interface."""
    for name, host in case.hosts.items():
        addresses = {link.name: [at.ip for at in link.addresses] for link in host.facts.net.links}
        rows = []
        for port in host.facts.rdma:
            own = addresses.get(port.interface or "", [])
            if not (port.active and port.link_layer == "Ethernet" and own):
                continue
            fit = [gid.index for gid in port.gids if gid.type == "RoCE v2" and gid.address in own]
            if fit:
                rows.append(f"{port.device} {fit[0]}")
                continue
            seen = ", ".join(f"{gid.index} {gid.type}" for gid in port.gids) or "none"
            yield wrong(
                name,
                f"{port.device} has no RoCE v2 GID of an IPv4 address",
                cause=f"{port.interface} has {', '.join(own)}; the GIDs are {seen}",
                fix=f"sudo ip link set {port.interface} down; sudo ip link set {port.interface} up",
            )
        if rows:
            yield ok(name, f"row {', '.join(rows)}; it is taken anew at every start, for it moves")


def twice(case: Case) -> Iterator[Check]:
    """No two hosts have one address on a wire; what a maker gives to every gadget is no matter."""
    at: dict[str, list[str]] = {}
    for name, host in case.hosts.items():
        for link in host.facts.net.links:
            if link.kind in _WIRES and link.up:
                for each in link.addresses:
                    at.setdefault(each.ip, []).append(f"{name} ({link.name})")
    for address, places in at.items():
        if len(places) > 1:
            yield wrong(
                GROUP,
                f"{address} is the address of {' and '.join(places)}",
                cause="who is asked for it depends on who answers first",
                fix="medley link setup --dry-run  # on one of them; --number gives it another",
            )
    if case.group and all(len(places) == 1 for places in at.values()):
        yield ok(GROUP, "each address is one host's alone")
