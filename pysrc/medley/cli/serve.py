"""`medley serve`: a model, on this host or over its cluster, until Ctrl-C."""

import os
from dataclasses import replace
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.placing import Placing, shape_of
from medley.problem import Problem

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from collections.abc import Callable

    from medley.batch.sending import Answering
    from medley.launch import Launch
    from medley.layout.shapes import Layout
    from medley.membership import Membership
    from medley.placement import Wanted
    from medley.plan import Plan
    from medley.recipe import Order
    from medley.site import Site

_MOST_HOSTS = 64


class Serve(Placing):
    DESCRIPTION = "Serve a model with an OpenAI-style API, on this host or over its cluster, until Ctrl-C."
    DESCRIPTION_MORE = """
MODEL is a name in models/ (demo needs nothing but this program), a folder that holds a model, or ORG/NAME on
the model hub. What comes after -- goes to the engine as it is, and wins over what medley would say.

It is ready when it has answered a completion. The engine's environment is built at first use. On the head of
a cluster (ray-head) it runs over those of the cluster's hosts that serve it best, as medley plan MODEL shows.

Examples:
    /medley serve demo
    /medley serve demo --dry-run
    /medley serve Qwen/Qwen3-8B --port 9000 --gpus 0,1
    /medley serve Qwen/Qwen3-32B --concurrency 16 --context 32768
    /medley serve Qwen/Qwen3-32B --hosts 2 --tp 2 --wait 60
    /medley serve gpt-oss-120b --hosts spark:2,thor:1 --dry-run
    /medley serve ./my-model --served-model-name mine -- --max-model-len 8192

"""
    USAGE = "    {progname} [SWITCHES] MODEL [-- ENGINE FLAGS]\n"
    HINT = "the engine's own flags come after --: medley serve MODEL -- --max-model-len 8192"

    port = cli.SwitchAttr("--port", int, 8000, argname="PORT", help="where it listens", overridable=True)
    host = cli.SwitchAttr(
        "--host",
        str,
        "127.0.0.1",
        argname="ADDRESS",
        help="0.0.0.0 opens it to the network; requests then need an API key",
    )
    api_key = cli.SwitchAttr(
        "--api-key",
        str,
        argname="FILE",
        help="requests must give the key in this file; none: no key; default: made where --host opens it",
    )
    served_name = cli.SwitchAttr(
        "--served-model-name", str, argname="NAME", help="the name that requests give"
    )
    gpus = cli.SwitchAttr("--gpus", str, argname="LIST", help="GPUs by nvidia-smi's index: 0 or 0,1 or all")
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment, or your own virtualenv"
    )
    hosts = cli.SwitchAttr(
        "--hosts",
        str,
        argname="N|KINDS",
        excludes=["--from"],
        help="so many hosts of the cluster, 1: this one alone; with --dry-run also spark:2,thor:1",
    )
    wait = cli.SwitchAttr(
        "--wait", cli.Range(0, 86_400), 0, argname="SECONDS", help="how long to wait for these hosts to join"
    )
    unplanned = cli.Flag(
        "--unplanned", help="cut it as --tp and --pp say, and leave it to the engine whether it fits"
    )
    timeout = cli.SwitchAttr(
        "--timeout", cli.Range(1, 86_400), 1800, argname="SECONDS", help="how long until it must be ready"
    )
    replayed = cli.SwitchAttr(
        "--from", str, list=True, argname="FILE", help="with --dry-run: on the hosts of these transcripts"
    )
    then: "Callable[[Answering], None] | None" = None
    """What to do once it is ready, for a verb that serves for one thing."""
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag(
        "--json", help="print one JSON object: the command, or where the server is once it is ready"
    )

    def main(self, model: str, *flags: str) -> None:
        from medley import api_key, config, engine, port, serving, spreading, store, weights
        from medley.cli.reasons import only_dry_run
        from medley.recipe import Order

        if flags and not flags[0].startswith("-"):
            raise _too_many(model, flags)
        imagined = self.hosts if self.hosts is not None and not self.hosts.isdecimal() else None
        if (self.replayed or imagined is not None) and not self.dry_run:
            raise only_dry_run("serve MODEL", "--from FILE" if self.replayed else f"--hosts {imagined}")
        found = weights.weights(model, config.models(), store.cache())
        key = api_key.chosen(self.api_key, self.host, make=not self.dry_run)
        listens = engine.Serving(found.target, self.served_name or found.name, self.host, self.port, key)
        if not self.dry_run:
            serving.require_none(self.port)
            port.require_free(self.host, self.port)
            weights.ready(found)
        joined = None if self.replayed or imagined is not None else spreading.cluster(self._count())
        site = self._site(joined, imagined)
        order = Order(found, listens, self._wanted(), flags)
        if len(site.hosts) > 1 and not joined:
            _what_if(order, site, as_json=self.as_json)
        else:
            self._serve(order, site, joined)

    def _serve(self, order: "Order", site: "Site", joined: "Membership | None") -> None:
        from medley import spreading
        from medley.cli.reasons import show
        from medley.cli.served import Served, say
        from medley.layout.words import hosts

        layout, plan = _planned(order, site, bare=self.unplanned)
        spread = joined if plan.over_ray else None
        launch = self._launch(order, plan, site.only(hosts(layout)), spread)
        if self.dry_run:
            show(launch.command, launch.why(), as_json=self.as_json)
            return
        served = Served(launch, order.serving, self.timeout, self.as_json, self.then)
        taken = spreading.taken(layout, site) if joined else None
        try:
            if spread and taken:
                served.spread(spread, taken)
            served.here(joined, taken)
        except KeyboardInterrupt:
            say("stopped; nothing of it runs any more")
            raise

    def _count(self) -> int | None:
        """How many hosts of the cluster, where --hosts names a number."""
        if self.hosts is None:
            return None
        if not 1 <= int(self.hosts) <= _MOST_HOSTS:
            raise Problem(
                f"--hosts {self.hosts} cannot be",
                cause=f"a cluster has 1 to {_MOST_HOSTS}",
                fix="--hosts 2, or leave it out: then the plan decides",
            )
        return int(self.hosts)

    def _wanted(self) -> "Wanted":
        count = int(self.hosts) if self.hosts and self.hosts.isdecimal() else None
        return self.wanted(hosts=count, gpus=self.gpus, one_server=True)

    def _site(self, joined: "Membership | None", imagined: str | None) -> "Site":
        """The hosts it may run on: the cluster's, this one, or those to be imagined."""
        from medley import spreading
        from medley.cli import replay
        from medley.cli.progress import watch

        if joined:
            return spreading.site(joined, self._count(), self.wait, watch())
        return replay.site(self.replayed, imagined, self.kind)

    def _launch(self, order: "Order", plan: "Plan", site: "Site", joined: "Membership | None") -> "Launch":
        """The command on the first host of this site; `joined`: over all of them."""
        from medley import dialect, spreading, tools
        from medley.cli.progress import watch
        from medley.launch import launch

        kind = next(iter(site.hosts.values()))[1]
        # In a cluster the engine is of the environment whose Ray runs, however this host would choose now.
        named = joined.environment if joined and not self.environment else self.environment
        chosen = (tools.expected if self.dry_run else tools.ready)(kind, named, watch=watch())
        dialect.require_known(chosen.binary, order.extra, ask=not self.dry_run, watch=watch())
        wishes = order.wanted.wishes
        cluster = spreading.settings(joined, site, wishes, os.environ, watch()) if joined else ()
        return launch(
            order.weights,
            kind.host,
            plan,
            order.serving,
            tools=chosen,
            path=os.environ.get("PATH", ""),
            cluster=tuple(cluster),
            extra=order.extra,
        )


