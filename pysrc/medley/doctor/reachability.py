"""Check addresses, connections, firewalls, ports and names, and the libraries that RDMA needs."""

import re
from collections.abc import Iterator

from medley.doctor.checks import (
    ALL_HOSTS,
    NOT_RECORDED,
    Check,
    Examination,
    ExaminedHost,
    all_hosts_check,
    health_check,
)
from medley.errors import Problem
from medley.host.health.access import Firewall
from medley.host.health.software import MedleyFiles, RdmaParts
from medley.network.ports import API_PORT, EPHEMERAL_RANGE, RayPorts

_MAX_RULES_SHOWN = 3
# nft reads its arguments as one script, so quotes would not keep a `;` in a name from ending the command.
_NFT_CHAIN = re.compile(r"\w+( [A-Za-z_.][\w./-]*){2}", re.ASCII)


@health_check("address", "cluster address", lambda health: health.medley_files)
def address(host: ExaminedHost, medley_files: MedleyFiles) -> Iterator[Check]:
    member_address = medley_files.membership.get("address")
    links = {at.ip: link for link in host.facts.net.links for at in link.addresses}
    if not member_address or not links:
        return
    if member_address not in links:
        yield host.report_wrong(
            f"Cluster address {member_address} is no longer on this host",
            cause=f"its addresses are {', '.join(sorted(links))}; a model waits for the old one",
            fix="medley ray-stop  # then medley up; for addresses that stay: medley link setup",
        )
    elif not (link := links[member_address]).up:
        yield host.report_wrong(
            f"Link {link.name} of cluster address {member_address} is down",
            cause=f"{link.name} has no carrier",
            fix=f"sudo ip link set {link.name} up",
        )
    else:
        yield host.report_ok(f"{member_address} on {link.name}")


@all_hosts_check("reach", "connections between hosts")
def connections(examination: Examination) -> Iterator[Check]:
    """Report the connections that every host has tried to all others."""
    if examination.connection_problems is None:
        if examination.head is None and examination.has_several_hosts:
            yield ALL_HOSTS.report_unknown("transcripts cannot show it; run medley doctor on the cluster")
        elif examination.silent_hosts:
            yield ALL_HOSTS.report_unknown(f"hosts did not answer: {', '.join(examination.silent_hosts)}")
        return
    for name, host in examination.hosts.items():
        if name in examination.connection_problems:
            yield host.report_problem(_name_closing_rule(examination.connection_problems[name], examination))
        elif examination.fabric and name in examination.fabric.endpoints:
            yield host.report_ok("reaches all other hosts, and they reach it")


def _name_closing_rule(problem: Problem, examination: Examination) -> Problem:
    """Return the Problem with the firewall rule that drops the connection, if doctor could read it."""
    for name, host in examination.hosts.items():
        firewall_state = host.health.firewall
        if (
            problem.fix.startswith(f"on {name}: ")
            and firewall_state
            and firewall_state.closing_rules
            and not firewall_state.ufw
        ):
            fix = f"on {name}: {_format_opening_fix(firewall_state.closing_rules[0], examination)}"
            return Problem(problem.what, cause=f"{problem.cause}; {firewall_state.closing_rules[0]}", fix=fix)
    return problem


@all_hosts_check("firewall", "firewall rules")
def firewall(examination: Examination) -> Iterator[Check]:
    """Find rules that drop connections; if the hosts reach each other, the rules let them through."""
    for host in examination.hosts.values():
        firewall_state = host.health.firewall
        if firewall_state is None:
            yield host.report_unknown(NOT_RECORDED)
        elif _is_reachable(examination) and (firewall_state.ufw or firewall_state.closing_rules):
            yield host.report_ok(f"{_summarize_firewall(firewall_state)}, and the other hosts get through")
        else:
            yield _check_rules(host, firewall_state, examination)


def _is_reachable(examination: Examination) -> bool:
    """Return whether every connection between several hosts was tried and works."""
    return (
        examination.has_several_hosts
        and examination.connection_problems is not None
        and not examination.connection_problems
    )


