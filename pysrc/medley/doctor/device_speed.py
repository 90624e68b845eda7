"""Devices and links that are slower than their past, their equals or their documented speed."""

from collections.abc import Iterator
from dataclasses import replace

from medley.doctor.checks import UNASKED, Case, Check, case_check
from medley.planner.device_history import findings, parsed, slow, slower_than_equal


@case_check("speed", "speed of devices and links")
def speed(case: Case) -> Iterator[Check]:
    """By the newest record of each host's history, which servers and collective-test write."""
    records = {name: parsed(host.health.speeds or ()) for name, host in case.hosts.items()}
    newest = {(name, each.index): each for name, past in records.items() if past for each in past[-1].devices}
    named = {key: replace(each, host=key[0]) for key, each in newest.items()}
    kinds = {name: host.kind.name if host.kind else None for name, host in case.hosts.items()}
    equals = [
        (each.host, slower_than_equal(each, best, kinds[each.host])) for each, best in slow(named.values())
    ]
    for name, host in case.hosts.items():
        if host.health.speeds is None:
            yield host.unknown(UNASKED)
        elif not records[name]:
            yield host.unknown("nothing was measured yet: medley collective-test --only speed")
        else:
            found = list(findings(records[name])) or [each for at, each in equals if at == name]
            for each in found:
                yield host.better(each.what, cause=each.cause, fix=each.fix)
            if not found:
                when = records[name][-1].when[:10]
                shown = (f"{each.gb_s:.3g} GB/s" for each in records[name][-1].devices)
                yield host.ok(f"{', '.join(shown) or 'links only'} on {when}")
