"""What Prometheus scrapes of a cluster: our series of each host, and its engines' with its name."""

from collections.abc import Mapping
from dataclasses import replace

from medley.monitor import exposition
from medley.monitor.exposition import Family, Labels, Point
from medley.monitor.sample import Sample
from medley.monitor.series import SERIES, Series, of
from medley.monitor.watching import Seen

UP = "medley_host_up"
UP_HELP = "Whether the host answers medley."


def metrics(seen: Mapping[str, Seen]) -> str:
    """Of hosts that do not answer there is nothing but that; of one that was only asked not even that."""
    up = Family(UP, "gauge", UP_HELP)
    up.points = [
        Point(UP, (("host", name),), float(each.problem is None))
        for name, each in seen.items()
        if each.problem or each.sample
    ]
    told = {name: each.sample for name, each in seen.items() if each.sample and not each.problem}
    own = (_family(each, told) for each in SERIES)
    return exposition.written([up, *own, *passed(told).values()])


def _family(series: Series, told: Mapping[str, Sample]) -> Family:
    points = [
        Point(series.name, (("host", host), *labels.items()), value)
        for host, sample in told.items()
        for labels, value in series.told(sample)
        if value is not None
    ]
    return Family(series.name, series.type, series.help, points)


def passed(told: Mapping[str, Sample]) -> dict[str, Family]:
    """The engines' own families, each once, with host and server added to their labels."""
    found: dict[str, Family] = {}
    for host, sample in told.items():
        for engine in sample.engines:
            added = (("host", host), ("server", of(engine)["server"]))
            for name, family in exposition.families(engine.said or "").items():
                there = found.setdefault(name, Family(name, family.type, family.help))
                if there.type == family.type and not name.startswith("medley_"):
                    there.points += (
                        replace(point, labels=_labelled(point.labels, added)) for point in family.points
                    )
    return found


def _labelled(labels: Labels, added: Labels) -> Labels:
    """What has our labels' names already is called exported_, as Prometheus itself does it."""
    ours = {name for name, _ in added}
    return (*added, *((f"exported_{name}" if name in ours else name, value) for name, value in labels))
