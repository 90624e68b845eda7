"""A model served from here, on this host or over its cluster: what `serve` and `batch` do alike."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.hosting import Hosting
from medley.cli.imaged import FromImage
from medley.problem import Problem

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from collections.abc import Callable

    from medley.batch.sending import Answering
    from medley.cli.served import Served
    from medley.launch import Launch
    from medley.layout.shapes import Layout
    from medley.membership import Membership
    from medley.plan import Launcher, Plan
    from medley.recipe import Order
    from medley.site import Site
    from medley.unit import Restart


class ServeHere(FromImage, Hosting):
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
    hosts = cli.SwitchAttr(
        "--hosts",
        str,
        argname="N|KINDS",
        excludes=["--from"],
        help="so many hosts of the cluster, 1: this one alone; with --dry-run also spark:2,thor:1",
    )
    timeout = cli.SwitchAttr(
        "--timeout", cli.Range(1, 86_400), 1800, argname="SECONDS", help="how long until it must be ready"
    )
    replayed = cli.SwitchAttr(
        "--from", str, list=True, argname="FILE", help="with --dry-run: on the hosts of these transcripts"
    )
    restarts: "Restart | None" = None
    """What becomes of a server that was ready, and is lost."""
    then: "Callable[[Answering], None] | None" = None
    """What to do once it is ready, for a verb that serves for one thing."""
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag(
        "--json", help="print one JSON object: the command, or where the server is once it is ready"
    )

    def serve(self, model: str, *flags: str) -> None:
        from medley import api_key, config, engine, port, serving, store, weights
        from medley.cli import replay
        from medley.cli.again import Again
        from medley.cli.planned import what_if
        from medley.cli.progress import watch
        from medley.cli.reasons import only_dry_run
        from medley.origin import Asked
        from medley.recipe import Order

        if flags and not flags[0].startswith("-"):
            raise _too_many(model, flags)
        imagined = self.hosts if self.hosts is not None and not self.hosts.isdecimal() else None
        if (self.replayed or imagined is not None) and not self.dry_run:
            raise only_dry_run("serve MODEL", "--from FILE" if self.replayed else f"--hosts {imagined}")
        found = weights.weights(model, config.models(), store.cache(), self.typed)
        key = api_key.chosen(self.api_key, self.host, make=not self.dry_run)
        listens = engine.Serving(found.target, self.served_name or found.name, self.host, self.port, key)
        if not self.dry_run:
            serving.require_none(self.port)
            self.clear(self.port)
            port.require_free(self.host, self.port)
            weights.ready(found)
        here = not self.replayed and imagined is None
        by, why = self._launcher() if here else (None, "")
        joined, chosen = self.joined(by)
        if key and chosen == "sglang":
            api_key.require_ours(flags)
            listens = replace(listens, key_config=api_key.config(self.port))
        beside = self.besides(found, flags, engine=chosen, starts=not self.dry_run)
        order = Order(found, listens, self.wanted_there(chosen, by), flags, beside, self.typed)
        if by == "mp":
            self._together(order, why)
            return
        site = self.site(joined) if here else replay.site(self.replayed, imagined, self.kind)
        if len(site.hosts) > 1 and not joined:
            what_if(order, site, Asked(self.image, self.environment), as_json=self.as_json)
        elif self.restarts:
            again = Again(self.restarts, order.serving, joined, watch(), lambda: self.site(None))
            again.run(lambda there, on_ready: self._serve(order, there, joined, why, on_ready), site)
        else:
            self._serve(order, site, joined, why)

    def _launcher(self) -> "tuple[Launcher, str]":
        """Of ranks on this host and those that join it."""
        from medley.cli.reasons import only_imagined

        by, why = self.started_by()
        image: Any = self.image
        if by == "mp" and image:
            raise Problem(
                "without Ray a model does not run out of an image",
                cause="medley join starts the engine environment of its host",
                fix="medley ray-head --image IMAGE, and the same on ray-worker; or leave --image out",
            )
        if by == "mp" and self.dry_run:
            raise only_imagined(self.count() or 2)
        return by, why

    def _serve(
        self,
        order: "Order",
        site: "Site",
        joined: "Membership | None",
        why: str,
        on_ready: "Callable[[int], None]" = lambda _: None,
    ) -> None:
        from medley import spreading
        from medley.cli.planned import launched, planned
        from medley.cli.reasons import show
        from medley.cli.served import stopped
        from medley.layout.words import hosts

        layout, plan = planned(order, site, bare=self.unplanned, launched=why)
        spread = joined if plan.launcher == "ray" else None
        used, engine = site.only(hosts(layout)), order.wanted.engine
        near = joined if spread or not self.environment else None
        image = self.imaged(
            used.first,
            engine,
            dry_run=self.dry_run,
            joined=near,
            spread=bool(spread),
            elsewhere=bool(self.replayed),
        )
        launch = launched(order, plan, used, spread, image or self.environment, dry_run=self.dry_run)
        if self.dry_run:
            show(launch.command, launch.why(), as_json=self.as_json)
            return
        served = self._served(order, launch, layout, lambda: on_ready(len(used.hosts)))
        taken = spreading.taken(layout, site) if joined else None
        with stopped():
            if spread and taken:
                served.spread(spread, taken)
            served.here(joined, taken)

    def _together(self, order: "Order", why: str) -> None:
        """With hosts that join it for this model alone."""
        from medley.cli.planned import planned
        from medley.cli.served import stopped
        from medley.cli.together import Together

        lain: list[Layout] = []

        def placed(order: "Order", site: "Site") -> "tuple[Layout, Plan]":
            found = planned(order, site, bare=self.unplanned, launched=why)
            lain.append(found[0])
            return found

        met = Together(
            order,
            self.count() or 2,
            self.wait,
            self.join_port,
            self.kind,
            self.environment,
            placed,
        )
        with stopped():
            met.start(lambda launch, meeting: self._served(order, launch, lain[-1]).together(meeting))

    def _served(
        self,
        order: "Order",
        launch: "Launch",
        layout: "Layout",
        on_ready: "Callable[[], None]" = lambda: None,
    ) -> "Served":
        from medley.cli.served import Served
        from medley.described import description
        from medley.engines import ENGINES

        engine = ENGINES[order.wanted.engine]
        what = description(order, launch, layout)
        return Served(engine, launch, order.serving, self.timeout, self.as_json, self.then, on_ready, what)


def _too_many(model: str, words: tuple[str, ...]) -> Problem:
    return Problem(
        f"{words[0]!r} is one model too many",
        cause="serve takes one model; its own switches begin with --, and the engine's flags come after --",
        fix=f"medley serve {model} --port {words[0]}" if words[0].isdigit() else f"medley serve {model}",
    )
