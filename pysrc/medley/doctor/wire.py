"""The wire between the hosts: whether they share one, and what makes it slower than it could be."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Interface, IPv4Network

from medley.doctor.shapes import GROUP, Case, Check, Mend, State, mended, ok, told, unknown, wrong
from medley.fabric.alone import alone
from medley.fabric.shapes import End, Finding
from medley.fabric.speed import shown
from medley.facts.net import Link
from medley.problem import Problem

_TRANSPORTS = {"tcp": "TCP", "rdma": "RDMA", "none": "none needed"}


def common(case: Case) -> Iterator[Check]:
    """One wire that all share, and one transport."""
    for name, problem in case.apart.items():
        yield told(name, "wrong", problem)
    for name, host in case.hosts.items():
        if not host.facts.net.links:
            yield unknown(name, "it does not say which links it has")
    if case.fabric is None:
        if not case.group:
            yield ok(GROUP, "one host alone needs no network")
        return
    for name, end in case.fabric.ends.items():
        yield ok(name, f"{end.interface} {end.address}, {_speed(end)}{_ports(end)}")
    yield ok(GROUP, f"{_TRANSPORTS[case.fabric.transport]}: {'; '.join(case.fabric.why)}")


def noted(
    topics: tuple[str, ...], state: State, fine: str, *, rdma: bool = False
) -> Callable[[Case], Iterator[Check]]:
    """What the fabric itself finds of these topics; of those of `rdma` there is nothing to say without."""

    def found(case: Case) -> Iterator[Check]:
        clean = set(case.hosts)
        for finding in _findings(case):
            if finding.topic in topics:
                host = _host(finding, case)
                clean.discard(host)
                fix = finding.fix.removeprefix(f"on {host}: ")
                what = finding.what.removeprefix(f"{host}: ")
                yield Check(host, state, what, Problem(what, cause=finding.cause, fix=fix))
        yield from (
            ok(host, fine) for host in case.hosts if host in clean and _is_asked(case, host, rdma=rdma)
        )

    return found


def mtu(case: Case) -> Iterator[Check]:
    """Equal at every end of a network that is used; else mended by what sets links up to last."""
    if case.fabric is None:
        return
    for network in case.fabric.networks:
        ends = dict(_links_in(IPv4Network(network), case))
        largest = max((link.mtu for link, _ in ends.values()), default=0)
        said = ", ".join(f"{host} {link.name} {link.mtu}" for host, (link, _) in ends.items())
        for host, (link, address) in ends.items():
            if link.mtu == largest:
                yield ok(host, f"{link.name} has {link.mtu}, as all of {network} should")
                continue
            found = wrong(
                host,
                f"{link.name} has MTU {link.mtu}, and its peers in {network} have {largest}",
                cause=f"{said}; frames above the smallest are dropped silently",
                fix="",
            )
            words = ("medley", "link", "setup", "--interface", link.name, "--address", address)
            yield mended(found, Mend(host, (*words, "--mtu", str(largest)), ("--yes",), root=True))


def _is_asked(case: Case, host: str, *, rdma: bool) -> bool:
    return bool(case.hosts[host].facts.rdma) if rdma else len(case.hosts[host].facts.net.links) > 1


def _findings(case: Case) -> Iterator[Finding]:
    if case.fabric:
        yield from case.fabric.findings
    elif len(case.hosts) == 1 and not case.apart:
        for name, host in case.hosts.items():
            yield from alone(name, host.facts, case.wishes).findings


def _host(finding: Finding, case: Case) -> str:
    return next((name for name in case.hosts if finding.what.startswith((f"{name}:", f"{name} "))), GROUP)


def _links_in(network: IPv4Network, case: Case) -> Iterator[tuple[str, tuple[Link, str]]]:
    """By host the link that is used there, with its address."""
    ends = case.fabric.ends if case.fabric else {}
    for name, end in ends.items():
        used = {end.interface, *end.lanes, *(port.interface for port in end.ports)}
        for link in case.hosts[name].facts.net.links:
            for each in link.addresses if link.name in used else ():
                if IPv4Interface(f"{each.ip}/{each.prefix}").network == network:
                    yield name, (link, f"{each.ip}/{each.prefix}")


def _speed(end: End) -> str:
    return shown(end.mbit) if end.mbit else "of a speed that its driver does not say"


def _ports(end: End) -> str:
    gid = f", GID {end.gid_index}" if end.gid_index is not None else ""
    return f", RDMA by {' and '.join(port.device for port in end.ports)}{gid}" if end.ports else ""
