"""The switches for cluster.toml; a verb typed at the head; problems and tables of several hosts."""

import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from medley.cli import Verb, switch
from medley.cli.output import say
from medley.cluster import Cluster, membership
from medley.cluster.fleet import connect_host, is_this_host
from medley.cluster.remote import Remote
from medley.cluster.self_command import TYPED_HERE_VARIABLE
from medley.errors import Problem

_CLUSTER = switch("--cluster FILE", "table of the cluster [default: ./cluster.toml, else your own]")


class Clustered(Verb):
    cluster: str | None = _CLUSTER
    without: list[str] = switch("--without HOST", "host to leave out")

    def wanted(self, *, alone: bool = False) -> Cluster:
        """The cluster of cluster.toml; where there is none and `alone`, this host."""
        from medley import cluster

        absent = alone and cluster.find_file(self.cluster) is None
        return cluster.leave_out_hosts(
            cluster.build_local_cluster() if absent else cluster.read_cluster(self.cluster),
            tuple(self.without),
        )


def require_hosts(found: Cluster, names: Iterable[str], fix: str) -> None:
    if unknown := [name for name in names if name not in found.hosts]:
        cause = f"its hosts are {', '.join(found.hosts)}"
        raise Problem(f"the cluster has no host {unknown[0]}", cause=cause, fix=fix)


def print_problems(problems: Iterable[Problem]) -> int:
    """Print them all; the exit code is that of the first."""
    found = list(problems)
    for problem in found:
        say(problem)
    return found[0].status if found else 0


def tables(problems: Mapping[str, Problem]) -> dict[str, dict[str, str]]:
    return {name: problem.table for name, problem in problems.items()}


@dataclass(frozen=True)
class AtHead:
    cluster: str | None = _CLUSTER

    def elsewhere(self) -> Remote | None:
        """The head of cluster.toml's cluster, where that is another host and this one heads none."""
        from medley import cluster

        if os.environ.get(TYPED_HERE_VARIABLE):
            return None
        part = membership.find_membership()
        if not self.cluster and (not cluster.find_file() or (part and part.role == "head")):
            return None
        found = cluster.read_cluster(self.cluster)
        return None if is_this_host(found, found.head) else connect_host(found, found.head)

    def on_event(self) -> str | None:
        """The command of cluster.toml for events, where there is one."""
        from medley import cluster

        return cluster.read_cluster(self.cluster).on_event if self.cluster or cluster.find_file() else None


def typed_at(head: Remote, on_event: str | None = None) -> int:
    """The verb as it was typed, but there; what it says is said here; Ctrl-C ends it.

    The command for events goes apart from the words, which every user of that host can read.
    """
    words = without(sys.argv[1:], {"--cluster": 1, "--on-event": 1})
    with head:
        head.read_greeting()
        say(f"on {head.name}, the head: medley {' '.join(words)}")
        try:
            said = head.ask("type", {"words": words, "on_event": on_event}, float("inf"), _pass_on)
        except KeyboardInterrupt:
            say(f"stopped; {head.name} ends what this command started there")
            raise
    return int(said["status"])


def without(words: list[str], switches: Mapping[str, int]) -> list[str]:
    """What was typed less these switches, each with so many words after it; an engine's own stay."""
    end = words.index("--") if "--" in words else len(words)
    kept: list[str] = []
    skip = 0
    for word in words[:end]:
        if skip:
            skip -= 1
        elif word in switches:
            skip = switches[word]
        elif word.partition("=")[0] not in switches:
            kept.append(word)
    return [*kept, *words[end:]]


def _pass_on(line: str) -> None:
    """The first letter tells which stream it came by."""
    print(line[1:], file=sys.stdout if line[0] == "1" else sys.stderr, flush=True)
