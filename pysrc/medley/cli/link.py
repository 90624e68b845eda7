"""`medley link show`, `test`."""

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal

from medley import process
from medley.cli import Verb, VerbGroup, flag, switch
from medley.cli.output import format_table, print_message, print_result
from medley.cli.progress import PlainProgress, start_progress
from medley.errors import Problem
from medley.host import facts
from medley.host.kind import read_facts_by_host
from medley.measurement.link.measure import find_adapter, find_endpoint, measure_link, serve_link_test
from medley.measurement.link.result import LinkMeasurement, format_mbit
from medley.measurement.link.verdict import find_problems
from medley.network.fabric import report
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.per_host import rank_host_links
from medley.network.fabric.speed import format_speed
from medley.network.fabric.subgroups import find_faster_subgroups


class LinkVerb(VerbGroup):
    """`medley link`, of which each verb is a class below."""


class LinkShowVerb(Verb):
    USAGE = "    {progname} [OPTIONS] [--from FILE...]\n"

    as_json: bool = flag("--json", "one JSON object, with variables of each host")
    replayed: list[str] = switch("--from FILE", "transcript of a host")
    link: str | None = switch("--link LINK", "interface, address or network to use")
    exclude: list[str] = switch("--exclude INTERFACE", "interface to ignore on every host")
    transport: Literal["tcp", "rdma"] | None = switch("--transport KIND", "tcp or rdma [default: the faster]")

    def main(self, *more: str) -> None:
        options = NetworkOptions(self.link, frozenset(self.exclude), self.transport)
        hosts = read_facts_by_host((*self.replayed, *more))
        host_links = None if len(hosts) > 1 else rank_host_links(*next(iter(hosts.items())), options)
        group = choose_fabric(hosts, options)
        subgroups, _ = find_faster_subgroups(hosts, group, options)
        if self.as_json:
            # The loopback is what one host uses by itself; what it would bring to a group was asked for.
            table = {
                **report.build_fabric_table(group, hosts),
                "subgroups": [subgroup.table for subgroup in subgroups],
            }
            print(json.dumps({**table, **(report.build_host_links_table(host_links) if host_links else {})}))
        elif host_links:
            columns = ("INTERFACE", "KIND", "ADDRESS")
            _print_links(
                columns, report.list_candidate_rows(host_links), list(report.describe_host_links(host_links))
            )
        else:
            columns = ("HOST", "INTERFACE", "ADDRESS")
            _print_links(
                columns, report.list_endpoint_rows(group), list(report.describe_fabric(group, subgroups))
            )


def _print_links(
    columns: tuple[str, ...], links: Iterable[tuple[str, ...]], rows: Sequence[tuple[str, str]]
) -> None:
    """Print the links as a table; below it each heading once. A fix is to be copied, so nothing is folded."""
    if link_rows := list(links):
        print("\n".join([*format_table((*columns, "SPEED", "MTU", "RDMA"), link_rows), ""]))
    width = max(len(heading) for heading, _ in rows)
    earlier_headings = ("", *(heading for heading, _ in rows))
    for (heading, text), last_heading in zip(rows, earlier_headings, strict=False):
        print(f"{heading if heading != last_heading else '':<{width}}  {text}")


class LinkTestVerb(Verb):
    USAGE = "    {progname} [OPTIONS] HOST\n    {progname} [OPTIONS] --serve\n"
    serve: bool = flag("--serve", "be the far side")
    link: str | None = switch("--link LINK", "interface or address to serve on")
    minutes: int = switch("--minutes N", "time to serve, in minutes", (1, 1440), default=10)
    seconds: int = switch("--seconds N", "TCP test time in each direction, in seconds", (1, 300), default=5)
    streams: int = switch("--streams N", "concurrent TCP streams", (1, 64), default=4)
    tcp: bool = flag("--tcp", "skip RDMA; needed on both hosts")
    as_json: bool = flag("--json", "one JSON object")

    def main(self, host: str = "") -> int:
        if self.serve == bool(host):
            raise Problem(
                "either the other host or --serve",
                cause="one host serves and the other measures" if host else "the other host is not named",
                fix="there: medley link test --serve   # here: medley link test HOST",
            )
        return self._serve() if self.serve else self._measure(host)

    def _serve(self) -> int:
        endpoint = find_endpoint(_read_own_facts(), self.link)
        adapter = find_adapter(endpoint, tcp_only=self.tcp)

        def announce() -> None:
            tools = "iperf3 and perftest" if adapter else "iperf3"
            print(f"{tools} at {endpoint.ip} ({endpoint.link.name}) for {self.minutes} min; Ctrl-C ends it")
            flag = " --tcp" if self.tcp else ""
            print(f"on the other host: medley link test {endpoint.ip}{flag}", flush=True)

        serve_link_test(
            endpoint, adapter, limit_s=self.minutes * 60, on_ready=announce, progress=PlainProgress()
        )
        return 0

    def _measure(self, host: str) -> int:
        measurement = measure_link(
            host,
            _read_own_facts(),
            seconds=self.seconds,
            streams=self.streams,
            tcp_only=self.tcp,
            progress=start_progress(),
        )
        problems = tuple(find_problems(measurement))
        result = {**measurement.to_table(), "problems": [failure.table for failure in problems]}
        print_result(result, list_lines(measurement), as_json=self.as_json)
        for problem in () if self.as_json else problems:
            print_message(problem)
        return 1 if problems else 0


def _read_own_facts() -> facts.Facts:
    return facts.read_facts(process.ask_host(facts.QUESTIONS))


def list_lines(measurement: LinkMeasurement) -> Iterator[str]:
    promised, reported = measurement.promised_mbit or 0, measurement.reported_mbit or 0
    excess_text = f", though it reports {format_speed(reported)}" if reported > promised else ""
    expected_text = f"should carry {format_speed(promised)}{excess_text}"
    yield f"link    {measurement.interface} {measurement.address}, MTU {measurement.mtu}, {expected_text}"
    ping, rdma = measurement.ping, measurement.rdma
    if ping is None or ping.average_ms is None:
        yield "ping    not answered, which a firewall may do"
    else:
        count_text = f"{ping.received} of {ping.sent}"
        yield f"ping    {ping.average_ms:.3f} ms, {ping.worst_ms:.3f} at worst; {count_text} came back"
    for name, direction in (("there", measurement.there), ("back", measurement.back)):
        share_text = f", {direction.mbit / promised:.0%} of it" if promised else ""
        retransmits_text = (
            "" if direction.retransmits is None else f"; {direction.retransmits} segments sent again"
        )
        yield f"TCP     {format_mbit(direction.mbit)} {name}{share_text}{retransmits_text}"
    if rdma:
        share_text = f", {rdma.mbit / promised:.0%} of it" if promised else ""
        latency = f"{rdma.latency_us:.2f} µs one way"
        yield f"RDMA    {format_mbit(rdma.mbit)} there{share_text}; {latency} ({rdma.device})"
