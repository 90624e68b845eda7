"""Addresses, connections, firewalls, ports, names; the libraries that RDMA needs."""

import re
from collections.abc import Iterator

from medley.doctor.checks import ALL, UNASKED, Case, Check, ExaminedHost, case_check, health_check
from medley.errors import Problem
from medley.host.health.access import Firewall
from medley.host.health.software import Leftovers, RdmaParts
from medley.network.ports import API, EPHEMERAL, RayPorts

_RULE_LIMIT = 3


@health_check("address", "cluster address", lambda health: health.keeping)
def address(host: ExaminedHost, keeping: Leftovers) -> Iterator[Check]:
    noted = keeping.membership.get("address")
    links = {at.ip: link for link in host.facts.net.links for at in link.addresses}
    if not noted or not links:
        return
    if noted not in links:
        yield host.wrong(
            f"Cluster address {noted} is no longer on this host",
            cause=f"its addresses are {', '.join(sorted(links))}; a model waits for the old one",
            fix="medley ray-stop  # then medley up; for addresses that stay: medley link setup",
        )
    elif not links[noted].up:
        yield host.wrong(
            f"Link {links[noted].name} of cluster address {noted} is down",
            cause=f"{links[noted].name} has no carrier",
            fix=f"sudo ip link set {links[noted].name} up",
        )
    else:
        yield host.ok(f"{noted} on {links[noted].name}")


@case_check("reach", "connections between hosts")
def connect(case: Case) -> Iterator[Check]:
    """What each of them finds open at the others, tried."""
    if case.closed is None:
        if case.head is None and case.group:
            yield ALL.unknown("transcripts cannot show it; run medley doctor on the cluster")
        elif case.silent:
            yield ALL.unknown(f"hosts did not answer: {', '.join(case.silent)}")
        return
    for name, host in case.hosts.items():
        if name in case.closed:
            yield host.failed(_where_it_is_known(case.closed[name], case))
        elif case.fabric and name in case.fabric.ends:
            yield host.ok("reaches all other hosts, and they reach it")


def _where_it_is_known(problem: Problem, case: Case) -> Problem:
    """With the rule that is in the way, where it could be read."""
    for name, host in case.hosts.items():
        doors = host.health.doors
        if problem.fix.startswith(f"on {name}: ") and doors and doors.closing and not doors.ufw:
            fix = f"on {name}: {_opened(doors.closing[0], case)}"
            return Problem(problem.what, cause=f"{problem.cause}; {doors.closing[0]}", fix=fix)
    return problem


@case_check("firewall", "firewall rules")
def firewall(case: Case) -> Iterator[Check]:
    """Rules that drop what comes in; where hosts tried, and reach each other, they let these in."""
    for host in case.hosts.values():
        doors = host.health.doors
        if doors is None:
            yield host.unknown(UNASKED)
        elif case.closed is not None and not case.closed and case.group and (doors.ufw or doors.closing):
            yield host.ok(f"{_what(doors)}, and the other hosts get through")
        else:
            yield _alone(host, doors, case)


def _alone(host: ExaminedHost, doors: Firewall, case: Case) -> Check:
    closing = [each for each in doors.closing if _is_of_ours(each)]
    if doors.ufw:
        return host.better(
            "ufw is on",
            cause="by default it drops connections from other hosts, and ranks use any port",
            fix="medley ports --firewall ufw | sudo sh -e; sudo ufw status",
        )
    if closing:
        closed = case.closed or {}
        blamed = any(each.fix.startswith(f"on {host.name}: ") for each in closed.values())
        return host.report(
            "wrong" if blamed or host.name in closed else "better",
            "A firewall drops connections to medley's ports",
            cause="; ".join(closing[:_RULE_LIMIT]),
            fix=_opened(closing[0], case),
        )
    if doors.readable or doors.closing:
        return host.ok(_what(doors))
    if any(each.sort == "firewall" for each in host.health.processes or ()):
        return host.better(
            "firewalld is running",
            cause="by default it drops connections from other hosts",
            fix="sudo firewall-cmd --list-all; medley ports",
        )
    return host.unknown("ufw is off, and only root can read the kernel's rules: sudo nft list ruleset")


def _what(doors: Firewall) -> str:
    on = "ufw is on" if doors.ufw else "ufw is off" if doors.ufw is False else "there is no ufw"
    return f"{on}, kernel rules that drop connections: {len(doors.closing)}"


def _is_of_ours(rule: str) -> bool:
    """Whether it closes a port of ours, or all."""
    numbers = re.search(r"dports? (?:\{ )?([0-9][0-9, :-]*)", rule)
    if numbers is None:
        return "dport" not in rule
    ranges = [re.findall(r"[0-9]+", each) for each in numbers[1].split(",")]
    ours = ((RayPorts.first, RayPorts.last), (API, API), EPHEMERAL)
    return any(
        int(each[0]) <= last and int(each[-1]) >= first for each in ranges if each for first, last in ours
    )


