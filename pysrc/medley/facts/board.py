"""The board: what its maker's firmware and system say this computer is."""

import re
from dataclasses import dataclass

from medley.facts.answers import first, lines
from medley.transcript import Transcript

# The device tree separates with NUL, which no shell variable holds.
COMPATIBLE = r"tr '\0' '\n' </proc/device-tree/compatible"
MODEL = r"tr -d '\0' </proc/device-tree/model"
L4T_RELEASE = "head -n 1 /etc/nv_tegra_release"
# By name, for the file holds the serial number too.
DGX = "grep -E '^DGX_(PRETTY_NAME|SWBUILD_VERSION|OTA_VERSION)=' /etc/dgx-release"

QUESTIONS = (COMPATIBLE, MODEL, L4T_RELEASE, DGX)


@dataclass(frozen=True)
class L4t:
    """Linux for Tegra, the system of a Jetson: R36, REVISION 4.3 is r36.4.3."""

    major: str
    revision: str

    @property
    def release(self) -> str:
        return f"r{self.major}.{self.revision}"


@dataclass(frozen=True)
class Board:
    model: str | None = None
    compatible: tuple[str, ...] = ()
    """The device tree's names for it, the particular first and the SoC last; a PC has none."""
    l4t: L4t | None = None
    dgx: str | None = None

    @property
    def soc(self) -> str | None:
        return self.compatible[-1].rpartition(",")[2] if self.compatible else None

    @property
    def is_tegra(self) -> bool:
        return self.l4t is not None or (self.soc or "").startswith("tegra")


def board(answers: Transcript) -> Board:
    dgx = dict(re.findall(r'^(\w+)="?(.*?)"?$', "\n".join(lines(answers, DGX)), re.MULTILINE))
    version = dgx.get("DGX_OTA_VERSION") or dgx.get("DGX_SWBUILD_VERSION") or ""
    return Board(
        model=first(answers, MODEL),
        compatible=lines(answers, COMPATIBLE),
        l4t=_l4t(first(answers, L4T_RELEASE) or ""),
        dgx=f"{dgx.get('DGX_PRETTY_NAME', '')} {version}".strip() or None,
    )


def _l4t(line: str) -> L4t | None:
    match = re.match(r"# R(\d+) \(release\), REVISION: ([\d.]+)", line)
    return L4t(match[1], match[2]) if match else None
