"""A launcher is what starts a model's ranks: the engine alone (solo), Ray, or a process on each host (mp)."""

from medley.plan import Launcher
from medley.problem import Problem


def launcher(asked: Launcher | None, *, hosts: int | None, role: str | None) -> tuple[Launcher, str]:
    """Which one, and why; `hosts`: as many as were asked for, `role`: this host's in a cluster of Ray's."""
    if asked is None:
        if role is not None and hosts != 1:
            return "ray", "Ray starts the ranks: this host heads a cluster"
        if (hosts or 1) > 1:
            return "mp", "each host starts its own ranks: no Ray cluster is here"
        return "solo", "all of it is on this host"
    if asked == "mp" and (hosts or 1) < 2:  # noqa: PLR2004 - several
        raise Problem(
            "--launcher mp is for several hosts",
            cause=f"--hosts is {hosts or 'not given'}, and nobody says how many will join",
            fix="--launcher mp --hosts 2, and on each other host: medley join HEAD",
        )
    if asked == "mp" and role is not None:
        raise Problem(
            "this host is in a Ray cluster, whose hosts' devices are its own",
            cause=f"it is its {role}",
            fix="leave --launcher out: then Ray starts the ranks; or end the cluster: medley ray-stop",
        )
    if asked == "solo" and (hosts or 1) > 1:
        raise Problem(
            "--launcher solo is for one host", cause=f"--hosts is {hosts}", fix="leave one of them out"
        )
    return asked, f"--launcher {asked}, as asked"
