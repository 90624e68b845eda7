"""Find the site of a launch: the hosts that it may run on, with their facts, engines and speeds."""

import platform
from collections import Counter
from collections.abc import Callable, Mapping

from medley.cluster import ray_serving
from medley.host import facts
from medley.host.facts import Facts
from medley.host.kind import Kind, SiteHost, find_kind, load_answers
from medley.planner import devices
from medley.planner.site import Site
from medley.progress import Output
from medley.serving.prepare import Job


def find_site(job: Job, output: Output) -> Site:
    """Return the hosts of the request, else those of its cluster once they have joined, else this host."""
    request = job.request
    if request.other_site:
        return request.other_site
    if job.cluster:
        return ray_serving.wait_for_site(
            job.cluster, request.host_count, request.wait_s or 0, output.progress
        )
    return find_this_host(request.kind, output.say)


def find_this_host(kind_name: str | None, print_line: Callable[[str], None]) -> Site:
    """Return this host alone; `kind_name`: its kind, if the user gave it."""
    host_facts = facts.read_facts(load_answers())
    kind = find_kind(host_facts, kind_name)
    if kind.warning:
        print_line(kind.warning)
    return Site({platform.node(): SiteHost(host_facts, kind)}, measurements=devices.read_measurements())


def build_joined_site(
    host_facts: Mapping[str, Facts],
    head_kind: Kind,
    addresses: Mapping[str, str],
    nccl_version: tuple[int, ...] | None,
) -> Site:
    """Return the hosts that joined a model without Ray, the head first; each has all its slots free."""
    head, *others = host_facts
    hosts = {head: SiteHost(host_facts[head], head_kind)}
    hosts |= {name: SiteHost(host_facts[name], find_kind(host_facts[name])) for name in others}
    slots = Counter(device.host for device in devices.list_devices(hosts))
    return Site(
        hosts,
        tuple(hosts),
        slots,
        addresses=addresses,
        measurements=devices.read_measurements(),
        nccl_version=nccl_version,
    )
