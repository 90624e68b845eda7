"""Define the result of a measurement of the link to another host."""

from medley.measurement.link.tools import Ping, Throughput
from medley.values import Value


class RdmaSpeed(Value):
    """The speed and latency of RDMA through one device."""

    device: str
    mbit: float
    latency_us: float


class LinkMeasurement(Value):
    """The measured link to another host; its fields are the keys of the JSON output."""

    host: str
    interface: str
    address: str
    """The address of this end."""
    mtu: int
    reported_mbit: int | None
    """The speed that the driver reports."""
    promised_mbit: int | None
    """The speed that it can carry, which is half of the reported one for an interface of a Spark's port."""
    ping: Ping | None
    full_ping: Ping | None
    """The ping with packets as long as the MTU."""
    there: Throughput
    back: Throughput
    rdma: RdmaSpeed | None = None


def format_mbit(mbit: float) -> str:
    """Return the speed with three digits, in Gbit/s from 1000 Mbit/s on."""
    return f"{mbit / 1000:.3g} Gbit/s" if mbit >= 1000 else f"{mbit:.3g} Mbit/s"  # noqa: PLR2004 - of the unit
