"""`medley collective-test`."""

import json
from collections.abc import Iterator
from typing import Any, Literal

from medley.cli import Verb, flag, switch
from medley.cli.output import format_table
from medley.cli.progress import start_progress
from medley.cluster import membership
from medley.cluster.membership import Membership
from medley.measurement import collective, device_speed
from medley.measurement.collective import Result, run
from medley.measurement.collective import verdict as network_verdict
from medley.measurement.device_speed import Speeds
from medley.measurement.link import format_mbit
from medley.planner import devices
from medley.planner.device_history import find_slow_devices


class CollectiveTestVerb(Verb):
    hosts: int | None = switch("--hosts N", "number of hosts, this one first [default: all]", (2, 1024))
    sizes: str = switch("--sizes SIZES", "message sizes, in bytes (K, M, G)", default="8,64K,1M,16M")
    limit: int = switch("--limit SECONDS", "time limit of each step, in seconds", (5, 3600), default=60)
    only: Literal["speed", "network"] | None = switch(
        "--only WHAT", "speed (each host) or network (between hosts) [default: both]"
    )
    as_json: bool = flag("--json", "one JSON object: speeds, members, rates, pairs, problems")

    def main(self) -> None:
        sizes, seen = collective.parse_sizes(self.sizes), start_progress()
        if self.only == "speed" and membership.find_membership() is None:
            self._end(device_speed.measure_host(seen), None)
            return
        found = run.require_cluster()
        chosen = run.choose_nodes(found, self.hosts, seen, minimum=1 if self.only == "speed" else 2)
        speeds = result = None
        if self.only != "network":
            speeds = device_speed.measure_cluster(found, chosen, self.limit, seen)
            for host in speeds.busy:
                seen.note(f"{host} serves a model, so its speed was not measured")
        if self.only != "speed":
            result = run.run_all_reduce(found, chosen, sizes, self.limit, seen)
            if result.skipped:
                seen.note(
                    f"no time was left for {len(result.skipped)} pairs; each step gets more with --limit"
                )
        self._end(speeds, result, found)

    def _end(self, speeds: Speeds | None, result: Result | None, found: Membership | None = None) -> None:
        """Keep and show all of it, then what is wrong: first with the wire, for nothing works without."""
        network_problem = network_verdict.find_problem(result) if result else None
        problem = network_problem or (device_speed.find_problem(speeds) if speeds else None)
        devices.add_measurements(
            speeds.devices if speeds else (), result.list_link_speeds(run.format_now()) if result else ()
        )
        told: dict[str, Any] = {"problem": problem and problem.table}
        told |= (speeds.build_table() if speeds else {}) | (result.build_table() if result else {})
        if result and found:
            run.write_result(told, found)
        if self.as_json:
            print(json.dumps(told))
        else:
            _show(speeds, result)
        if problem:
            raise problem
        if result and not self.as_json:
            hosts, pairs = len(result.members), len(result.pairs)
            print(f"all is well: {hosts} hosts agree on every sum, and none of {pairs} pairs falls short")
        elif speeds and len(speeds.devices) > 1 and not self.as_json:
            print("all is well: no device is far below its equals")


def _show(speeds: Speeds | None, result: Result | None) -> None:
    drawn: list[str] = []
    if speeds and speeds.devices:
        drawn += format_table(
            ("HOST", "GPU", "DEVICE", "READS", "8 TOKENS", "256 TOKENS", ""), _speeds(speeds)
        )
    if result and result.backend:
        drawn.append(f"{len(result.members)} hosts, {result.backend}: {result.why}")
    if result and result.rates:
        drawn += format_table(("ALL-REDUCE", "LATENCY", "ALGORITHM", "BUS"), _rates(result))
    if result and result.pairs:
        drawn += format_table(("PAIR", "THERE", "BACK", "LATENCY", "EXPECTED", ""), _pairs(result))
    print("\n".join(drawn))


def _speeds(speeds: Speeds) -> Iterator[tuple[str, ...]]:
    short = [each for each, _ in find_slow_devices(speeds.devices)]
    for each in speeds.devices:
        rates = (f"{each.gb_s:.3g} GB/s", f"{each.few_tflops:.3g} TFLOPS", f"{each.tflops:.3g} TFLOPS")
        yield each.host, str(each.index), each.name, *rates, "slow" if each in short else ""


def _rates(result: Result) -> Iterator[tuple[str, ...]]:
    for rate in result.rates:
        latency = f"{rate.seconds * 1e6:.0f} µs" if rate.seconds else "left out: it would take too long"
        yield _bytes(rate.bytes), latency, _mbit(rate.algorithm_mbit), _mbit(rate.bus_mbit)


def _pairs(result: Result) -> Iterator[tuple[str, ...]]:
    short = network_verdict.find_slow_pairs(result)
    for pair in result.pairs:
        names = " - ".join(result.members[address].name for address in (pair.one, pair.two))
        there, back = pair.mbit or (None, None)
        latency = f"{pair.latency_us:.0f} µs" if pair.latency_us else ""
        judged = "fails" if pair.said else "falls short" if pair in short else ""
        yield (
            names,
            _mbit(there),
            _mbit(back),
            latency,
            _mbit(network_verdict.compute_expected_mbit(result, pair)) or "unknown",
            judged,
        )


def _bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1 << 10:
            return f"{size:g} {unit}"
        size /= 1 << 10
    return f"{size:g} GiB"


def _mbit(mbit: float | None) -> str:
    return "" if mbit is None else format_mbit(mbit)
