"""Measure the speed of the devices of this host, or of a Ray cluster's hosts."""

import json
import platform
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from typing import Any

from msgspec import field

from medley import config, process, transcript
from medley.cluster import device_probe
from medley.cluster.membership import Membership
from medley.environment import toolkit, tools, verify, virtualenv
from medley.errors import Problem
from medley.host import facts, kind
from medley.host.kind import match_kind
from medley.measurement.collective import run
from medley.planner import devices
from medley.planner.device_history import find_slow_devices, parse_speed
from medley.planner.devices import DeviceIdentity, DeviceSpeed
from medley.progress import Progress
from medley.values import Value

# One step to start, three to measure, and one to spare.
_STEP_COUNT = 5
_HOST_LIMIT_S = 300
_LOCAL_ADDRESS = "here"  # as payload/device_speed.py calls its host


class HostDevices(Value):
    """The devices of one host by its name; empty if its facts are unknown."""

    name: str
    identities: tuple[DeviceIdentity, ...]


class DeviceSpeeds(Value):
    """The measured speeds of devices, and the hosts without any."""

    devices: tuple[DeviceSpeed, ...] = ()
    busy: tuple[str, ...] = ()
    """Hosts that serve a model now and were not measured, because that would slow the server down."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """The error of each host that could not be measured."""

    def build_table(self) -> dict[str, Any]:
        return {
            "speeds": [device.to_table() for device in self.devices],
            "busy": self.busy,
            "failed": self.failed,
        }

    def add_event(
        self, event: Mapping[str, Any], hosts: Mapping[str, HostDevices], when: str
    ) -> "DeviceSpeeds":
        """Return a copy with one event of payload/device_speed.py; `hosts` by address, `when` in ISO 8601."""
        match event:
            case {"device": address, **figures}:
                host = hosts[address]
                speed = parse_speed(host.name, host.identities, figures, when)
                if speed is None:
                    return self._add_failure(host, "its facts show no such device")
                return self.replace(devices=(*self.devices, speed))
            case {"busy": address}:
                return self.replace(busy=(*self.busy, hosts[address].name))
            case {"failed": address, "said": error}:
                return self._add_failure(hosts[address], error)
            case _:
                return self

    def _add_failure(self, host: HostDevices, error: str) -> "DeviceSpeeds":
        return self.replace(failed={**self.failed, host.name: error})


def measure_cluster(
    member: Membership, nodes: Sequence[Mapping[str, Any]], limit_s: float, progress: Progress
) -> DeviceSpeeds:
    """Measure the devices of all these hosts at the same time, or raise a Problem if that does not end."""
    task = {
        "nodes": [{key: node[key] for key in ("id", "address", "free", "slots")} for node in nodes],
        "limit_s": limit_s,
        "life_s": run.CONNECT_LIMIT_S + limit_s * _STEP_COUNT,
    }
    hosts = {node["address"]: _read_devices(node) for node in nodes}
    when, speeds = run.format_now(), DeviceSpeeds()
    with closing(run.run_script("device_speed.py", member, task, progress)) as events:
        for event in events:
            speeds = speeds.add_event(event, hosts, when)
    return speeds


def _read_devices(node: Mapping[str, Any]) -> HostDevices:
    identities: tuple[DeviceIdentity, ...] = ()
    with suppress(Problem):  # its facts are unknown, or fit no kind of host
        host = facts.read_facts(transcript.parse_transcript(node["told"] or ""))
        identities = tuple(devices.list_device_identities(host, match_kind(host, config.load_hosts())))
    return HostDevices(f"{node['name']} ({node['address']})", identities)


def measure_host(progress: Progress) -> DeviceSpeeds:
    """Measure the devices of this host, without a cluster, and record the result."""
    host_facts, host_kind = kind.detect_host()
    host_toolkit = toolkit.add_libcuda(
        toolkit.find_toolkit(host_kind.name, progress=progress), host_kind.table
    )
    environment = tools.choose_environment(host_kind, None)
    folder = virtualenv.prepare_environment(
        environment, host_toolkit, driver=host_kind.table.driver, progress=progress
    )
    identities = tuple(devices.list_device_identities(host_facts, host_kind))
    hosts = {_LOCAL_ADDRESS: HostDevices(platform.node(), identities)}
    when, speeds = run.format_now(), DeviceSpeeds()
    command = verify.build_script_command(folder, host_toolkit, "device_speed.py", host_kind.table.device)
    with progress.stage("measure this host"):
        finished = process.run(command, limit_s=_HOST_LIMIT_S)
    for line in finished.lines:
        if line.startswith("{"):
            speeds = speeds.add_event(json.loads(line), hosts, when)
    if finished.status or not speeds.devices:
        failure = {"failed": _LOCAL_ADDRESS, "said": "\n".join(finished.lines[-3:])}
        speeds = speeds.add_event(failure, hosts, when)
    device_probe.record_speeds(host_facts, host_kind, speeds.devices)
    return speeds


def find_problem(speeds: DeviceSpeeds) -> Problem | None:
    """Return a Problem if a host could not be measured, or is slower than one with the same device."""
    if speeds.failed:
        return Problem(
            f"{', '.join(speeds.failed)} cannot be measured",
            cause="\n".join(f"{host}: {error}" for host, error in speeds.failed.items()),
            fix="there: medley env check; medley facts; or test only the network: "
            "medley collective-test --only network",
        )
    slow_devices = list(find_slow_devices(speeds.devices))
    if not slow_devices:
        return None
    hosts = dict.fromkeys(device.host for device, _ in slow_devices)
    return Problem(
        f"{', '.join(hosts)} {'is' if len(hosts) == 1 else 'are'} slow, and would hold up the others",
        cause="\n".join(
            f"{_format_speed(device)}; {_format_speed(best)}, and it is the same device"
            for device, best in slow_devices
        ),
        fix="look there for what else runs, a quota, heat or a power cap: top; nvidia-smi -q -d PERFORMANCE\n"
        "or leave it so: medley plan gives it as much as it can do",
    )


def _format_speed(device: DeviceSpeed) -> str:
    return f"{device.host}: {device.gb_s:.3g} GB/s, {device.tflops:.3g} TFLOPS ({device.name or 'no name'})"
