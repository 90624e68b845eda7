"""Ask the hosts of cluster.toml for their facts, to plan before `medley up`."""

from medley import transcript
from medley.cluster import Cluster, checks
from medley.cluster.fleet import Fleet, counted
from medley.errors import Problem
from medley.host import facts
from medley.planner.topology import Topology
from medley.progress import Progress

_LOOK_LIMIT_S = 90


def ask_hosts(cluster: Cluster, watch: Progress) -> Topology:
    """Return the hosts that `medley up` would join now; note why each other one is left out."""
    with Fleet(cluster, watch) as fleet, watch.stage(f"ask {counted(cluster.hosts)} of cluster.toml"):
        looks = fleet.ask("look", limit_s=_LOOK_LIMIT_S)
    failed = dict(fleet.failed)
    hosts = {}
    for name, look in looks.items():
        found = facts.read_facts(transcript.parse(look["transcript"]))
        try:
            hosts[name] = (found, checks.kind_of_member(name, found, cluster.hosts[name]))
        except Problem as unknown_kind:
            failed[name] = unknown_kind
    members = {name: (kind, cluster.member(name)) for name, (_, kind) in hosts.items()}
    found_facts = {name: each for name, (each, _) in hosts.items()}
    failed |= dict(checks.unfit(found_facts, members, cluster.engine, cluster.head))
    hosts = {name: each for name, each in hosts.items() if name not in failed}
    if not hosts:
        raise failed.get(cluster.head) or next(iter(failed.values()))
    for name, problem in failed.items():
        watch.note(f"planned without {name}: {problem.what}: {problem.cause}")
    members = {name: members[name] for name in hosts}
    return Topology(hosts, engine_sources=checks.sources_of_members(members, cluster.engine))
