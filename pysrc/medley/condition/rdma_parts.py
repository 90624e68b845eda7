"""The parts of RDMA that are no hardware: libraries that NCCL loads by name, and modules of the kernel."""

import re
from dataclasses import dataclass

from medley.facts.answers import lines
from medley.transcript import Transcript

LIBRARIES = (
    "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -oE '(libibverbs|libmlx5|librdmacm)\\.so\\.1' | sort -u"
)
MODULES = "grep -oE '^(nvidia_peermem|nv_peer_mem|ib_uverbs|mlx5_ib|rdma_cm|nvidia) ' /proc/modules"
OPEN_DRIVER = "grep -o 'Open Kernel Module' /proc/driver/nvidia/version"

QUESTIONS = (LIBRARIES, MODULES, OPEN_DRIVER)


@dataclass(frozen=True)
class RdmaParts:
    libraries: frozenset[str] | None = frozenset()
    """None where ldconfig keeps no list, as on NixOS."""
    modules: frozenset[str] = frozenset()
    dmabuf: bool = False
    """The driver's open module, which gives GPU memory to RDMA without another one."""


def rdma_parts(answers: Transcript) -> RdmaParts | None:
    if LIBRARIES not in answers:
        return None
    libraries = frozenset(re.sub(r"\.so\.1$", "", each.strip()) for each in lines(answers, LIBRARIES))
    unlisted = answers[LIBRARIES].status == 127  # noqa: PLR2004 - no ldconfig
    return RdmaParts(
        None if unlisted else libraries,
        frozenset(each.strip() for each in lines(answers, MODULES)),
        bool(lines(answers, OPEN_DRIVER)),
    )
