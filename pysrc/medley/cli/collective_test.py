"""`medley collective-test`."""

import json
from collections.abc import Iterator
from typing import Any, Literal

from medley.cli import Verb, flag, switch
from medley.cli.output import format_table
from medley.cli.progress import start_progress
from medley.cluster import membership
from medley.cluster.membership import Membership
from medley.measurement import device_speed
from medley.measurement.collective import run
from medley.measurement.collective import verdict as network_verdict
from medley.measurement.collective.result import AllReduceResult, parse_sizes
from medley.measurement.device_speed import DeviceSpeeds
from medley.measurement.link.result import format_mbit
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
        sizes, progress = parse_sizes(self.sizes), start_progress()
        if self.only == "speed" and membership.find_membership() is None:
            self._finish(device_speed.measure_host(progress), None)
            return
        member = run.require_cluster()
        nodes = run.choose_nodes(member, self.hosts, progress, minimum=1 if self.only == "speed" else 2)
        speeds = result = None
        if self.only != "network":
            speeds = device_speed.measure_cluster(member, nodes, self.limit, progress)
            for host in speeds.busy:
                progress.note(f"{host} serves a model, so its speed was not measured")
        if self.only != "speed":
            result = run.run_all_reduce(member, nodes, sizes, self.limit, progress)
            if result.skipped:
                progress.note(
                    f"no time was left for {len(result.skipped)} pairs; each step gets more with --limit"
                )
        self._finish(speeds, result, member)

    def _finish(
        self, speeds: DeviceSpeeds | None, result: AllReduceResult | None, member: Membership | None = None
    ) -> None:
        """Store and print all results, then raise the first Problem: of the network, because all needs it."""
        network_problem = network_verdict.find_problem(result) if result else None
        problem = network_problem or (device_speed.find_problem(speeds) if speeds else None)
        devices.add_measurements(
            speeds.devices if speeds else (), result.list_link_speeds(run.format_now()) if result else ()
        )
        table: dict[str, Any] = {"problem": problem and problem.table}
        table |= (speeds.build_table() if speeds else {}) | (result.build_table() if result else {})
        if result and member:
            run.write_result(table, member)
        if self.as_json:
            print(json.dumps(table))
        else:
            _print_tables(speeds, result)
        if problem:
            raise problem
        if result and not self.as_json:
            hosts, pairs = len(result.members), len(result.pairs)
            print(f"all is well: {hosts} hosts agree on every sum, and none of {pairs} pairs falls short")
        elif speeds and len(speeds.devices) > 1 and not self.as_json:
            print("all is well: no device is far below its equals")


def _print_tables(speeds: DeviceSpeeds | None, result: AllReduceResult | None) -> None:
    lines: list[str] = []
    if speeds and speeds.devices:
        lines += format_table(
            ("HOST", "GPU", "DEVICE", "READS", "8 TOKENS", "256 TOKENS", ""), _list_speed_rows(speeds)
        )
    if result and result.backend:
        lines.append(f"{len(result.members)} hosts, {result.backend}: {result.why}")
    if result and result.rates:
        lines += format_table(("ALL-REDUCE", "LATENCY", "ALGORITHM", "BUS"), _list_rate_rows(result))
    if result and result.pairs:
        lines += format_table(("PAIR", "THERE", "BACK", "LATENCY", "EXPECTED", ""), _list_pair_rows(result))
    print("\n".join(lines))


def _list_speed_rows(speeds: DeviceSpeeds) -> Iterator[tuple[str, ...]]:
    slow_devices = [slow_device for slow_device, _ in find_slow_devices(speeds.devices)]
    for device in speeds.devices:
        rates = (f"{device.gb_s:.3g} GB/s", f"{device.few_tflops:.3g} TFLOPS", f"{device.tflops:.3g} TFLOPS")
        yield device.host, str(device.index), device.name, *rates, "slow" if device in slow_devices else ""


def _list_rate_rows(result: AllReduceResult) -> Iterator[tuple[str, ...]]:
    for rate in result.rates:
        latency = f"{rate.seconds * 1e6:.0f} µs" if rate.seconds else "left out: it would take too long"
        yield (
            _format_bytes(rate.bytes),
            latency,
            _format_mbit(rate.algorithm_mbit),
            _format_mbit(rate.bus_mbit),
        )


def _list_pair_rows(result: AllReduceResult) -> Iterator[tuple[str, ...]]:
    slow_pairs = network_verdict.find_slow_pairs(result)
    for pair in result.pairs:
        names = " - ".join(result.members[address].name for address in (pair.one, pair.two))
        forward_mbit, backward_mbit = pair.mbit or (None, None)
        latency = f"{pair.latency_us:.0f} µs" if pair.latency_us else ""
        verdict = "falls short" if pair in slow_pairs else ""
        if pair.said:
            verdict = "fails"
        yield (
            names,
            _format_mbit(forward_mbit),
            _format_mbit(backward_mbit),
            latency,
            _format_mbit(network_verdict.compute_expected_mbit(result, pair)) or "unknown",
            verdict,
        )


def _format_bytes(size: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if size < 1 << 10:
            return f"{size:g} {unit}"
        size /= 1 << 10
    return f"{size:g} GiB"


def _format_mbit(mbit: float | None) -> str:
    return "" if mbit is None else format_mbit(mbit)
