"""Read the kernel's reports: fatal PCIe errors, IOMMUs, memory that RDMA cannot pin; a Jetson's clocks."""

import re

from medley.host.facts import parse_meminfo
from medley.transcript import Transcript, read_assignments, read_lines
from medley.values import Value

# Counters of the kernel that any user may read; its log has more, but only root reads it on newer systems.
PCIE_FATAL_QUESTION = (
    "cd /sys/bus/pci/devices &&"
    " grep -EHs '^(TOTAL_ERR_FATAL )?[1-9][0-9]*$' */aer_rootport_total_err_fatal */aer_dev_fatal"
    " | sed -E 's,/aer_[^:]*:(TOTAL_ERR_FATAL )?, ,'"
)
# Without the name of the host, which journalctl's usual form has.
PCIE_LOG_QUESTION = (
    "log=$(dmesg 2>/dev/null || journalctl -kbq -n 20000 -o cat --no-pager 2>/dev/null);"
    ' [ -n "$log" ] || exit 3;'
    " printf '%s\\n' \"$log\" | grep -E 'Uncorrect(able|ed) \\(Fatal\\)|AER: device recovery failed'"
    " | tail -n 8; :"
)
CMA_QUESTION = "grep -E '^Cma(Total|Free):' /proc/meminfo"
# The GPUs that may reach another's memory, and the IOMMU's mode for each.
PEERS_QUESTION = "command -v nvidia-smi >/dev/null && timeout 3 nvidia-smi topo -p2p r"
IOMMU_QUESTION = (
    "cd /sys/bus/pci/devices && for d in $(grep -ls 0x10de */vendor | cut -d/ -f1); do"
    ' grep -qs ^0x03 "$d/class" && [ -r "$d/iommu_group/type" ] && echo "$d $(cat "$d/iommu_group/type")";'
    " done; :"
)
# A Jetson's power modes by number; whether its GPU's least clock is its highest, as jetson_clocks sets it:
# 17000000.gpu on an Orin, gpu-gpc-0 on a Thor.
POWER_MODES_QUESTION = "sed -nE 's/^< *POWER_MODEL ID=([0-9]+) NAME=([^ >]+).*/\\2=\\1/p' /etc/nvpmodel.conf"
GPU_CLOCKS_QUESTION = (
    'cd /sys/class/devfreq && for d in *.gpu gpu-gpc*; do [ -r "$d/min_freq" ] &&'
    ' echo "$d $(cat "$d/min_freq") $(cat "$d/max_freq")"; done; :'
)

QUESTIONS = (
    PCIE_FATAL_QUESTION,
    PCIE_LOG_QUESTION,
    CMA_QUESTION,
    PEERS_QUESTION,
    IOMMU_QUESTION,
    POWER_MODES_QUESTION,
    GPU_CLOCKS_QUESTION,
)

_UNREADABLE_STATUS = 3
_FATAL_ERROR_PATTERN = re.compile(
    r"([0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]).*Uncorrect(?:able|ed) \(Fatal\)"
)


class KernelReport(Value):
    """The kernel's reports on PCIe, RDMA's memory, GPUs and clocks."""

    fatal_addresses: tuple[str, ...] = ()
    """The PCI addresses of ports and devices with a fatal error since the host booted."""
    is_log_read: bool = True
    """Whether this user could read the kernel's log."""
    cma_total_bytes: int = 0
    cma_free_bytes: int = 0
    """The free bytes of CMA; more than all of it if kexec handover gave it pages, which RDMA cannot pin."""
    peers: frozenset[str] = frozenset()
    """nvidia-smi's words on pairs of GPUs: `OK`, or why one cannot reach the other, such as `CNS`."""
    translated_gpus: tuple[str, ...] = ()
    """The PCI addresses of GPUs whose addresses an IOMMU translates."""
    power_modes: tuple[tuple[str, str], ...] = ()
    """The name and number of each power mode of a Jetson, as in `MAXN` and `0`."""
    has_pinned_clocks: bool | None = None
    """Whether a Jetson's GPU stays at its highest clock; None where the kernel does not say."""


def read_kernel_report(answers: Transcript) -> KernelReport:
    """Return the kernel's reports."""
    counted = [line.split()[0] for line in read_lines(answers, PCIE_FATAL_QUESTION)]
    logged = (_FATAL_ERROR_PATTERN.search(line) for line in read_lines(answers, PCIE_LOG_QUESTION))
    cma = parse_meminfo(answers[CMA_QUESTION].text)
    clocks = [line.split() for line in read_lines(answers, GPU_CLOCKS_QUESTION)]
    # The type of a translating IOMMU group is DMA or DMA-FQ, that of another is identity.
    translated_gpus = tuple(line.split()[0] for line in read_lines(answers, IOMMU_QUESTION) if " DMA" in line)
    return KernelReport(
        fatal_addresses=tuple(sorted({*counted, *(match[1] for match in logged if match)})),
        is_log_read=PCIE_LOG_QUESTION in answers and answers[PCIE_LOG_QUESTION].status != _UNREADABLE_STATUS,
        cma_total_bytes=cma.get("CmaTotal", 0),
        cma_free_bytes=cma.get("CmaFree", 0),
        peers=_read_peers(answers),
        translated_gpus=translated_gpus,
        power_modes=tuple(read_assignments(answers, POWER_MODES_QUESTION).items()),
        has_pinned_clocks=all(fields[1:2] == fields[2:3] for fields in clocks) if clocks else None,
    )


def _read_peers(answers: Transcript) -> frozenset[str]:
    """Return the words in the matrix of nvidia-smi on pairs of GPUs."""
    rows = (line.split() for line in read_lines(answers, PEERS_QUESTION))
    words = {word for first, *rest in rows if first.startswith("GPU") for word in rest}
    return frozenset(word for word in words if word.isupper() and word != "X" and not word.startswith("GPU"))
