"""A condition is how a host is today: what `up` need not know, and what may be in a model's way.

Its questions are apart from those of facts, so that nobody but the doctor and a transcript pays for them.
"""

from dataclasses import dataclass

from medley.condition import (
    access,
    clock,
    compilers,
    disks,
    doors,
    driver_files,
    gpu_state,
    hub_access,
    keeping,
    pages,
    processes,
    rdma_parts,
    settings,
)
from medley.condition.access import Access
from medley.condition.clock import Clock
from medley.condition.compilers import Compilers
from medley.condition.disks import Disk
from medley.condition.doors import Doors
from medley.condition.driver_files import DriverFiles
from medley.condition.gpu_state import GpuStates
from medley.condition.hub_access import HubAccess
from medley.condition.keeping import Keeping
from medley.condition.pages import Pages
from medley.condition.processes import Process
from medley.condition.rdma_parts import RdmaParts
from medley.condition.settings import Settings
from medley.transcript import Transcript

_PARTS = (
    *(gpu_state, driver_files, pages, processes, compilers, disks, access, doors, clock),
    *(hub_access, rdma_parts, settings, keeping),
)
QUESTIONS: tuple[str, ...] = tuple(question for part in _PARTS for question in part.QUESTIONS)


@dataclass(frozen=True)
class Condition:
    """What is None was not asked when the transcript was recorded, or could not be answered."""

    gpus: GpuStates | None = None
    driver: DriverFiles | None = None
    pages: Pages | None = None
    processes: tuple[Process, ...] | None = None
    compilers: Compilers | None = None
    disks: tuple[Disk, ...] | None = None
    access: Access | None = None
    doors: Doors | None = None
    clock: Clock | None = None
    hub: HubAccess | None = None
    rdma: RdmaParts | None = None
    settings: Settings | None = None
    keeping: Keeping | None = None


def condition(answers: Transcript) -> Condition:
    return Condition(
        gpus=gpu_state.gpu_states(answers),
        driver=driver_files.driver_files(answers),
        pages=pages.pages(answers),
        processes=processes.processes(answers),
        compilers=compilers.compilers(answers),
        disks=disks.disks(answers),
        access=access.access(answers),
        doors=doors.doors(answers),
        clock=clock.clock(answers),
        hub=hub_access.hub_access(answers),
        rdma=rdma_parts.rdma_parts(answers),
        settings=settings.settings(answers),
        keeping=keeping.keeping(answers),
    )
