"""Sample this host with psutil and from sysfs."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

import psutil

from medley.cluster import device_probe, events
from medley.host.facts.network import find_link_kind
from medley.measurement.monitor.gpu import GpuSampler, read_text
from medley.measurement.monitor.sample import CpuSample, LinkSample, MemorySample, Sample

if TYPE_CHECKING:
    from medley.measurement.monitor.engine import EngineSampler

T = TypeVar("T")
# port_rcv_data and port_xmit_data count words of 32 bits (InfiniBand's PortCounters), with RoCE on mlx5 too.
_WORD_BYTES = 4
_WORD_COUNTERS = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes"}

# Counters by their usual cause: https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband),
# and for hw_counters NVIDIA's "Understanding mlx5 Linux counters".
_NAMES_BY_CAUSE = {
    "cable": "symbol_error link_error_recovery link_downed local_link_integrity_errors port_rcv_errors "
    "port_rcv_remote_physical_errors rx_icrc_encapsulated",
    "switch": "port_rcv_constraint_errors port_xmit_constraint_errors",
    "congestion": "excessive_buffer_overrun_errors port_xmit_discards VL15_dropped roce_slow_restart "
    "np_cnp_sent np_ecn_marked_roce_packets rp_cnp_handled",
    "receiver": "out_of_buffer rnr_nak_retry_err",
    "loss": "out_of_sequence duplicate_request packet_seq_err implied_nak_seq_err local_ack_timeout_err "
    "roce_adp_retrans roce_adp_retrans_to",
}
ERROR_COUNTERS: Mapping[str, str] = {
    name: cause for cause, names in _NAMES_BY_CAUSE.items() for name in names.split()
}
"""The causes of errors, by the names of their counters."""
_MAX_DIGITS = 20  # 2**64 has 20
_CACHE_S = 10
"""The lifetime of values that rarely change; some drivers take a lock to read a link's speed."""
_HIDDEN_KINDS = {"loopback", "container"}
"""Kinds of links whose traffic also counts on another link, or never leaves the host."""


class CachedValue(Generic[T]):
    """A function without arguments whose value lives for some seconds."""

    def __init__(self, compute: Callable[[], T]) -> None:
        self._compute, self._time = compute, float("-inf")

    def __call__(self) -> T:
        if time.monotonic() >= self._time + _CACHE_S:
            self._value, self._time = self._compute(), time.monotonic()
        return self._value


