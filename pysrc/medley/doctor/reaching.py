"""Whether hosts reach each other: what is in the way of it, what has our ports, what a host's name means."""

import re
from collections.abc import Iterator

from medley.condition.doors import Doors
from medley.doctor.shapes import UNASKED, Case, Check, Host, better, ok, told, unknown, wrong
from medley.ports import API, EPHEMERAL
from medley.problem import Problem
from medley.ray import Ports

_RULE_LIMIT = 3


def connect(case: Case) -> Iterator[Check]:
    """What each of them finds open at the others, tried."""
    if case.closed is None:
        if case.group:
            yield unknown("all", "it is tried over a cluster alone, and not from transcripts")
        return
    for name in case.hosts:
        if name in case.closed:
            yield told(name, "wrong", _where_it_is_known(case.closed[name], case))
        elif case.fabric and name in case.fabric.ends:
            yield ok(name, "it reaches the others, and they reach it")


def _where_it_is_known(problem: Problem, case: Case) -> Problem:
    """With the rule that is in the way, where it could be read."""
    for name, host in case.hosts.items():
        doors = host.condition.doors
        if problem.fix.startswith(f"on {name}: ") and doors and doors.closing and not doors.ufw:
            fix = f"on {name}: {_opened(list(doors.closing), case)}"
            return Problem(problem.what, cause=f"{problem.cause}; {doors.closing[0]}", fix=fix)
    return problem


def firewall(case: Case) -> Iterator[Check]:
    """Rules that drop what comes in; where hosts tried, and reach each other, they let these in."""
    for name, host in case.hosts.items():
        doors = host.condition.doors
        if doors is None:
            yield unknown(name, UNASKED)
        elif case.closed is not None and not case.closed and case.group and (doors.ufw or doors.closing):
            yield ok(name, f"{_what(doors)}, which lets the others in")
        else:
            yield from _alone(name, host, doors, case)


def _alone(name: str, host: Host, doors: Doors, case: Case) -> Iterator[Check]:
    closing = [each for each in doors.closing if _is_of_ours(each)]
    if doors.ufw:
        yield better(
            name,
            "ufw is on",
            cause="unless told otherwise it drops what other hosts begin, and ranks take any port",
            fix="medley ports --firewall ufw | sudo sh -e; sudo ufw status",
        )
    elif closing:
        blamed = any(each.fix.startswith(f"on {name}: ") for each in (case.closed or {}).values())
        state = wrong if blamed or name in (case.closed or {}) else better
        yield state(
            name,
            "a firewall drops what comes in at ports of ours",
            cause="; ".join(closing[:_RULE_LIMIT]),
            fix=_opened(closing, case),
        )
    elif doors.readable or doors.closing:
        yield ok(name, _what(doors))
    else:
        firewalld = [each for each in host.condition.processes or () if each.sort == "firewall"]
        if firewalld:
            yield better(
                name,
                "firewalld runs",
                cause="unless it was told otherwise it drops what other hosts begin",
                fix="sudo firewall-cmd --list-all; medley ports",
            )
        else:
            yield unknown(
                name, "ufw is not on, and root alone can read the kernel's own rules: sudo nft list ruleset"
            )


def _what(doors: Doors) -> str:
    on = "ufw is on" if doors.ufw else "ufw is off" if doors.ufw is False else "there is no ufw"
    return f"{on}, rules of the kernel that drop what comes in: {len(doors.closing)}"


def _is_of_ours(rule: str) -> bool:
    """Whether it closes a port of ours, or all."""
    numbers = re.search(r"dports? (?:\{ )?([0-9][0-9, :-]*)", rule)
    if numbers is None:
        return "dport" not in rule
    ranges = [re.findall(r"[0-9]+", each) for each in numbers[1].split(",")]
    ours = ((Ports().first, Ports().last), (API, API), EPHEMERAL)
    return any(
        int(each[0]) <= last and int(each[-1]) >= first for each in ranges if each for first, last in ours
    )


def _opened(closing: list[str], case: Case) -> str:
    """What lets the cluster's network in, before the rule that does not."""
    networks = case.fabric.networks if case.fabric else ()
    from_, note = (networks[0], "") if networks else ("NETWORK", "  # in CIDR form: the cluster's")
    place = closing[0].partition(":")[0]
    if place == "iptables":
        return f"sudo iptables -I INPUT -s {from_} -j ACCEPT{note}"
    return f"sudo nft insert rule {place} ip saddr {from_} accept{note}"


def ports(host: Host, doors: Doors) -> Iterator[Check]:
    """Those of Ray's head and of its nodes, unless our own Ray has them, and that of the API."""
    ray, keeping = Ports(), host.condition.keeping
    running = any(each.ours and each.sort == "ray" for each in host.condition.processes or ())
    open_ = {port for port, _ in doors.listening}
    taken = sorted(open_ & {ray.gcs, *ray.of_raylet})
    if taken and not running and not (keeping and keeping.membership and host.condition.processes is None):
        numbers = ", ".join(map(str, taken))
        yield wrong(
            host.name,
            f"port{'s' if len(taken) > 1 else ''} {numbers} {'are' if len(taken) > 1 else 'is'} taken",
            cause="Ray is to listen there, and no Ray of medley's runs here",
            fix=f"sudo ss -ltnp 'sport = :{taken[0]}'  # whose it is; end it, or if it is a Ray: ray stop",
        )
    elif API in open_ and not (running or (keeping and keeping.serving)):
        yield better(
            host.name,
            f"port {API} is taken",
            cause="a model's API is there unless serve is told another port",
            fix=f"sudo ss -ltnp 'sport = :{API}'  # whose it is; or: medley serve MODEL --port {API + 1}",
        )
    else:
        ours = (
            f"our own Ray has {', '.join(map(str, taken))}"
            if taken
            else f"{ray.gcs} to {ray.of_raylet[1]} and {API} are free"
        )
        yield ok(host.name, ours)


def name(host: Host, doors: Doors) -> Iterator[Check]:
    """What the host's own name means here: torch and Gloo listen there, unless they are told otherwise."""
    own = {at.ip for link in host.facts.net.links for at in link.addresses}
    strange = [each for each in doors.means if not each.startswith("127.") and each not in own]
    if not doors.means:
        yield better(
            host.name,
            "its own name means nothing here",
            cause="torch, Ray and sudo look it up, and wait for it",
            fix='echo "127.0.1.1 $(uname -n)" | sudo tee -a /etc/hosts',
        )
    elif strange and own:
        yield wrong(
            host.name,
            f"its own name means {', '.join(strange)}, which is no address of it",
            cause=f"it has {', '.join(sorted(own))}; what listens at its own name then fails",
            fix=r'sudo sed -i "s/^[0-9.]*\(.*\b$(uname -n)\b\)/127.0.1.1\1/" /etc/hosts',
        )
    elif all(each.startswith("127.") for each in doors.means):
        yield ok(
            host.name,
            f"its name means {', '.join(doors.means)}, the loopback: Gloo would listen there, "
            "and is told the wire's interface by medley",
        )
    else:
        yield ok(host.name, f"its name means {', '.join(doors.means)}")
