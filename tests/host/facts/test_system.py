"""Boards by device tree, L4T release and DGX release."""

import pytest

from medley.host.facts import system
from medley.host.facts.system import Board, L4t, Software
from medley.transcript import Answer


@pytest.mark.parametrize(
    ("line", "l4t"),
    [
        pytest.param(
            "# R36 (release), REVISION: 4.3, GCID: 38968081, BOARD: generic", L4t("36", "4.3"), id="r36"
        ),
        pytest.param("# R39 (release), REVISION: 2.0, GCID: 45755727", L4t("39", "2.0"), id="r39"),
        pytest.param("R36", None, id="another file"),
        pytest.param("", None, id="none"),
    ],
)
def test_l4t(line: str, l4t: L4t | None) -> None:
    assert system.read_board({system.L4T_RELEASE_FILE: Answer(line)}).l4t == l4t


@pytest.mark.parametrize(
    ("compatible", "soc", "tegra"),
    [
        ("nvidia,p3737-0000+p3701-0005\nnvidia,p3701-0005\nnvidia,tegra234\n", "tegra234", True),
        ("raspberrypi,5-model-b\nbrcm,bcm2712\n", "bcm2712", False),
        ("", None, False),
    ],
    ids=["orin", "raspberry pi", "pc"],
)
def test_soc(compatible: str, soc: str | None, *, tegra: bool) -> None:
    found = system.read_board({system.COMPATIBLE_QUESTION: Answer(compatible)})
    assert (found.soc, found.is_tegra) == (soc, tegra)


@pytest.mark.parametrize(
    ("said", "dgx"),
    [
        ('DGX_PRETTY_NAME="NVIDIA DGX Spark"\nDGX_SWBUILD_VERSION="7.2.3"\n', "NVIDIA DGX Spark 7.2.3"),
        ("DGX_PRETTY_NAME=DGX\nDGX_SWBUILD_VERSION=1\nDGX_OTA_VERSION=2\n", "DGX 2"),
        ("", None),
    ],
    ids=["as built", "updated since", "no DGX"],
)
def test_dgx(said: str, dgx: str | None) -> None:
    assert system.read_board({system.DGX_QUESTION: Answer(said)}).dgx == dgx


def test_nothing_asked() -> None:
    assert system.read_board({}) == Board()


@pytest.mark.parametrize(
    ("question", "said", "expected"),
    [
        pytest.param(
            system.OS_RELEASE_QUESTION,
            'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
            Software(os_id="debian", os_version="12", os_name="Debian GNU/Linux 12 (bookworm)"),
            id="debian",
        ),
        pytest.param(
            system.OS_RELEASE_QUESTION, "ID='arch'\n", Software(os_id="arch"), id="rolling, single quotes"
        ),
        pytest.param(system.MARKS_QUESTION, "/.dockerenv\n", Software(container="docker"), id="docker"),
        pytest.param(
            system.MARKS_QUESTION, "/run/.containerenv\n", Software(container="podman"), id="podman"
        ),
        pytest.param(system.MARKS_QUESTION, "/etc/NIXOS\n", Software(nixos=True), id="nixos"),
        pytest.param(
            system.PROGRAMS_QUESTION,
            "/usr/bin/gcc\n/opt/cuda/bin/nvcc\n",
            Software(programs={"gcc": "/usr/bin/gcc", "nvcc": "/opt/cuda/bin/nvcc"}),
            id="programs",
        ),
        pytest.param(system.PYTHON_QUESTION, "Python 3.12.3\n", Software(python="3.12.3"), id="python"),
        pytest.param(
            system.CUDA_QUESTION,
            '   "cuda" : {\n      "name" : "CUDA SDK",\n      "version" : "13.0.2"\n',
            Software(cuda="13.0.2"),
            id="CUDA toolkit",
        ),
        pytest.param(
            system.ENVIRONMENTS_QUESTION,
            "vllm-cpu-0123456789ab/medley.json\nvllm-cuda-ba9876543210/medley.json\n",
            Software(environments=("vllm-cpu-0123456789ab", "vllm-cuda-ba9876543210")),
            id="environments",
        ),
    ],
)
def test_software(question: str, said: str, expected: Software) -> None:
    # status 2: one of several things asked for is absent, which is an answer all the same
    assert system.read_software({question: Answer(said, 2)}) == expected


def test_facts_software_nothing_asked() -> None:
    assert system.read_software({}) == Software()
