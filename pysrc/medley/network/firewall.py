"""Write nftables, ufw and iptables rules that close medley's ports to other hosts.

The rules match only the first packet of a TCP connection, so open sessions stay open, and a kernel without
connection tracking (a Jetson's) can apply them. Only a limit of connections needs it.
"""

from collections.abc import Iterable, Iterator, Mapping
from ipaddress import ip_network
from typing import Literal

from medley.errors import Problem
from medley.host.facts.network import Net
from medley.network.ports import RayPorts
from medley.values import Value

FirewallProgram = Literal["nftables", "ufw", "iptables"]
APPLY_COMMANDS = {"nftables": "sudo nft -f -", "ufw": "sudo sh -e", "iptables": "sudo sh -e"}
SSH_PORT = 22
_IPV4 = 4
_WIDE_RANGE_PORTS = 1000
"""The size above which a range is not only medley's: the kernel gives its ports to any program."""
PortRanges = tuple[tuple[int, int], ...]
_FAMILIES = {4: "ip saddr", 6: "ip6 saddr & ffff:ffff:ffff:ffff::"}
"""The match of the sender in nftables, by IP version; one IPv6 host has the addresses of a /64 network."""
# Deleting a missing table would be an error.
_NFTABLES_REMOVAL: tuple[str, ...] = ("table inet medley", "delete table inet medley")
_IPTABLES_REMOVAL = tuple(
    f"{program} -w {words} 2>/dev/null || true"
    for program in ("iptables", "ip6tables")
    for words in ("-D INPUT -j MEDLEY", "-F MEDLEY", "-X MEDLEY")
)


class ClusterInterface(Value):
    """Hosts that may reach this one: through the interface, from these networks, or from all."""

    interface: str | None
    networks: tuple[str, ...] = ()


class FirewallRules(Value):
    """The ports to close to other hosts than the cluster's, and those that stay open."""

    interfaces: tuple[ClusterInterface, ...]
    closed_ranges: PortRanges
    """The closed ranges of ports, in order, without overlap."""
    open_ports: tuple[int, ...] = (SSH_PORT,)
    limited_ports: tuple[int, ...] = ()
    """The open ports at which an outside address may have `max_connections`; an IPv6 /64 counts as one."""
    max_connections: int = 0


def resolve_interfaces(options: Iterable[str], net: Net) -> tuple[ClusterInterface, ...]:
    """Resolve --link: an interface or an address of this host, a network, or another host's address."""
    return tuple(
        dict.fromkeys(interface for option in options for interface in _resolve_interface(option, net))
    )


def _resolve_interface(option: str, net: Net) -> tuple[ClusterInterface, ...]:
    links = [link for link in net.links if link.kind != "loopback"]
    matching = [link for link in links if option in {link.name, *(address.ip for address in link.addresses)}]
    if matching:
        return tuple(ClusterInterface(link.name, tuple(map(str, link.networks))) for link in matching)
    try:
        network = ip_network(option, strict=False)
    except ValueError as error:
        raise Problem(
            f"{option} is not a link",
            cause="it is neither an interface of this host nor an address or a network",
            fix=f"--link {next((link.name for link in links if link.addresses), '192.168.100.0/24')}",
        ) from error
    overlapping = [link.name for link in links if any(network.overlaps(each) for each in link.networks)]
    return tuple(ClusterInterface(name, (str(network),)) for name in (overlapping or (None,)))


def write_rules(program: FirewallProgram, rules: FirewallRules, *, undo: bool) -> str:
    """Write the text to run as root: an nft script, or lines for a shell; both are idempotent."""
    match program:
        case "nftables":
            lines = _NFTABLES_REMOVAL if undo else tuple(_list_nftables_lines(rules))
        case "ufw":
            lines = (
                tuple(f"ufw delete {rule}" for rule in _list_ufw_rules(rules))
                if undo
                else tuple(_list_ufw_commands(rules))
            )
        case "iptables":
            lines = _IPTABLES_REMOVAL if undo else tuple(_list_iptables_commands(rules))
    return "".join(f"{line}\n" for line in lines)


def list_ssh_ports(environments: Iterable[Mapping[str, str]]) -> set[int]:
    """Return the ports that stay open for ssh: 22, and those of open sessions."""
    connections = (environment.get("SSH_CONNECTION", "").split() for environment in environments)
    return {SSH_PORT, *(int(words[-1]) for words in connections if words and words[-1].isdecimal())}


