"""The series that `medley top` gives Prometheus."""

from medley.measurement.monitor.metrics import METRIC_HELP_TEXTS
from tools.reference.table import cell
from tools.reference.table import table as markdown


def table(_before: str = "") -> str:
    """A row for each series."""
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in METRIC_HELP_TEXTS}
    return markdown(
        ("series", "type", "meaning"),
        ((f"`{name}`", kinds[name], cell(METRIC_HELP_TEXTS[name])) for name in METRIC_HELP_TEXTS),
    )
