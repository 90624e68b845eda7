"""`medley plan`: where a model would lie on these hosts, why, and how fast it should be."""

import dataclasses
import json
import platform
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli import replay
from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from medley.facts import Facts
    from medley.kind import Kind
    from medley.layout.choose import Choice


class Plan(Verb):
    DESCRIPTION = "Say where a model would lie, whether it fits, and how fast it should be; start nothing."
    DESCRIPTION_MORE = """
Without --from or --hosts it plans for this host, or for the cluster that this host heads. Speeds are
predicted from what makers state and what owners have published, with their range. No model is fetched: its
weights' headers are enough.

Examples:
    /medley plan gpt-oss-120b --hosts spark:2
    /medley plan qwen2.5-72b-instruct --hosts spark:2,thor:2 --concurrency 16
    /medley plan gpt-oss-20b --from orin-1.txt rtx.txt --context 32768
    /medley plan gpt-oss-20b --hosts orin:2 --tp 2 --json

"""
    USAGE = "    {progname} [SWITCHES] MODEL\n"
    replayed = cli.SwitchAttr(
        "--from", str, list=True, argname="FILE", help="the hosts of these transcripts; can be said again"
    )
    imagined = cli.SwitchAttr(
        "--hosts", str, argname="KINDS", help="hosts one need not own: spark:2,thor:1", excludes=["--from"]
    )
    goal = cli.SwitchAttr(
        "--for",
        cli.Set("latency", "throughput", "context"),
        "latency",
        argname="GOAL",
        help="latency (one stream's speed, the default), throughput, or context",
    )
    concurrency = cli.SwitchAttr("--concurrency", cli.Range(1, 4096), 1, argname="N", help="streams at once")
    context = cli.SwitchAttr(
        "--context", cli.Range(16, 10_000_000), argname="TOKENS", help="that must fit for each; default 8192"
    )
    tensor = cli.SwitchAttr("--tp", cli.Range(1, 64), argname="N", help="force tensor parallel")
    stages = cli.SwitchAttr("--pp", cli.Range(1, 64), argname="N", help="force pipeline stages")
    replicas = cli.SwitchAttr("--dp", cli.Range(1, 64), argname="N", help="force replicas (data parallel)")
    link = cli.SwitchAttr("--link", str, argname="LINK", help="the wire: an interface, address or network")
    transport = cli.SwitchAttr("--transport", cli.Set("tcp", "rdma"), argname="KIND", help="tcp or rdma")
    all_ = cli.Flag("--all", help="list every rejected layout")
    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self, model: str, *more: str) -> None:
        from medley import config, store
        from medley.layout.printed import lines
        from medley.shape import shape
        from medley.weights import weights

        found = weights(model, config.models(), store.cache())
        choice = self._choice(shape(found), self._hosts(more))
        if self.as_json:
            print(json.dumps({"model": found.name, **_table(choice)}))
            return
        for line in lines(found.name, choice, everything=self.all_):
            print(line)

    def _hosts(self, more: tuple[str, ...]) -> "dict[str, tuple[Facts, Kind]]":
        from medley import config
        from medley.imagined import imagined
        from medley.kind import kind

        if more and not self.replayed:
            raise Problem(
                f"{more[0]!r} is one model too many",
                cause="plan takes one model; more words are files after --from",
                fix="medley plan MODEL --from FILE FILE",
            )
        files = (*self.replayed, *more)
        hosts = imagined(self.imagined) if self.imagined else _clusters() if not files else None
        hosts = hosts or replay.by_host(files)
        known = config.hosts()
        return {name: (facts, kind(facts, known)) for name, facts in hosts.items()}

    def _choice(self, shape: Any, hosts: "dict[str, tuple[Facts, Kind]]") -> "Choice[Any]":  # noqa: ANN401 - pydantic is lazy
        from medley import measured, survey
        from medley.fabric import Wishes
        from medley.layout.candidates import Sizes
        from medley.layout.choose import choose
        from medley.predict import Load, predict

        goal: Any = self.goal
        transport: Any = self.transport  # plumbum has seen to it that both are of their sets
        context = self.context or None
        wishes = Wishes(self.link, transport=transport)
        load = Load(concurrency=self.concurrency, context_tokens=min(context or 1024, shape.context))
        known = measured.NOTHING if self.replayed or self.imagined else measured.read()
        links = survey.link_of({name: facts for name, (facts, _) in hosts.items()}, wishes, known)
        here = platform.node()
        found = choose(
            shape,
            survey.devices(hosts, known),
            links,
            goal=goal,
            load=load,
            predict=predict,
            context=context,
            sizes=Sizes(self.tensor, self.stages, self.replicas),
            head=here if here in hosts and len(hosts) > 1 else None,
        )
        return dataclasses.replace(found, why=(*found.why, *survey.reasons(hosts, known)))


def _clusters() -> "dict[str, Facts] | None":
    """The hosts of the cluster that this host heads, if it heads one."""
    from medley import membership, spreading

    found = membership.noted()
    return spreading.told(found)[0] if found and found.role == "head" else None


def _table(choice: "Choice[Any]") -> dict[str, Any]:
    return {
        "layout": dataclasses.asdict(choice.layout),
        "fit": dataclasses.asdict(choice.fit),
        "prediction": dataclasses.asdict(choice.prediction),
        "why": choice.why,
        "warnings": choice.warnings,
        "rejected": [{"what": each.what, "because": each.because} for each in choice.rejected],
    }
