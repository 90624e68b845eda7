"""What the kernel reports: fatal PCIe errors, IOMMUs, memory that RDMA cannot pin; a Jetson's clocks."""

import re
from dataclasses import dataclass

from medley.host.facts import meminfo
from medley.transcript import Transcript, assignments, lines

# Counters of the kernel that anybody may read; its log is root's alone on newer systems, and says more.
PCIE_FATAL = (
    "cd /sys/bus/pci/devices &&"
    " grep -EHs '^(TOTAL_ERR_FATAL )?[1-9][0-9]*$' */aer_rootport_total_err_fatal */aer_dev_fatal"
    " | sed -E 's,/aer_[^:]*:(TOTAL_ERR_FATAL )?, ,'"
)
# Without the name of the host, which journalctl's usual form has.
PCIE_LOG = (
    "log=$(dmesg 2>/dev/null || journalctl -kbq -n 20000 -o cat --no-pager 2>/dev/null);"
    ' [ -n "$log" ] || exit 3;'
    " printf '%s\\n' \"$log\" | grep -E 'Uncorrect(able|ed) \\(Fatal\\)|AER: device recovery failed'"
    " | tail -n 8; :"
)
CMA = "grep -E '^Cma(Total|Free):' /proc/meminfo"
# Which of its GPUs the driver lets reach another's memory, and how the IOMMU treats each.
PEERS = "command -v nvidia-smi >/dev/null && timeout 3 nvidia-smi topo -p2p r"
IOMMU = (
    "cd /sys/bus/pci/devices && for d in $(grep -ls 0x10de */vendor | cut -d/ -f1); do"
    ' grep -qs ^0x03 "$d/class" && [ -r "$d/iommu_group/type" ] && echo "$d $(cat "$d/iommu_group/type")";'
    " done; :"
)
# A Jetson's power modes by number; whether its GPU's least clock is its highest, as jetson_clocks sets it:
# 17000000.gpu on an Orin, gpu-gpc-0 on a Thor.
POWER_MODES = "sed -nE 's/^< *POWER_MODEL ID=([0-9]+) NAME=([^ >]+).*/\\2=\\1/p' /etc/nvpmodel.conf"
GPU_CLOCKS = (
    'cd /sys/class/devfreq && for d in *.gpu gpu-gpc*; do [ -r "$d/min_freq" ] &&'
    ' echo "$d $(cat "$d/min_freq") $(cat "$d/max_freq")"; done; :'
)

QUESTIONS = (PCIE_FATAL, PCIE_LOG, CMA, PEERS, IOMMU, POWER_MODES, GPU_CLOCKS)

_UNREADABLE = 3
_FATAL = re.compile(r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]).*Uncorrect(?:able|ed) \(Fatal\)")


@dataclass(frozen=True)
class KernelReport:
    fatal: tuple[str, ...] = ()
    """PCI addresses of ports and devices with a fatal error since the host booted."""
    log_read: bool = True
    """Whether this user could read the kernel's log."""
    cma_total_bytes: int = 0
    cma_free_bytes: int = 0
    """More than the total where kexec handover gave pages to CMA, from which RDMA cannot pin any."""
    peers: frozenset[str] = frozenset()
    """What nvidia-smi says of pairs of GPUs: `OK`, or why one cannot reach the other, as in `CNS`."""
    translated: tuple[str, ...] = ()
    """Its GPUs whose addresses an IOMMU translates, by PCI address."""
    power_modes: tuple[tuple[str, str], ...] = ()
    """A Jetson's: name and number, as in `MAXN` and `0`."""
    pinned_clocks: bool | None = None
    """Whether a Jetson's GPU stays at its highest clock; None where the kernel does not say."""


def kernel_report(answers: Transcript) -> KernelReport:
    counted = [line.split()[0] for line in lines(answers, PCIE_FATAL)]
    logged = (_FATAL.search(line) for line in lines(answers, PCIE_LOG))
    cma, clocks = meminfo(answers[CMA].text), [line.split() for line in lines(answers, GPU_CLOCKS)]
    return KernelReport(
        fatal=tuple(sorted({*counted, *(each[1] for each in logged if each)})),
        log_read=PCIE_LOG in answers and answers[PCIE_LOG].status != _UNREADABLE,
        cma_total_bytes=cma.get("CmaTotal", 0),
        cma_free_bytes=cma.get("CmaFree", 0),
        peers=frozenset(
            word
            for line in lines(answers, PEERS)
            if line.split()[0].startswith("GPU")
            for word in line.split()[1:]
            if word.isupper() and word != "X" and not word.startswith("GPU")
        ),
        translated=tuple(line.split()[0] for line in lines(answers, IOMMU) if " DMA" in line),
        power_modes=tuple(assignments(answers, POWER_MODES).items()),
        pinned_clocks=all(each[1:2] == each[2:3] for each in clocks) if clocks else None,
    )
