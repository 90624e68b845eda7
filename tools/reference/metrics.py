"""The series that `medley top` gives Prometheus."""

from medley.measurement.monitor.metrics import HELP
from tools.reference.table import cell
from tools.reference.table import table as markdown


def table(_before: str = "") -> str:
    """A row for each series."""
    kinds = {name: "counter" if name.endswith("_total") else "gauge" for name in HELP}
    return markdown(
        ("series", "type", "meaning"), ((f"`{name}`", kinds[name], cell(HELP[name])) for name in HELP)
    )
