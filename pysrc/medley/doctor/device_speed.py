"""Find devices and links that are slower than before, than equal ones or than their documented speed."""

from collections.abc import Iterator

from medley.doctor.checks import NOT_RECORDED, Check, Examination, all_hosts_check
from medley.planner.device_history import (
    build_slower_than_equal_finding,
    find_slow_devices,
    list_findings,
    parse_records,
)


@all_hosts_check("speed", "speed of devices and links")
def speed(examination: Examination) -> Iterator[Check]:
    """Compare the newest record of each host's history; servers and collective-test write these records."""
    records = {name: parse_records(host.health.speeds or ()) for name, host in examination.hosts.items()}
    devices = {
        (name, device.index): device.replace(host=name)
        for name, history in records.items()
        for device in (history[-1].devices if history else ())
    }
    kinds = {name: host.kind.name if host.kind else None for name, host in examination.hosts.items()}
    comparisons = [
        (device.host, build_slower_than_equal_finding(device, best, kinds[device.host]))
        for device, best in find_slow_devices(devices.values())
    ]
    for name, host in examination.hosts.items():
        if host.health.speeds is None:
            yield host.report_unknown(NOT_RECORDED)
        elif not records[name]:
            yield host.report_unknown("nothing was measured yet: medley collective-test --only speed")
        else:
            slow_findings = list(list_findings(records[name])) or [
                finding for host_name, finding in comparisons if host_name == name
            ]
            for finding in slow_findings:
                yield host.report_improvable(finding.what, cause=finding.cause, fix=finding.fix)
            if not slow_findings:
                date = records[name][-1].when[:10]
                speeds = (f"{device.gb_s:.3g} GB/s" for device in records[name][-1].devices)
                yield host.report_ok(f"{', '.join(speeds) or 'links only'} on {date}")