class HostSampler:
    """Sampler of this host; nvidia-smi runs until `stop`."""

    def __init__(self, interval_s: float, sys: Path = Path("/sys")) -> None:
        self._sys, self._net = sys, sys / "class/net"
        self._kinds = CachedValue(lambda: {folder.name: _read_kind(folder) for folder in self._net.glob("*")})
        self._speeds = CachedValue(
            lambda: {name: _read_number(self._net / name / "speed") for name in self._kinds()}
        )
        self._ports = CachedValue(lambda: list(self._find_ports()))
        self._slow = CachedValue(lambda: tuple(device_probe.list_slow_findings()))
        self._gpus = GpuSampler(interval_s, self._sys)

    @cached_property
    def _engines(self) -> "EngineSampler":
        from medley.measurement.monitor.engine import EngineSampler  # noqa: PLC0415 - its import takes 1 s, which `link watch` does not need

        return EngineSampler()

    def sample(self, *, include_metrics: bool = False) -> Sample:
        """Sample all; `include_metrics` adds the unchanged text of the engines' metrics."""
        network, (gpus, gpu_problem) = self.sample_network(), self._gpus.read_samples()
        return network.replace(
            gpus=gpus,
            gpus_silent=gpu_problem,
            links=tuple(link for link in network.links if link.kind not in _HIDDEN_KINDS),
            ray=self._engines.sample_ray(),
            engines=self._engines.sample_engines(include_metrics=include_metrics),
            events=events.read_counts(),
            slow=self._slow(),
            cost_s=time.process_time(),
        )

    def sample_network(self) -> Sample:
        """Return a sample without GPUs and engines, but with every link."""
        memory, swap, cpu = psutil.virtual_memory(), psutil.swap_memory(), psutil.cpu_times()
        return Sample(
            at_s=time.clock_gettime(time.CLOCK_BOOTTIME),
            # User time includes guest time.
            cpu=CpuSample(
                threads=psutil.cpu_count() or 1,
                busy_s=cpu.user + cpu.nice + cpu.system + cpu.irq + cpu.softirq + cpu.steal,
                idle_s=cpu.idle + cpu.iowait,
                load=psutil.getloadavg()[0],
            ),
            memory=MemorySample(memory.total, memory.available, swap.total, swap.free),
            links=tuple(self._sample_links()),
            ports=tuple(_sample_port(folder, files) for folder, files in self._ports()),
            retransmits=parse_retransmits(read_text(Path("/proc/net/snmp"))),
        )

    def stop(self) -> None:
        self._gpus.stop()

    def _sample_links(self) -> Iterator[LinkSample]:
        for name, counters in psutil.net_io_counters(pernic=True, nowrap=False).items():
            state = read_text(self._net / name / "operstate")
            yield LinkSample(
                name=name,
                index=_read_number(self._net / name / "ifindex") or 0,
                counters={
                    "rx_bytes": counters.bytes_recv,
                    "rx_errors": counters.errin,
                    "rx_dropped": counters.dropin,
                    "tx_bytes": counters.bytes_sent,
                    "tx_errors": counters.errout,
                    "tx_dropped": counters.dropout,
                },
                up=state in {"up", "unknown"} if state else None,
                mbit=self._speeds().get(name) or None,
                kind=self._kinds().get(name) or find_link_kind(name),
            )

    def _find_ports(self) -> Iterator[tuple[Path, list[Path]]]:
        """Yield the folder of each RDMA port, and the files of its known counters."""
        for folder in sorted((self._sys / "class/infiniband").glob("*/ports/*")):
            names = (*_WORD_COUNTERS, *ERROR_COUNTERS)
            files = (folder / group / name for group in ("counters", "hw_counters") for name in names)
            yield folder, [file for file in files if file.is_file()]


def _read_kind(folder: Path) -> str:
    uevent = dict(line.partition("=")[::2] for line in read_text(folder / "uevent").splitlines())
    driver = folder / "device/driver"
    return find_link_kind(
        folder.name,
        link_type=read_text(folder / "type"),
        made_as=uevent.get("DEVTYPE", ""),
        driver=driver.resolve().name if driver.exists() else None,
    )


def parse_retransmits(snmp: str) -> int | None:
    """Parse /proc/net/snmp, in which a line of names comes ahead of its line of values."""
    rows = [line.split() for line in snmp.splitlines() if line.startswith("Tcp:")]
    if len(rows) != 2:  # noqa: PLR2004 - names and values
        return None
    count = dict(zip(*rows, strict=False)).get("RetransSegs", "")
    return int(count) if count.isdecimal() else None


def _sample_port(folder: Path, files: list[Path]) -> LinkSample:
    """Read the counters of an RDMA port; those of words become bytes under the names of links."""
    state, rate = read_text(folder / "state"), read_text(folder / "rate").split()
    counters = {}
    for file in files:
        if (count := _read_number(file)) is not None:
            link_name = _WORD_COUNTERS.get(file.name)
            counters[link_name or file.name] = count * _WORD_BYTES if link_name else count
    return LinkSample(
        name=f"{folder.parents[1].name}/{folder.name}",
        index=0,
        counters=counters,
        up=state.endswith(" ACTIVE") if state else None,
        mbit=round(float(rate[0]) * 1000) if rate[1:2] == ["Gb/sec"] else None,
        kind="rdma",
    )


def _read_number(path: Path) -> int | None:
    text = read_text(path)
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None
