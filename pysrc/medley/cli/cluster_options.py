"""Declare the switches for cluster.toml, run a verb at the head, and print the problems of several hosts."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medley.cli import Verb, switch
from medley.cli.output import print_message
from medley.cluster import membership
from medley.cluster.cluster_file import Cluster
from medley.cluster.fleet import connect_host, is_this_host
from medley.cluster.remote import Remote
from medley.cluster.self_command import TYPED_HERE_VARIABLE
from medley.errors import Problem

_CLUSTER_SWITCH = switch("--cluster FILE", "table of the cluster [default: ./cluster.toml, else your own]")


class ClusterVerb(Verb):
    cluster: str | None = _CLUSTER_SWITCH
    without: list[str] = switch("--without HOST", "host to leave out")

    def read_chosen_cluster(self, *, can_be_local: bool = False) -> Cluster:
        """Return the cluster of cluster.toml; without one, this host if it `can_be_local`."""
        from medley.cluster import cluster_file

        is_local = can_be_local and cluster_file.find_cluster_file(self.cluster) is None
        return cluster_file.leave_out_hosts(
            cluster_file.build_local_cluster() if is_local else cluster_file.read_cluster(self.cluster),
            tuple(self.without),
        )


def require_hosts(cluster: Cluster, names: Iterable[str], fix: str) -> None:
    if unknown := [name for name in names if name not in cluster.hosts]:
        cause = f"its hosts are {', '.join(cluster.hosts)}"
        raise Problem(f"the cluster has no host {unknown[0]}", cause=cause, fix=fix)


def print_problems(problems: Iterable[Problem]) -> int:
    """Print all problems; return the exit code of the first."""
    printed = list(problems)
    for problem in printed:
        print_message(problem)
    return printed[0].status if printed else 0


def build_problem_tables(problems: Mapping[str, Problem]) -> dict[str, dict[str, str]]:
    return {name: problem.table for name, problem in problems.items()}


@dataclass(frozen=True)
class HeadChoice:
    cluster: str | None = _CLUSTER_SWITCH

    def find_remote_head(self) -> Remote | None:
        """Return the head of cluster.toml's cluster; None on the head, or if this host heads a cluster."""
        from medley.cluster import cluster_file

        if os.environ.get(TYPED_HERE_VARIABLE):
            return None
        member = membership.find_membership()
        if not self.cluster and (not cluster_file.find_cluster_file() or (member and member.role == "head")):
            return None
        known_cluster = cluster_file.read_cluster(self.cluster)
        return (
            None
            if is_this_host(known_cluster, known_cluster.head)
            else connect_host(known_cluster, known_cluster.head)
        )

    def read_on_event(self) -> str | None:
        """Return the command of cluster.toml for events; None if there is none."""
        from medley.cluster import cluster_file

        return (
            cluster_file.read_cluster(self.cluster).on_event
            if self.cluster or cluster_file.find_cluster_file()
            else None
        )


def run_at_head(head: Remote, on_event: str | None = None) -> int:
    """Run the user's command on the head, and print its output here; return its exit code. Ctrl-C ends it.

    The command for events is not among the words, because every user of that host can read those.
    """
    words = drop_medley_switches(sys.argv[1:], {"--cluster": 1, "--on-event": 1})
    with head:
        head.read_greeting()
        print_message(f"on {head.name}, the head: medley {' '.join(words)}")
        try:
            answer = head.ask(
                "type", {"words": words, "on_event": on_event}, float("inf"), _print_tagged_line
            )
        except KeyboardInterrupt:
            print_message(f"stopped; {head.name} ends what this command started there")
            raise
    return int(answer["status"])


def drop_medley_switches(words: list[str], switches: Mapping[str, int]) -> list[str]:
    """Remove these switches, each with so many words after it; the engine's flags after -- stay."""
    end = words.index("--") if "--" in words else len(words)
    remaining: list[str] = []
    skip_count = 0
    for word in words[:end]:
        if skip_count:
            skip_count -= 1
        elif word in switches:
            skip_count = switches[word]
        elif word.partition("=")[0] not in switches:
            remaining.append(word)
    return [*remaining, *words[end:]]


def _print_tagged_line(line: str) -> None:
    """Print a line on the stream that its first letter names: 1 for stdout, 2 for stderr."""
    print(line[1:], file=sys.stdout if line[0] == "1" else sys.stderr, flush=True)
