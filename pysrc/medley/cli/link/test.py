"""`medley link test`: what the wire to another host carries, below NCCL."""

import dataclasses
import json
import sys
from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from collections.abc import Iterator

    from medley.facts import Facts
    from medley.link.verdict import Measured


class Test(Verb):
    USAGE = "    {progname} [SWITCHES] HOST\n    {progname} [SWITCHES] --serve\n"
    DESCRIPTION = "Measure the wire to another host with ping, iperf3 and, over RDMA, perftest."
    DESCRIPTION_MORE = """
The other host serves meanwhile: medley link test --serve. HOST is an address on the wire; of a Spark's two
halves it measures the one that has this address.

Examples:
    /medley link test --serve            on the one host
    /medley link test 192.168.100.10     on the other
    /medley link test 192.168.100.10 --tcp --seconds 10

"""
    serve = cli.Flag("--serve", help="be the far side, for some minutes")
    link = cli.SwitchAttr("--link", str, argname="LINK", help="--serve on this interface or address")
    minutes = cli.SwitchAttr("--minutes", cli.Range(1, 1440), 10, argname="N", help="--serve this long")
    seconds = cli.SwitchAttr("--seconds", cli.Range(1, 300), 5, argname="N", help="of TCP in each direction")
    streams = cli.SwitchAttr("--streams", cli.Range(1, 64), 4, argname="N", help="of TCP side by side")
    tcp = cli.Flag("--tcp", help="leave RDMA out; say it on both hosts")
    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self, host: str = "") -> int:
        if self.serve == bool(host):
            raise Problem(
                "either the other host or --serve",
                cause="one host serves and the other measures"
                if host
                else "nothing says where the wire leads",
                fix="there: medley link test --serve   # here: medley link test HOST",
            )
        return self._serve() if self.serve else self._measure(host)

    def _serve(self) -> int:
        from medley.cli.progress import Plain
        from medley.link import trial

        way = trial.end(_facts(), self.link)
        adapter = trial.adapter(way, tcp_only=self.tcp)

        def ready() -> None:
            tools = "iperf3 and perftest" if adapter else "iperf3"
            print(f"{tools} at {way.ip} ({way.link.name}) for {self.minutes} min; Ctrl-C ends it")
            flag = " --tcp" if self.tcp else ""
            print(f"on the other host: medley link test {way.ip}{flag}", flush=True)

        trial.serve(way, adapter, limit_s=self.minutes * 60, ready=ready, watch=Plain())
        return 0

    def _measure(self, host: str) -> int:
        from medley.cli.progress import watch
        from medley.link import trial, verdict

        found = trial.measure(
            host, _facts(), seconds=self.seconds, streams=self.streams, tcp_only=self.tcp, watch=watch()
        )
        problems = tuple(verdict.problems(found))
        if self.as_json:
            told = [{"what": each.what, "cause": each.cause, "fix": each.fix} for each in problems]
            print(json.dumps({**dataclasses.asdict(found), "problems": told}))
        else:
            for line in lines(found):
                print(line)
            for problem in problems:
                print(f"medley: {problem}", file=sys.stderr)
        return 1 if problems else 0


def _facts() -> "Facts":
    from medley import facts, machine

    return facts.facts(machine.ask(facts.QUESTIONS))


def lines(found: "Measured") -> "Iterator[str]":
    from medley.fabric.speed import shown
    from medley.link.verdict import shown_mbit

    promised, reported = found.promised_mbit or 0, found.reported_mbit or 0
    over = f", though it reports {shown(reported)}" if reported > promised else ""
    yield f"link    {found.interface} {found.address}, MTU {found.mtu}, should carry {shown(promised)}{over}"
    if found.ping is None or found.ping.average_ms is None:
        yield "ping    not answered, which a firewall may do"
    else:
        sent = f"{found.ping.received} of {found.ping.sent}"
        yield f"ping    {found.ping.average_ms:.3f} ms, {found.ping.worst_ms:.3f} at worst; {sent} came back"
    for name, one in (("there", found.there), ("back", found.back)):
        part = f", {one.mbit / promised:.0%} of it" if promised else ""
        again = "" if one.retransmits is None else f"; {one.retransmits} segments sent again"
        yield f"TCP     {shown_mbit(one.mbit)} {name}{part}{again}"
    if found.rdma:
        part = f", {found.rdma.mbit / promised:.0%} of it" if promised else ""
        latency = f"{found.rdma.latency_us:.2f} µs one way"
        yield f"RDMA    {shown_mbit(found.rdma.mbit)} there{part}; {latency} ({found.rdma.device})"