def _check_rules(host: ExaminedHost, firewall_state: Firewall, examination: Examination) -> Check:
    closing_rules = [rule for rule in firewall_state.closing_rules if _closes_medley_port(rule)]
    if firewall_state.ufw:
        return host.report_improvable(
            "ufw is on",
            cause="by default it drops connections from other hosts, and ranks use any port",
            fix="medley ports --firewall ufw | sudo sh -e; sudo ufw status",
        )
    if closing_rules:
        problems = examination.connection_problems or {}
        is_to_fix_here = any(problem.fix.startswith(f"on {host.name}: ") for problem in problems.values())
        return host.report(
            "wrong" if is_to_fix_here or host.name in problems else "better",
            "A firewall drops connections to medley's ports",
            cause="; ".join(closing_rules[:_MAX_RULES_SHOWN]),
            fix=_format_opening_fix(closing_rules[0], examination),
        )
    if firewall_state.is_readable or firewall_state.closing_rules:
        return host.report_ok(_summarize_firewall(firewall_state))
    if any(process.role == "firewall" for process in host.health.processes or ()):
        return host.report_improvable(
            "firewalld is running",
            cause="by default it drops connections from other hosts",
            fix="sudo firewall-cmd --list-all; medley ports",
        )
    return host.report_unknown("ufw is off, and only root can read the kernel's rules: sudo nft list ruleset")


def _summarize_firewall(firewall_state: Firewall) -> str:
    ufw_state = {None: "there is no ufw", True: "ufw is on", False: "ufw is off"}[firewall_state.ufw]
    return f"{ufw_state}, kernel rules that drop connections: {len(firewall_state.closing_rules)}"


def _closes_medley_port(rule: str) -> bool:
    """Return whether a rule of nft or iptables closes a port that medley uses, or all ports."""
    numbers = re.search(r"dports? (?:\{ )?([0-9][0-9, :-]*)", rule)
    if numbers is None:
        return "dport" not in rule
    closed_ranges = [re.findall(r"[0-9]+", text) for text in numbers[1].split(",")]
    medley_ranges = ((RayPorts.first, RayPorts.last), (API_PORT, API_PORT), EPHEMERAL_RANGE)
    return any(
        int(closed[0]) <= last and int(closed[-1]) >= first
        for closed in closed_ranges
        if closed
        for first, last in medley_ranges
    )


def _format_opening_fix(rule: str, examination: Examination) -> str:
    """Return a command that accepts the cluster's network ahead of the rule that drops it."""
    networks = examination.fabric.networks if examination.fabric else ()
    network, note = (networks[0], "") if networks else ("NETWORK", "  # in CIDR form: the cluster's")
    chain = rule.partition(":")[0]
    if chain == "iptables":
        return f"sudo iptables -I INPUT -s {network} -j ACCEPT{note}"
    if not _NFT_CHAIN.fullmatch(chain):
        return "sudo nft list ruleset  # then change the rule that drops connections"
    return f"sudo nft insert rule {chain} ip saddr {network} accept{note}"


@health_check("ports", "ports of Ray and the API", lambda health: health.firewall)
def ports(host: ExaminedHost, firewall_state: Firewall) -> Iterator[Check]:
    """Check that the ports of Ray and of the API are free, unless medley's own Ray or server has them."""
    ray, medley_files = RayPorts, host.health.medley_files
    is_ray_running = any(
        process.is_own_ray and process.role == "ray" for process in host.health.processes or ()
    )
    # An old transcript lists no processes; a member of a cluster then has medley's Ray.
    may_be_member_ray = medley_files and medley_files.membership and host.health.processes is None
    listening_ports = {port for port, _ in firewall_state.listening}
    used_ports = sorted(listening_ports & {ray.gcs, *ray.raylet})
    numbers = ", ".join(map(str, used_ports))
    if used_ports and not is_ray_running and not may_be_member_ray:
        subject, verb = ("Ports", "are") if len(used_ports) > 1 else ("Port", "is")
        yield host.report_wrong(
            f"{subject} {numbers} {verb} in use",
            cause="Ray listens there, and medley has not started Ray here",
            fix=f"sudo ss -ltnp 'sport = :{used_ports[0]}'  # find the process, and end it if it is yours",
        )
    elif API_PORT in listening_ports and not (is_ray_running or (medley_files and medley_files.serving)):
        yield host.report_improvable(
            f"Port {API_PORT} is already in use",
            cause="the API listens there by default",
            fix=f"sudo ss -ltnp 'sport = :{API_PORT}'  # or: medley serve MODEL --port {API_PORT + 1}",
        )
    elif used_ports:
        yield host.report_ok(f"medley's Ray listens at {numbers}")
    else:
        yield host.report_ok(f"{ray.gcs} to {ray.raylet[1]} and {API_PORT} are free")


