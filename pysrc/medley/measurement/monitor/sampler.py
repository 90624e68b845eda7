"""Sample this host (psutil, sysfs)."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import psutil

from medley.cluster import device_probe, events
from medley.host.facts.network import link_kind
from medley.measurement.monitor import CpuSample, LinkSample, MemorySample, Sample
from medley.measurement.monitor.gpu import GpuSampler, file_text

if TYPE_CHECKING:
    from medley.measurement.monitor.engine import ServedMetrics

T = TypeVar("T")
# port_rcv_data and port_xmit_data count words of 32 bits (InfiniBand's PortCounters), mlx5's of RoCE too.
_WORD_BYTES = 4
_WORDS = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes"}

# https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband) and, of hw_counters, NVIDIA's
# "Understanding mlx5 Linux counters": of each what it is a sign of.
_SIGNS = {
    "cable": "symbol_error link_error_recovery link_downed local_link_integrity_errors port_rcv_errors "
    "port_rcv_remote_physical_errors rx_icrc_encapsulated",
    "switch": "port_rcv_constraint_errors port_xmit_constraint_errors",
    "congestion": "excessive_buffer_overrun_errors port_xmit_discards VL15_dropped roce_slow_restart "
    "np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled",
    "receiver": "out_of_buffer rnr_nak_retry_err",
    "loss": "out_of_sequence duplicate_request packet_seq_err implied_nak_seq_err local_ack_timeout_err "
    "roce_adp_retrans roce_adp_retrans_to",
}
BAD: Mapping[str, str] = {name: sign for sign, names in _SIGNS.items() for name in names.split()}
_MOST_DIGITS = 20  # of 2**64
_SLOW_S = 10
"""What changes when somebody plugs or installs; some drivers take a lock to tell a link's speed."""
_HIDDEN = {"loopback", "container"}
"""A container's traffic goes through a host's link, too."""


class Cached(Generic[T]):
    def __init__(self, find: Callable[[], T]) -> None:
        self._find, self._at = find, float("-inf")

    def __call__(self) -> T:
        if time.monotonic() >= self._at + _SLOW_S:
            self._value, self._at = self._find(), time.monotonic()
        return self._value


class HostSampler:
    def __init__(self, every_s: float, sys: Path = Path("/sys")) -> None:
        self._sys, self._net = sys, sys / "class/net"
        self._kinds = Cached(lambda: {each.name: _kind(each) for each in self._net.glob("*")})
        self._speeds = Cached(lambda: {name: _number(self._net / name / "speed") for name in self._kinds()})
        self._ports = Cached(lambda: list(self._found_ports()))
        self._slow = Cached(lambda: tuple(device_probe.slow_now()))
        self._gpus = GpuSampler(every_s, self._sys)

    @cached_property
    def _served(self) -> "ServedMetrics":
        from medley.measurement.monitor.engine import ServedMetrics  # noqa: PLC0415 - a second, which `link watch` does not need

        return ServedMetrics()

    def sample(self, *, whole: bool = False) -> Sample:
        """`whole`: with engines' metrics as they are."""
        found, (gpus, silent) = self.network(), self._gpus.seen()
        return replace(
            found,
            gpus=gpus,
            gpus_silent=silent,
            links=tuple(link for link in found.links if link.kind not in _HIDDEN),
            ray=self._served.ray(),
            engines=self._served.engines(whole=whole),
            events=events.counts(),
            slow=self._slow(),
            cost_s=time.process_time(),
        )

    def network(self) -> Sample:
        """A sample without GPUs and engines, but with every link."""
        memory, swap, spent = psutil.virtual_memory(), psutil.swap_memory(), psutil.cpu_times()
        return Sample(
            at_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            # Guest time is counted in user time already.
            cpu=CpuSample(
                threads=psutil.cpu_count() or 1,
                busy_s=spent.user + spent.nice + spent.system + spent.irq + spent.softirq + spent.steal,
                idle_s=spent.idle + spent.iowait,
                load=psutil.getloadavg()[0],
            ),
            memory=MemorySample(memory.total, memory.available, swap.total, swap.free),
            links=tuple(self._links()),
            ports=tuple(_port(folder, files) for folder, files in self._ports()),
            retransmits=retransmits(file_text(Path("/proc/net/snmp"))),
        )

    def end(self) -> None:
        self._gpus.end()

    def _links(self) -> Iterator[LinkSample]:
        for name, found in psutil.net_io_counters(pernic=True, nowrap=False).items():
            state = file_text(self._net / name / "operstate")
            yield LinkSample(
                name=name,
                index=_number(self._net / name / "ifindex") or 0,
                counters={
                    "rx_bytes": found.bytes_recv,
                    "rx_errors": found.errin,
                    "rx_dropped": found.dropin,
                    "tx_bytes": found.bytes_sent,
                    "tx_errors": found.errout,
                    "tx_dropped": found.dropout,
                },
                up=state in {"up", "unknown"} if state else None,
                mbit=self._speeds().get(name) or None,
                kind=self._kinds().get(name) or link_kind(name),
            )

    def _found_ports(self) -> Iterator[tuple[Path, list[Path]]]:
        for folder in sorted((self._sys / "class/infiniband").glob("*/ports/*")):
            names = (*_WORDS, *BAD)
            files = (folder / each / name for each in ("counters", "hw_counters") for name in names)
            yield folder, [file for file in files if file.is_file()]


def _kind(folder: Path) -> str:
    uevent = dict(line.partition("=")[::2] for line in file_text(folder / "uevent").splitlines())
    driver = folder / "device/driver"
    return link_kind(
        folder.name,
        link_type=file_text(folder / "type"),
        made_as=uevent.get("DEVTYPE", ""),
        driver=driver.resolve().name if driver.exists() else None,
    )


def retransmits(snmp: str) -> int | None:
    """Of /proc/net/snmp, which has a line of names above the line of values."""
    rows = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:  # noqa: PLR2004 - names and values
        return None
    count = dict(zip(*rows, strict=False)).get("RetransSegs", "")
    return int(count) if count.isdecimal() else None


def _port(folder: Path, files: list[Path]) -> LinkSample:
    """Data in bytes, and only counters that are known here."""
    state, rate = file_text(folder / "state"), file_text(folder / "rate").split()
    counters = {}
    for file in files:
        if (count := _number(file)) is not None:
            words = _WORDS.get(file.name)
            counters[words or file.name] = count * _WORD_BYTES if words else count
    return LinkSample(
        name=f"{folder.parents[1].name}/{folder.name}",
        index=0,
        counters=counters,
        up=state.endswith(" ACTIVE") if state else None,
        mbit=round(float(rate[0]) * 1000) if rate[1:2] == ["Gb/sec"] else None,
        kind="rdma",
    )


def _number(path: Path) -> int | None:
    text = file_text(path)
    return int(text) if text.isdecimal() and len(text) <= _MOST_DIGITS else None