def _list_nftables_lines(rules: FirewallRules) -> Iterator[str]:
    yield from _NFTABLES_REMOVAL
    yield "table inet medley {"
    if rules.limited_ports:
        for number in _FAMILIES:
            yield f"\tset strangers{number} {{ type ipv{number}_addr; size 65535; flags dynamic; }}"
    yield "\tchain input {"
    yield "\t\ttype filter hook input priority 0; policy accept;"
    yield '\t\tiifname "lo" accept'
    for cluster_interface in rules.interfaces:
        interface = f'iifname "{cluster_interface.interface}" ' if cluster_interface.interface else ""
        for network in cluster_interface.networks:
            yield f"\t\t{interface}{'ip6' if ':' in network else 'ip'} saddr {network} accept"
        if not cluster_interface.networks:
            yield f"\t\t{interface}accept"
    if rules.limited_ports:
        new_connection = (
            f"\t\ttcp dport {{ {', '.join(map(str, rules.limited_ports))} }} tcp flags & (syn | ack) == syn"
        )
        for number, source in _FAMILIES.items():
            limit = f"{source} ct count over {rules.max_connections}"
            yield f"{new_connection} add @strangers{number} {{ {limit} }} drop"
    yield f"\t\ttcp dport {{ {', '.join(map(str, rules.open_ports))} }} accept"
    closed = ", ".join(_format_ranges(rules.closed_ranges, "-"))
    yield f"\t\ttcp dport {{ {closed} }} tcp flags & (syn | ack) == syn drop"
    yield "\t}"
    yield "}"


def _format_ranges(ranges: PortRanges, between: str) -> Iterator[str]:
    """Yield each range as text, with `between` between its first and last port."""
    for first, last in ranges:
        yield str(first) if first == last else f"{first}{between}{last}"


def _list_ufw_commands(rules: FirewallRules) -> Iterator[str]:
    """Yield commands that prepend the rules, so that the last comes first: open ports, then links."""
    closed_rule, *interface_rules = _list_ufw_rules(rules)
    yield "# Takes effect once ufw is enabled: sudo ufw enable"
    yield f"ufw prepend {closed_rule} comment medley"
    yield from (f"ufw prepend {rule} comment medley" for rule in interface_rules)
    yield from (f"ufw prepend allow {rule}/tcp" for rule in rules.open_ports)


def _list_ufw_rules(rules: FirewallRules) -> Iterator[str]:
    """Yield the rules without the open ports, which the user may have opened before."""
    yield f"deny proto tcp to any port {','.join(_format_ranges(rules.closed_ranges, ':'))}"
    for cluster_interface in rules.interfaces:
        allow = f"allow in on {cluster_interface.interface}" if cluster_interface.interface else "allow"
        yield from (f"{allow} from {network}" for network in cluster_interface.networks or ("any",))


def _list_iptables_commands(rules: FirewallRules) -> Iterator[str]:
    for program, version in (("iptables", 4), ("ip6tables", 6)):
        yield f"{program} -w -N MEDLEY 2>/dev/null || {program} -w -F MEDLEY"
        add = f"{program} -w -A MEDLEY"
        yield f"{add} -i lo -j RETURN"
        for cluster_interface in rules.interfaces:
            input_match = f" -i {cluster_interface.interface}" if cluster_interface.interface else ""
            networks = [
                network for network in cluster_interface.networks if ip_network(network).version == version
            ]
            sources = [f" -s {network}" for network in networks] if cluster_interface.networks else [""]
            yield from (f"{add}{input_match}{source} -j RETURN" for source in sources)
        above = f"-m connlimit --connlimit-above {rules.max_connections} --connlimit-mask"
        mask = 32 if version == _IPV4 else 64
        yield from (
            f"{add} -p tcp --syn --dport {port} {above} {mask} -j DROP" for port in rules.limited_ports
        )
        yield from (f"{add} -p tcp --dport {port} -j RETURN" for port in rules.open_ports)
        yield from (
            f"{add} -p tcp --syn --dport {port} -j DROP" for port in _format_ranges(rules.closed_ranges, ":")
        )
        yield f"{program} -w -C INPUT -j MEDLEY 2>/dev/null || {program} -w -I INPUT -j MEDLEY"


def list_notes(rules: FirewallRules, net: Net, listening: Iterable[int]) -> Iterator[str]:
    """Yield what the user should know of these rules; `listening` has the ports in use."""
    for cluster_interface in rules.interfaces:
        networks = ", ".join(cluster_interface.networks) or "everywhere"
        if cluster_interface.interface in net.default_links:
            yield (
                f"{cluster_interface.interface} has the default route, "
                f"so all of {networks} can reach these ports; "
                "to allow only the cluster's hosts, name each: --link ADDRESS"
            )
        if cluster_interface.interface is None:
            yield f"no link of this host is in {networks}: the rules match only the sender's address"
    medley_ports = set(range(RayPorts.first, RayPorts.last + 1))
    for port in sorted(set(listening) - set(rules.open_ports) - medley_ports):
        if any(
            first <= port <= last for first, last in rules.closed_ranges if last - first > _WIDE_RANGE_PORTS
        ):
            yield f"a program listens on port {port}, which this closes; if it is not medley's: --open {port}"
