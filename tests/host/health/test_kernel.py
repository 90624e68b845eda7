"""What the kernel reports, as it says it: counters of sysfs, its log, /proc/meminfo, a Jetson's files."""

import subprocess
from pathlib import Path

import pytest

from medley.host.health import kernel
from medley.host.health.kernel import KernelReport, read_kernel_report
from medley.transcript import Answer

LOG = """\
[  811.641210] pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0
[  811.641992] pcieport 0000:00:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Transaction Layer
[  812.001100] pcieport 0000:00:00.0: AER: device recovery failed
"""


def report(**said: str | Answer) -> KernelReport:
    """Of these answers by name, the others empty."""
    given = {name: each if isinstance(each, Answer) else Answer(each) for name, each in said.items()}
    return read_kernel_report(
        {
            question: given.get(name, Answer())
            for name in ("PCIE_FATAL", "PCIE_LOG", "CMA", "PEERS", "IOMMU", "POWER_MODES", "GPU_CLOCKS")
            for question in [getattr(kernel, f"{name}_QUESTION")]
        }
    )


def test_nothing_is_wrong() -> None:
    assert report() == KernelReport()
    assert report(PCIE_LOG=Answer("", 3)) == KernelReport(is_log_read=False)


def test_each_device_with_a_fatal_error_is_named_once() -> None:
    assert report(PCIE_FATAL="0000:00:00.0 2\n0002:00:00.0 1\n").fatal_addresses == (
        "0000:00:00.0",
        "0002:00:00.0",
    )
    assert report(PCIE_LOG=LOG, PCIE_FATAL="0000:00:00.0 1\n").fatal_addresses == ("0000:00:00.0",)
    assert report(PCIE_LOG=LOG.replace("(Fatal)", "(Non-Fatal)")).fatal_addresses == ()


def test_memory_that_handover_has() -> None:
    found = report(CMA="CmaTotal:          32768 kB\nCmaFree:         9752576 kB\n")
    assert (found.cma_total_bytes, found.cma_free_bytes) == (32 << 20, 9524 << 20)


MATRIX = """\
 \tGPU0\tGPU1\t
 GPU0\tX\t{0}\t
 GPU1\t{0}\tX\t

Legend:

  X    = Self
  OK   = Status Ok
  CNS  = Chipset not supported
  GNS  = GPU not supported
  TNS  = Topology not supported
  NS   = Not supported
  U    = Unknown
"""


def test_gpus_that_reach_each_other() -> None:
    found = report(PEERS=MATRIX.format("OK"), IOMMU="0000:01:00.0 DMA-FQ\n0000:02:00.0 identity\n")
    assert found.peers == {"OK"}
    assert found.translated_gpus == ("0000:01:00.0",)
    assert report(PEERS=MATRIX.format("CNS")).peers == {"CNS"}
    assert report(PEERS=Answer("", 127)).peers == frozenset()


@pytest.mark.parametrize(
    ("said", "pinned"),
    [
        ("", None),
        ("17000000.gpu 306000000 1300500000\n", False),
        ("17000000.gpu 1300500000 1300500000\n", True),
        ("gpu-gpc-0 1575000000 1575000000\n", True),
    ],
)
def test_clocks_that_follow_the_load(said: str, pinned: object) -> None:
    assert report(GPU_CLOCKS=said).has_pinned_clocks is pinned


def asked(question: str, root: Path) -> str:
    """Of a tree of files in the place of the system's own."""
    moved = question.replace("/sys/", f"{root}/sys/").replace("/etc/", f"{root}/etc/")
    return subprocess.run(["sh", "-c", moved], capture_output=True, text=True, check=False).stdout


def put(root: Path, path: str, text: str) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)


def test_the_questions_read_these_files(tmp_path: Path) -> None:
    """As Linux writes them (Documentation/ABI/testing/sysfs-bus-pci-devices-aer), and L4T's nvpmodel.conf."""
    devices = "sys/bus/pci/devices"
    put(tmp_path, f"{devices}/0000:00:00.0/aer_rootport_total_err_fatal", "1\n")
    put(tmp_path, f"{devices}/0000:01:00.0/aer_dev_fatal", "Undefined 0\nDLP 0\nSDES 2\nTOTAL_ERR_FATAL 2\n")
    put(tmp_path, f"{devices}/0002:01:00.0/aer_dev_fatal", "Undefined 0\nTOTAL_ERR_FATAL 0\n")
    assert asked(kernel.PCIE_FATAL_QUESTION, tmp_path) == "0000:00:00.0 1\n0000:01:00.0 2\n"
    for at, vendor, device in (
        ("01", "0x10de", "0x030000"),
        ("02", "0x10de", "0x040300"),
        ("03", "0x8086", "0x03"),
    ):
        put(tmp_path, f"{devices}/0000:{at}:00.1/vendor", f"{vendor}\n")
        put(tmp_path, f"{devices}/0000:{at}:00.1/class", f"{device}\n")
        put(tmp_path, f"{devices}/0000:{at}:00.1/iommu_group/type", "DMA-FQ\n")
    assert asked(kernel.IOMMU_QUESTION, tmp_path) == "0000:01:00.1 DMA-FQ\n"
    modes = "< POWER_MODEL ID=0 NAME=MAXN >\nCPU_ONLINE CORE_0 1\n< POWER_MODEL ID=2 NAME=MODE_30W >\n"
    put(tmp_path, "etc/nvpmodel.conf", f"# < POWER_MODEL ID=9 NAME=NONE >\n{modes}< PM_CONFIG DEFAULT=2 >\n")
    assert asked(kernel.POWER_MODES_QUESTION, tmp_path) == "MAXN=0\nMODE_30W=2\n"
    put(tmp_path, "sys/class/devfreq/17000000.gpu/min_freq", "306000000\n")
    put(tmp_path, "sys/class/devfreq/17000000.gpu/max_freq", "1300500000\n")
    put(tmp_path, "sys/class/devfreq/gpu-nvd-0/min_freq", "1\n")
    assert asked(kernel.GPU_CLOCKS_QUESTION, tmp_path) == "17000000.gpu 306000000 1300500000\n"
