"""Check what the kernel reports: PCIe errors, GPUs behind an IOMMU, memory that RDMA cannot pin."""

from collections.abc import Iterator

from medley.doctor.checks import Check, ExaminedHost, health_check, host_check
from medley.host.facts import GIB
from medley.host.health.kernel import KernelReport

# Published: github.com/eugr/spark-vllm-docker/issues/389 and 392, and issue 259 of MiaAI-Lab's
# DeepSeek-v4-Flash-DSpark-2x-DGX-Spark, which found kho=off; NVIDIA/NV-Kernels pull request 591 is for it.
_REFUSING_KERNELS = ("7.0.0-1019-nvidia", "7.0.0-31-generic")
_WORKING_KERNEL = "6.17.0-1032-nvidia"


@health_check("pcie-errors", "fatal PCIe errors", lambda health: health.kernel)
def pcie_errors(host: ExaminedHost, report: KernelReport) -> Iterator[Check]:
    """Report devices with fatal errors since boot; such a device has failed, or will fail again."""
    if report.fatal_addresses:
        rdma_devices = ", ".join(port.device for port in host.facts.rdma) or "which has no RDMA now"
        yield host.report_wrong(
            f"Fatal PCIe errors since boot: {', '.join(report.fatal_addresses)}",
            cause="the kernel resets such a device, which may fail and stop the host; on a DGX Spark "
            f"0000:00:00.0 and 0002:00:00.0 lead to the network card ({rdma_devices})",
            fix="sudo fwupdmgr refresh; sudo fwupdmgr update  # then switch it off for a minute, without its "
            "power supply; if it comes back, NVIDIA's field diagnostics: sudo ./partnerdiag --field",
        )
    else:
        note = "" if report.is_log_read else "; only root can read the kernel's log"
        yield host.report_ok(f"none since boot{note}")


@health_check("peer-access", "GPU peer access", lambda health: health.kernel)
def peer_access(host: ExaminedHost, report: KernelReport) -> Iterator[Check]:
    """Check hosts with several GPUs: if the driver allows peer access, a translating IOMMU can hang NCCL."""
    if not report.peers:
        return
    if "OK" in report.peers and report.translated_gpus:
        gpus = ", ".join(report.translated_gpus)
        yield host.report_improvable(
            f"GPUs reach each other's memory through an IOMMU that translates: {gpus}",
            cause="NCCL's first collective was seen to hang so on pairs of RTX PRO 6000 (vllm issue 33041, "
            "nccl issue 1999); NCCL's documentation warns of it, under PCI Access Control Services",
            fix=f"{_format_option_fix('iommu=pt')}  # until then: NCCL_P2P_DISABLE=1 medley serve MODEL -- "
            "--disable-custom-all-reduce",
        )
    elif "OK" in report.peers:
        yield host.report_ok("direct, over PCIe or NVLink")
    else:
        yield host.report_ok(
            f"data passes through host memory: nvidia-smi reports {', '.join(sorted(report.peers))}"
        )


def _format_option_fix(option: str) -> str:
    """Return the command that adds an option to the kernel's command line, and reboots."""
    return (
        f"sudo sed -i 's/^GRUB_CMDLINE_LINUX_DEFAULT=\"/&{option} /' /etc/default/grub && sudo update-grub "
        "&& sudo reboot"
    )


@host_check("rdma-kernel", "kernel support for RDMA")
def rdma_kernel(host: ExaminedHost) -> Iterator[Check]:
    """Find kernels that reserve memory as CMA for kexec handover, where pages cannot be pinned.

    Ubuntu's kernel 7.0 for arm64 reserves 9 GiB so.
    """
    if not any(port.active for port in host.facts.rdma):
        return
    name, report = host.facts.software.kernel or "of no known version", host.health.kernel
    holds_cma = report is not None and report.cma_free_bytes > report.cma_total_bytes
    if report and holds_cma:
        free_gib, total_gib = report.cma_free_bytes / GIB, report.cma_total_bytes / GIB
        cause = f"kexec handover holds {free_gib:.1f} GiB (CmaFree, with a CmaTotal of {total_gib:.1f} GiB)"
    elif report is None and name in _REFUSING_KERNELS:
        # Whether it does depends on the kernel's options and memory, which an old transcript lacks.
        yield host.report_improvable(
            f"Kernel {name} may refuse memory to RDMA",
            cause="its kexec handover has 9 GiB, unless kho=off switches it off, and NCCL may end with "
            f"'ibv_reg_mr_iova2 failed'; two Sparks serve on it, and {_WORKING_KERNEL} works",
            fix=_format_option_fix("kho=off"),
        )
        return
    else:
        yield host.report_ok(f"kernel {name}")
        return
    yield host.report_wrong(
        f"Kernel {name} refuses memory to RDMA",
        cause=f"{cause}; NCCL ends with 'ibv_reg_mr_iova2 failed with error Cannot allocate memory' once a "
        f"model is loaded; {_WORKING_KERNEL} works",
        fix=_format_option_fix("kho=off"),
    )