@health_check("name", "host name", lambda health: health.firewall)
def host_name(host: ExaminedHost, firewall_state: Firewall) -> Iterator[Check]:
    """Check the addresses of the host's own name: torch and Gloo listen there by default."""
    host_ips, addresses = host.facts.net.ips, ", ".join(firewall_state.local_addresses)
    foreign_ips = [
        ip for ip in firewall_state.local_addresses if not ip.startswith("127.") and ip not in host_ips
    ]
    if not firewall_state.local_addresses:
        yield host.report_improvable(
            "The host's own name does not resolve",
            cause="torch, Ray and sudo look it up, and wait for it",
            fix='echo "127.0.1.1 $(uname -n)" | sudo tee -a /etc/hosts',
        )
    elif foreign_ips and host_ips:
        yield host.report_wrong(
            f"The host's own name resolves to {', '.join(foreign_ips)}, not to an address of this host",
            cause=f"its addresses are {', '.join(sorted(host_ips))}; "
            "a program that listens at its own name fails",
            fix=r'sudo sed -i "s/^[0-9.]*\(.*\b$(uname -n)\b\)/127.0.1.1\1/" /etc/hosts',
        )
    elif all(ip.startswith("127.") for ip in firewall_state.local_addresses):
        yield host.report_ok(
            f"resolves to {addresses}, the loopback: Gloo would listen there, "
            "so medley gives it the cluster's interface"
        )
    else:
        yield host.report_ok(f"resolves to {addresses}")


@health_check("rdma-libraries", "RDMA libraries", lambda health: health.rdma)
def rdma_libraries(host: ExaminedHost, parts: RdmaParts) -> Iterator[Check]:
    devices = [port.device for port in host.facts.rdma if port.active]
    if not devices:
        return
    if parts.libraries is None:
        yield host.report_unknown("ldconfig is not installed")
        return
    needed = ["libibverbs"]
    if any(device.startswith(("mlx5", "roce")) for device in devices):
        needed.append("libmlx5")
    missing = [library for library in needed if library not in parts.libraries]
    if missing:
        yield host.report_wrong(
            f"{' and '.join(missing)} cannot be loaded",
            cause=f"{', '.join(devices)} can do RDMA, but without these NCCL silently uses TCP",
            fix="sudo apt-get install -y libibverbs1 ibverbs-providers librdmacm1",
        )
    else:
        yield host.report_ok(", ".join(sorted(parts.libraries)))


@all_hosts_check("peer-memory", "GPUDirect RDMA")
def peer_memory(examination: Examination) -> Iterator[Check]:
    """Check that RDMA can read GPU memory directly, if the GPUs of all hosts support it."""
    if examination.fabric is None or examination.fabric.transport != "rdma":
        return
    unsupported_hosts = [
        name
        for name, host in examination.hosts.items()
        if host.has_unified_memory or any("GeForce" in gpu.name for gpu in host.facts.gpus)
    ]
    for host in examination.hosts.values():
        parts = host.health.rdma
        if unsupported_hosts:
            verb = "have" if len(unsupported_hosts) > 1 else "has"
            yield host.report_ok(f"not used: {', '.join(unsupported_hosts)} {verb} no GPUDirect RDMA")
        elif parts is None:
            yield host.report_unknown(NOT_RECORDED)
        elif parts.has_open_driver:
            yield host.report_ok("the open driver provides it by dma-buf")
        elif parts.modules & {"nvidia_peermem", "nv_peer_mem"}:
            yield host.report_ok("nvidia_peermem is loaded")
        else:
            yield host.report_improvable(
                "RDMA cannot read GPU memory directly",
                cause="without nvidia_peermem or the open driver all data passes through host memory",
                fix=host.build_fix("modprobe", "nvidia-peermem", needs_root=True),
            )