def _what_if(order: "Order", site: "Site", *, as_json: bool) -> None:
    """On hosts that are not a cluster here, where each replica is a server of its own."""
    from medley.cli.reasons import show_steps
    from medley.placement import placement
    from medley.recipe import steps

    order = replace(order, wanted=replace(order.wanted, one_server=False))
    made = shape_of(order.weights)
    show_steps(steps(order, made, placement(made, site, order.wanted), site), as_json=as_json)


def _planned(order: "Order", site: "Site", *, bare: bool) -> "tuple[Layout, Plan]":
    """Where its ranks lie, and what the engine is told; `bare` or unknown: as the user cuts it."""
    from medley.cli.served import say
    from medley.layout.words import hosts
    from medley.placement import placement, unplaced
    from medley.plan import plan, unplanned

    found, wanted = order.weights, order.wanted
    try:
        made = None if bare else shape_of(found)
    except Problem as problem:
        say(f"not planned: {problem.what}: {problem.cause}")
        made = None
    if made is None:
        layout = unplaced(site, wanted)
        return layout, unplanned(layout, site.facts, found.model, over_ray=len(hosts(layout)) > 1)
    choice = placement(made, site, wanted)
    spread = len(hosts(choice.layout)) > 1
    return choice.layout, plan(made, choice, site.facts, found.model, context=wanted.context, over_ray=spread)


def _too_many(model: str, words: tuple[str, ...]) -> Problem:
    return Problem(
        f"{words[0]!r} is one model too many",
        cause="serve takes one model; its own switches begin with --, and the engine's flags come after --",
        fix=f"medley serve {model} --port {words[0]}" if words[0].isdigit() else f"medley serve {model}",
    )
