"""Measure what the devices of this host or of a Ray cluster's hosts reach by themselves."""

import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from medley import config, process, transcript
from medley.cluster import device_probe
from medley.cluster.membership import Membership
from medley.environment import toolkit, tools, verify, virtualenv
from medley.errors import Problem
from medley.host import facts, kind
from medley.host.kind import match_kind
from medley.measurement.collective import run
from medley.planner import devices
from medley.planner.device_history import slow, speed_of
from medley.planner.devices import DeviceSpeed, MeasuredDevice
from medley.progress import Progress

# To start, to measure three times, and one to spare.
_STEPS = 5
_HOST_LIMIT_S = 300
_HERE = "here"  # as payload/device_speed.py calls its host


@dataclass(frozen=True)
class Measurable:
    name: str
    units: tuple[MeasuredDevice, ...]


@dataclass(frozen=True)
class Speeds:
    devices: tuple[DeviceSpeed, ...] = ()
    busy: tuple[str, ...] = ()
    """Hosts that serve a model now, so that they were left alone."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The error of each host that could not be measured."""

    def table(self) -> dict[str, Any]:
        return {"speeds": [asdict(each) for each in self.devices], "busy": self.busy, "failed": self.failed}

    def having(self, event: Mapping[str, Any], hosts: Mapping[str, Measurable], when: str) -> "Speeds":
        """Add one event of payload/device_speed.py; `hosts` by address."""
        match event:
            case {"device": address, **about}:
                host = hosts[address]
                speed = speed_of(host.name, host.units, about, when)
                if speed is None:
                    return self._having_failed(host, "its facts show no such device")
                return replace(self, devices=(*self.devices, speed))
            case {"busy": address}:
                return replace(self, busy=(*self.busy, hosts[address].name))
            case {"failed": address, "said": error}:
                return self._having_failed(hosts[address], error)
            case _:
                return self

    def _having_failed(self, host: Measurable, error: str) -> "Speeds":
        return replace(self, failed={**self.failed, host.name: error})


def measure_cluster(
    found: Membership, chosen: Sequence[Mapping[str, Any]], limit_s: float, progress: Progress
) -> Speeds:
    """What the devices of these hosts reach, all at the same time."""
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free", "slots")} for node in chosen],
        "limit_s": limit_s,
        "life_s": run.CONNECT_LIMIT_S + limit_s * _STEPS,
    }
    hosts = {node["address"]: _measurable(node) for node in chosen}
    when, made = run.now(), Speeds()
    with closing(run.script_events("device_speed.py", found, task, progress)) as events:
        for event in events:
            made = made.having(event, hosts, when)
    return made


def _measurable(node: Mapping[str, Any]) -> Measurable:
    units: tuple[MeasuredDevice, ...] = ()
    with suppress(Problem):  # its facts are not known, or make it none of our kinds
        host = facts.facts(transcript.parse(node["told"] or ""))
        units = tuple(devices.units(host, match_kind(host, config.hosts())))
    return Measurable(f"{node['name']} ({node['address']})", units)


def measure_host(progress: Progress) -> Speeds:
    """What this host's devices reach, where it is in no cluster."""
    found, sort = kind.recognise()
    chain = toolkit.with_libcuda(toolkit.find(sort.name, watch=progress), sort.host)
    where = virtualenv.ready(tools.environment(sort, None), chain, driver=sort.host.driver, watch=progress)
    hosts = {_HERE: Measurable(platform.node(), tuple(devices.units(found, sort)))}
    when, made = run.now(), Speeds()
    command = verify.command(where, chain, "device_speed.py", sort.host.device)
    with progress.stage("measure this host"):
        finished = process.run(command, limit_s=_HOST_LIMIT_S)
    for line in finished.lines:
        if line.startswith("{"):
            made = made.having(json.loads(line), hosts, when)
    if finished.status or not made.devices:
        made = made.having({"failed": _HERE, "said": "\n".join(finished.lines[-3:])}, hosts, when)
    device_probe.record(found, sort, made.devices)
    return made


def verdict(found: Speeds) -> Problem | None:
    if found.failed:
        return Problem(
            f"{', '.join(found.failed)} cannot be measured",
            cause="\n".join(f"{host}: {error}" for host, error in found.failed.items()),
            fix="there: medley env check; medley facts; or test only the network: "
            "medley collective-test --only network",
        )
    blamed = list(slow(found.devices))
    if not blamed:
        return None
    hosts = dict.fromkeys(each.host for each, _ in blamed)
    return Problem(
        f"{', '.join(hosts)} {'is' if len(hosts) == 1 else 'are'} slow, and would hold up the others",
        cause="\n".join(f"{_text(each)}; {_text(best)}, and it is the same device" for each, best in blamed),
        fix="look there for what else runs, a quota, heat or a power cap: top; nvidia-smi -q -d PERFORMANCE\n"
        "or leave it so: medley plan gives it as much as it can do",
    )


def _text(each: DeviceSpeed) -> str:
    return f"{each.host}: {each.gb_s:.3g} GB/s, {each.tflops:.3g} TFLOPS ({each.name or 'no name'})"
