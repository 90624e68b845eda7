"""The programs that measure a wire, and the packages they come in."""

from collections.abc import Iterable

from medley.problem import Problem

# Debian and Ubuntu's package, and nixpkgs' attribute.
_PACKAGES = {
    "ping": ("iputils-ping", "iputils"),
    "iperf3": ("iperf3", "iperf3"),
    "ib_write_bw": ("perftest", "perftest"),
    "ib_write_lat": ("perftest", "perftest"),
}


def missing(names: Iterable[str]) -> Problem:
    """The one Problem of all programs that are not there."""
    lacking = tuple(names)
    debian = dict.fromkeys(_PACKAGES[name][0] for name in lacking)
    nix = dict.fromkeys(f"nixpkgs#{_PACKAGES[name][1]}" for name in lacking)
    without = "; or leave RDMA out: --tcp" if all(name.startswith("ib_") for name in lacking) else ""
    return Problem(
        f"{' and '.join(lacking)} {'is' if len(lacking) == 1 else 'are'} not installed",
        cause=f"PATH has no {', '.join(lacking)}; the other host needs the same",
        fix=f"sudo apt-get install {' '.join(debian)}\nor: nix shell {' '.join(nix)}{without}",
    )
