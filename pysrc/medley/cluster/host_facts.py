"""Read the facts of the hosts of cluster.toml, to plan before `medley up`."""

from medley import transcript
from medley.cluster import checks
from medley.cluster.cluster_file import Cluster
from medley.cluster.fleet import Fleet, format_host_count
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import SiteHost
from medley.planner.site import Site
from medley.progress import Progress

_FACTS_LIMIT_S = 90


def find_planned_site(cluster: Cluster, progress: Progress) -> Site:
    """Return the hosts that `medley up` would join now; note why each other one is left out."""
    with (
        Fleet(cluster, progress) as fleet,
        progress.stage(f"ask {format_host_count(cluster.hosts)} of cluster.toml"),
    ):
        states = fleet.ask("look", limit_s=_FACTS_LIMIT_S)
    failed = dict(fleet.failed)
    hosts = {}
    for name, state in states.items():
        parsed_facts = facts.read_facts(transcript.parse_transcript(state["transcript"]))
        try:
            kind = checks.find_member_kind(name, parsed_facts, cluster.hosts[name])
        except Problem as kind_problem:
            failed[name] = kind_problem
        else:
            hosts[name] = SiteHost(parsed_facts, kind)
    members = {name: (host.kind, cluster.merge_host(name)) for name, host in hosts.items()}
    facts_by_host = {name: host.facts for name, host in hosts.items()}
    failed |= dict(checks.list_unfit_hosts(facts_by_host, members, cluster.engine, cluster.head))
    hosts = {name: host for name, host in hosts.items() if name not in failed}
    if not hosts:
        raise failed.get(cluster.head) or next(iter(failed.values()))
    for name, problem in failed.items():
        progress.note(f"planned without {name}: {problem.what}: {problem.cause}")
    members = {name: members[name] for name in hosts}
    return Site(hosts, engine_sources=checks.find_engine_sources(members, cluster.engine))
