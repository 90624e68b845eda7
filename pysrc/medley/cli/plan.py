"""`medley plan`: where a model would lie on these hosts, why, how fast it should be, and what to type."""

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.placing import Placing, shape_of
from medley.cli.wrapped import fit, wide
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.layout.choose import Choice
    from medley.site import Site


class Plan(Placing):
    DESCRIPTION = "Say where a model would lie, whether it fits, and how fast it should be; start nothing."
    DESCRIPTION_MORE = """
Without --from or --hosts it plans for this host, or for the cluster that this host heads; serve does what it
says, but for replicas, which are servers of their own. Speeds are predicted from what makers state and what
owners have published, with their range; no model is fetched, for its weights' headers are enough.

Examples:
    /medley plan gpt-oss-120b --hosts spark:2
    /medley plan qwen2.5-72b-instruct --hosts spark:2,thor:2 --concurrency 16
    /medley plan gpt-oss-20b --from orin-1.txt rtx.txt --context 32768
    /medley plan gpt-oss-20b --hosts orin:2 --tp 2 --json

"""
    USAGE = "    {progname} [SWITCHES] MODEL\n"
    replayed = cli.SwitchAttr("--from", str, list=True, argname="FILE", help="the hosts of these transcripts")
    imagined = cli.SwitchAttr(
        "--hosts", str, argname="KINDS", help="hosts one need not own: spark:2,thor:1", excludes=["--from"]
    )
    link = cli.SwitchAttr("--link", str, argname="LINK", help="the wire: an interface, address or network")
    image = cli.SwitchAttr(
        "--image",
        str,
        argname="IMAGE",
        excludes=["--env"],
        help="out of a container of this image on every host; default: each kind's own, which hosts/ names",
    )
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment, or your own virtualenv, on every host"
    )
    all_ = cli.Flag("--all", help="list every rejected layout")
    as_json = cli.Flag("--json", help="print one JSON object")
    picture = cli.SwitchAttr(
        "--svg", str, argname="FILE", help="write the plan to this file as a picture too"
    )

    def main(self, model: str, *more: str) -> None:
        from medley import config, engine, origin, origins, store
        from medley.cli.reasons import table
        from medley.instead import placed
        from medley.layout.printed import lines
        from medley.recipe import Order, steps
        from medley.typed import WIDE, typed
        from medley.weights import weights

        found = weights(model, config.models(), store.cache(), self.typed)
        chosen: Any = self.engine or "vllm"
        listens = engine.Serving(found.target, found.name)
        beside = self.besides(found, (), engine=chosen, starts=False, refuses=False)
        order = Order(found, listens, self.wanted(chosen, self.link), beside=beside, typed=self.typed)
        made = shape_of(found)
        asked = origin.Asked(self.image, self.environment)
        site = origins.chosen(self._site(more), order.wanted, asked, found.model)
        choice = placed(order, made, site)
        to_do = tuple(steps(order, made, choice, site))
        if self.picture is not None:
            from medley.cli import picture
            from medley.layout.drawn import drawn

            picture.save(self.picture, drawn(found.name, choice))
        if self.as_json:
            print(
                json.dumps(
                    {
                        "model": found.name,
                        **_table(choice),
                        "beside": list(beside.why()),
                        "steps": [table(each) for each in to_do],
                    }
                )
            )
            return
        told = (f"beside the weights: {each}" for each in beside.why())
        for line in (*lines(found.name, choice, everything=self.all_), *told, "", *typed(to_do, wide(WIDE))):
            print(fit(line))

    def _site(self, more: tuple[str, ...]) -> "Site":
        from medley import membership
        from medley.cli import replay

        if more and not self.replayed:
            raise Problem(
                f"{more[0]!r} is one model too many",
                cause="plan takes one model; more words are files after --from",
                fix="medley plan MODEL --from FILE FILE",
            )
        joined = membership.noted() if self.imagined is None and not self.replayed else None
        if joined and joined.role == "head":
            from medley import spreading
            from medley.watch import SILENT

            return spreading.site(joined, None, 0, SILENT)
        return replay.site((*self.replayed, *more), self.imagined)


def _table(choice: "Choice[Any]") -> dict[str, Any]:
    return {
        "layout": dataclasses.asdict(choice.layout),
        "fit": dataclasses.asdict(choice.fit),
        "prediction": dataclasses.asdict(choice.prediction),
        "why": choice.why,
        "warnings": choice.warnings,
        "rejected": [{"what": each.what, "because": each.because} for each in choice.rejected],
    }
