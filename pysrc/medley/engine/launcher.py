"""Choose the launcher of a model's ranks: Ray, each host without Ray, or this host alone."""

from medley.errors import Problem
from medley.planner.plan import Launcher


def choose_launcher(
    requested: Launcher | None, *, host_count: int | None, role: str | None
) -> tuple[Launcher, str]:
    """Return the launcher and the reason; `role`: the host's role in a Ray cluster, if it is in one.

    `mp` is vLLM's multiprocessing: each host starts its own ranks, without Ray.
    """
    has_several_hosts = (host_count or 1) > 1
    if requested is None:
        if role is not None and host_count != 1:
            return "ray", "Ray starts the ranks: this host is the head of a cluster"
        if has_several_hosts:
            return "mp", "each host starts its own ranks: there is no Ray cluster"
        return "solo", "everything runs on this host"
    if requested == "mp" and not has_several_hosts:
        raise Problem(
            "--launcher mp is for several hosts",
            cause=f"--hosts is {host_count or 'not given'}, so the number of hosts is unknown",
            fix="--launcher mp --hosts 2, and on each other host: medley join HEAD",
        )
    if requested == "mp" and role is not None:
        raise Problem(
            "--launcher mp cannot run on a host of a Ray cluster",
            cause=f"this host is its {role}, and Ray manages the devices",
            fix="leave --launcher out to use Ray; or end the cluster: medley ray-stop",
        )
    if requested == "solo" and has_several_hosts:
        raise Problem(
            "--launcher solo is for one host", cause=f"--hosts is {host_count}", fix="leave one of them out"
        )
    return requested, f"--launcher {requested}, as requested"


def container_without_ray_problem() -> Problem:
    """Return the Problem that a container needs Ray."""
    return Problem(
        "without Ray a model cannot run in a container",
        cause="medley join starts the engine environment of its host",
        fix="medley ray-head --image IMAGE, and the same on ray-worker; or leave --image out",
    )


def dry_run_without_ray_problem(host_count: int, *, is_script: bool) -> Problem:
    """Return the Problem that a dry run without Ray has no hosts to plan for."""
    subject = "a script without Ray" if is_script else "a model without Ray"
    fix = f"name their kinds: --dry-run --launcher mp --hosts spark:{host_count}"
    if is_script:
        fix = "run it: each host prints its command; for only this host: --hosts 1 --dry-run"
    return Problem(
        f"{subject} cannot be planned before its hosts have joined",
        cause="the plan needs the facts that hosts send when they join",
        fix=fix,
    )