def _opened(rule: str, case: Case) -> str:
    """What lets the cluster's network in, before the rule that does not."""
    networks = case.fabric.networks if case.fabric else ()
    from_, note = (networks[0], "") if networks else ("NETWORK", "  # in CIDR form: the cluster's")
    place = rule.partition(":")[0]
    if place == "iptables":
        return f"sudo iptables -I INPUT -s {from_} -j ACCEPT{note}"
    return f"sudo nft insert rule {place} ip saddr {from_} accept{note}"


@health_check("ports", "ports of Ray and the API", lambda health: health.doors)
def ports(host: ExaminedHost, doors: Firewall) -> Iterator[Check]:
    """Those of Ray's head and of its nodes, unless our own Ray has them, and that of the API."""
    ray, keeping = RayPorts, host.health.keeping
    running = any(each.ours and each.sort == "ray" for each in host.health.processes or ())
    open_ = {port for port, _ in doors.listening}
    taken = sorted(open_ & {ray.gcs, *ray.of_raylet})
    numbers = ", ".join(map(str, taken))
    if taken and not running and not (keeping and keeping.membership and host.health.processes is None):
        yield host.wrong(
            f"Port{'s' if len(taken) > 1 else ''} {numbers} {'are' if len(taken) > 1 else 'is'} in use",
            cause="Ray listens there, and medley has not started Ray here",
            fix=f"sudo ss -ltnp 'sport = :{taken[0]}'  # find the process, and end it if it is yours",
        )
    elif API in open_ and not (running or (keeping and keeping.serving)):
        yield host.better(
            f"Port {API} is already in use",
            cause="the API listens there by default",
            fix=f"sudo ss -ltnp 'sport = :{API}'  # or: medley serve MODEL --port {API + 1}",
        )
    elif taken:
        yield host.ok(f"medley's Ray listens at {numbers}")
    else:
        yield host.ok(f"{ray.gcs} to {ray.of_raylet[1]} and {API} are free")


@health_check("name", "host name", lambda health: health.doors)
def own_name(host: ExaminedHost, doors: Firewall) -> Iterator[Check]:
    """What the host's own name means here: torch and Gloo listen there, unless they are told otherwise."""
    own, means = host.facts.net.ips, ", ".join(doors.means)
    strange = [each for each in doors.means if not each.startswith("127.") and each not in own]
    if not doors.means:
        yield host.better(
            "The host's own name does not resolve",
            cause="torch, Ray and sudo look it up, and wait for it",
            fix='echo "127.0.1.1 $(uname -n)" | sudo tee -a /etc/hosts',
        )
    elif strange and own:
        yield host.wrong(
            f"The host's own name resolves to {', '.join(strange)}, not to an address of this host",
            cause=f"its addresses are {', '.join(sorted(own))}; a program that listens at its own name fails",
            fix=r'sudo sed -i "s/^[0-9.]*\(.*\b$(uname -n)\b\)/127.0.1.1\1/" /etc/hosts',
        )
    elif all(each.startswith("127.") for each in doors.means):
        yield host.ok(
            f"resolves to {means}, the loopback: Gloo would listen there, "
            "so medley gives it the cluster's interface"
        )
    else:
        yield host.ok(f"resolves to {means}")


@health_check("rdma-libraries", "RDMA libraries", lambda health: health.rdma)
def rdma_libraries(host: ExaminedHost, parts: RdmaParts) -> Iterator[Check]:
    active = [port.device for port in host.facts.rdma if port.active]
    if not active:
        return
    if parts.libraries is None:
        yield host.unknown("ldconfig is not installed")
        return
    needed = (
        "libibverbs",
        *(["libmlx5"] if any(each.startswith(("mlx5", "roce")) for each in active) else ()),
    )
    lacking = [each for each in needed if each not in parts.libraries]
    if lacking:
        yield host.wrong(
            f"{' and '.join(lacking)} cannot be loaded",
            cause=f"{', '.join(active)} can do RDMA, but without these NCCL silently uses TCP",
            fix="sudo apt-get install -y libibverbs1 ibverbs-providers librdmacm1",
        )
    else:
        yield host.ok(", ".join(sorted(parts.libraries)))


@case_check("peer-memory", "GPUDirect RDMA")
def peer_memory(case: Case) -> Iterator[Check]:
    """GPU memory that RDMA reads by itself, where the GPUs of all hosts can give it."""
    if case.fabric is None or case.fabric.transport != "rdma":
        return
    lacking = [
        name
        for name, host in case.hosts.items()
        if host.unified or any("GeForce" in gpu.name for gpu in host.facts.gpus)
    ]
    for host in case.hosts.values():
        parts = host.health.rdma
        if lacking:
            have = "have" if len(lacking) > 1 else "has"
            yield host.ok(f"not used: {', '.join(lacking)} {have} no GPUDirect RDMA")
        elif parts is None:
            yield host.unknown(UNASKED)
        elif parts.dmabuf:
            yield host.ok("the open driver provides it by dma-buf")
        elif parts.modules & {"nvidia_peermem", "nv_peer_mem"}:
            yield host.ok("nvidia_peermem is loaded")
        else:
            yield host.better(
                "RDMA cannot read GPU memory directly",
                cause="without nvidia_peermem or the open driver all data passes through host memory",
                fix=host.mend("modprobe", "nvidia-peermem", root=True),
            )
