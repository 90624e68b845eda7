"""The switches of verbs that speak to every host of a cluster, and how its failures are printed."""

import sys
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.cli.wrapped import fit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from medley.cluster import Cluster
    from medley.problem import Problem


class Clustered(Verb):
    cluster = cli.SwitchAttr(
        "--cluster", str, argname="FILE", help="the cluster's table; default: ./cluster.toml, or your own"
    )
    without = cli.SwitchAttr("--without", str, list=True, argname="HOST", help="leave it out")

    def wanted(self, *, alone: bool = False) -> "Cluster":
        """The cluster of cluster.toml; where there is none and `alone`, this host."""
        from medley import cluster

        without: Any = self.without
        absent = alone and cluster.file(self.cluster) is None
        return cluster.only(cluster.alone() if absent else cluster.read(self.cluster), tuple(without))


def tell(problems: "Iterable[Problem]") -> int:
    """Print them all; the exit code is that of the first."""
    found = list(problems)
    for problem in found:
        print(fit(f"medley: {problem}", sys.stderr), file=sys.stderr)
    return found[0].status if found else 0


def columns(table: "Sequence[tuple[str, ...]]") -> "list[str]":
    """Its rows as lines, each column as wide as it must be."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    padded = ([word.ljust(width) for word, width in zip(row, widths, strict=True)] for row in table)
    return ["  ".join(row).rstrip() for row in padded]


def tables(problems: "Mapping[str, Problem]") -> dict[str, dict[str, str]]:
    return {name: problem.table for name, problem in problems.items()}
