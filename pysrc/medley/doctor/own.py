"""What medley has on a host from before: secrets, its part in a cluster, and what was left behind."""

from collections.abc import Iterator

from medley.condition.keeping import Keeping
from medley.condition.processes import Process
from medley.doctor.shapes import UNASKED, Case, Check, Host, Mend, better, mended, ok, unknown, wrong

_LINGER = 'loginctl enable-linger "${SUDO_USER:-$(id -un)}"'
_STATE = '"${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'


def secrets(host: Host, keeping: Keeping) -> Iterator[Check]:
    """Who has the token may run code on every host of the cluster."""
    for name, mode in keeping.modes.items():
        if int(mode, 8) & 0o077:
            problem = wrong(
                host.name,
                f"others can read {name}: its file has mode {mode}",
                cause="who has it may run programs on every host of the cluster"
                if name == "token"
                else "it opens the API",
                fix="",
            )
            yield mended(problem, Mend(host.name, ("sh", "-c", f"chmod 600 {_STATE}/{name}")))
    if all(not int(mode, 8) & 0o077 for mode in keeping.modes.values()):
        yield ok(
            host.name,
            ", ".join(f"{name} {mode}" for name, mode in keeping.modes.items()) or "there is none yet",
        )


def address(host: Host, keeping: Keeping) -> Iterator[Check]:
    """The address by which a cluster knows this host is still its own."""
    noted = keeping.membership.get("address")
    links = {at.ip: link for link in host.facts.net.links for at in link.addresses}
    if not noted or not links:
        return
    if noted not in links:
        yield wrong(
            host.name,
            f"its cluster knows it by {noted}, which it has no more",
            cause=f"it has {', '.join(sorted(links))}; a model waits for the old one",
            fix="medley ray-stop  # then medley up; for addresses that stay: medley link setup",
        )
    elif not links[noted].up:
        yield wrong(
            host.name,
            f"the link of {noted}, by which its cluster knows it, is down",
            cause=f"{links[noted].name} has no carrier",
            fix=f"sudo ip link set {links[noted].name} up",
        )
    else:
        yield ok(host.name, f"{noted} on {links[noted].name}, by which its cluster knows it")


def leftovers(host: Host, found: tuple[Process, ...]) -> Iterator[Check]:
    """Rays and engines of others, or of ours without a part in a cluster."""
    keeping = host.condition.keeping
    theirs = [each for each in found if each.sort == "ray" and not each.ours]
    ours = [each for each in found if each.sort == "ray" and each.ours]
    served = keeping.serving if keeping else ()
    engines = [each for each in found if each.sort == "engine" and not each.ours and not served]
    if theirs:
        yield better(
            host.name,
            f"a Ray that is not medley's runs: {_named(theirs)}",
            cause="it has memory, and ports that ours may want",
            fix="ray stop"
            if all(each.own for each in theirs)
            else f"ps -o user,args -p {theirs[0].pid}  # and ask its user",
        )
    if ours and keeping and not keeping.membership:
        found_ = better(
            host.name,
            f"a Ray of medley's is left: {_named(ours)}",
            cause="no note says which cluster it is of",
            fix="",
        )
        yield mended(found_, Mend(host.name, ("medley", "ray-stop")))
    if engines:
        yield better(
            host.name,
            f"an engine runs already: {_named(engines)}",
            cause="it has memory that another model would need",
            fix=f"ps -o pid,user,args -p {','.join(str(each.pid) for each in engines)}  # or: medley stop",
        )
    if not theirs and not engines and not (ours and keeping and not keeping.membership):
        serves = f"medley serves at {', '.join(map(str, served))}" if served else ""
        our = f"our own Ray ({len(ours)} processes)" if ours else ""
        yield ok(host.name, "; ".join(filter(None, (our, serves))) or "no Ray and no engine runs")


def _named(found: list[Process]) -> str:
    return ", ".join(f"{each.name} ({each.pid})" for each in found)


def lingering(case: Case) -> Iterator[Check]:
    """What was started by medley outlasts a logout and comes back after a boot."""
    for name, host in case.hosts.items():
        settings = host.condition.settings
        if settings is None:
            yield unknown(name, UNASKED)
        elif settings.lingers is None:
            yield unknown(name, "there is no systemd here")
        elif settings.lingers:
            yield ok(name, "what medley starts comes back after a boot")
        elif case.group:
            problem = better(
                name,
                "its part in a cluster does not come back by itself after a reboot",
                cause="systemd ends a user's units with the last login, unless the user lingers",
                fix="",
            )
            yield mended(problem, Mend(name, ("sh", "-c", _LINGER), root=True))
        else:
            yield ok(name, "not needed on one host")


def model(case: Case) -> Iterator[Check]:
    """The model that was asked about."""
    if case.fits is None:
        return
    said, problem = case.fits
    yield wrong("all", problem.what, cause=problem.cause, fix=problem.fix) if problem else ok("all", said)
