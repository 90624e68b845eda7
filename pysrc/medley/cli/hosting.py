"""The switches of verbs that start a model: on which hosts, with which of them, and what starts its ranks."""

from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.placing import Placing
from medley.problem import Problem

if TYPE_CHECKING:  # imported when a verb runs, to keep `medley --help` fast
    from medley.membership import Membership
    from medley.placement import Wanted
    from medley.plan import Launcher
    from medley.site import Site
    from medley.tables import Engine

_MOST_HOSTS = 64


class Hosting(Placing):
    gpus = cli.SwitchAttr("--gpus", str, argname="LIST", help="GPUs by nvidia-smi's index: 0 or 0,1 or all")
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment, or your own virtualenv"
    )
    hosts = cli.SwitchAttr(
        "--hosts",
        str,
        argname="N",
        help="so many hosts of the cluster, or that will join; 1: this one alone",
        overridable=True,
    )
    launcher = cli.SwitchAttr(
        "--launcher",
        cli.Set("ray", "mp", "solo"),
        argname="LAUNCHER",
        help="of ranks on several hosts: ray, the cluster's (the default on its head), or mp, by medley join",
    )
    wait = cli.SwitchAttr(
        "--wait", cli.Range(0, 86_400), argname="SECONDS", help="how long to wait for these hosts to join"
    )
    join_port = cli.SwitchAttr(
        "--join-port", cli.Range(1, 65_535), 24_010, argname="PORT", help="where hosts join without Ray"
    )
    unplanned = cli.Flag(
        "--unplanned", help="cut it as --tp and --pp say, and leave it to the engine whether it fits"
    )

    def started_by(self) -> "tuple[Launcher, str]":
        """What starts its ranks, on this host and those that join it, and why."""
        from medley import membership
        from medley.launcher import launcher

        asked: Any = self.launcher
        found = membership.noted()
        return launcher(asked, hosts=self.count(), role=found.role if found else None)

    def joined(self, by: "Launcher | None") -> "tuple[Membership | None, Engine]":
        """The cluster that it runs over, and the engine that is there."""
        from medley import spreading

        found = spreading.cluster(self.count()) if by in {"ray", "solo"} else None
        asked: Any = self.engine
        return found, spreading.engine(found, asked) if found else asked or "vllm"

    def count(self) -> int | None:
        """How many hosts of the cluster, where --hosts names a number."""
        if self.hosts is None:
            return 1 if self.launcher == "solo" else None
        if not self.hosts.isdecimal() or not 1 <= int(self.hosts) <= _MOST_HOSTS:
            raise Problem(
                f"--hosts {self.hosts} cannot be",
                cause=f"a cluster has 1 to {_MOST_HOSTS}",
                fix="--hosts 2, or leave it out: then the plan decides",
            )
        return int(self.hosts)

    def wanted_there(self, engine: "Engine", by: "Launcher | None") -> "Wanted":
        count = self.count() if self.hosts is None or self.hosts.isdecimal() else None
        asked: Any = self.launcher
        return self.wanted(engine, hosts=count, gpus=self.gpus, one_server=True, launcher=by or asked)

    def site(self, joined: "Membership | None") -> "Site":
        """The hosts it may run on: the cluster's, or this one."""
        from medley import spreading
        from medley.cli import replay
        from medley.cli.progress import watch

        if joined:
            return spreading.site(joined, self.count(), self.wait or 0, watch())
        return replay.site((), None, self.kind)
