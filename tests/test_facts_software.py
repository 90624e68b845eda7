"""A host's own software."""

import pytest

from medley.facts import software
from medley.facts.software import Software
from medley.transcript import Answer


@pytest.mark.parametrize(
    ("question", "said", "expected"),
    [
        pytest.param(
            software.OS_RELEASE,
            'PRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\nVERSION_ID="12"\nID=debian\n',
            Software(os_id="debian", os_version="12", os_name="Debian GNU/Linux 12 (bookworm)"),
            id="debian",
        ),
        pytest.param(software.OS_RELEASE, "ID='arch'\n", Software(os_id="arch"), id="rolling, single quotes"),
        pytest.param(software.MARKS, "/.dockerenv\n", Software(container="docker"), id="docker"),
        pytest.param(software.MARKS, "/run/.containerenv\n", Software(container="podman"), id="podman"),
        pytest.param(software.MARKS, "/etc/NIXOS\n", Software(nixos=True), id="nixos"),
        pytest.param(
            software.PROGRAMS,
            "/usr/bin/gcc\n/opt/cuda/bin/nvcc\n",
            Software(programs={"gcc": "/usr/bin/gcc", "nvcc": "/opt/cuda/bin/nvcc"}),
            id="programs",
        ),
        pytest.param(software.PYTHON, "Python 3.12.3\n", Software(python="3.12.3"), id="python"),
        pytest.param(
            software.CUDA,
            '   "cuda" : {\n      "name" : "CUDA SDK",\n      "version" : "13.0.2"\n',
            Software(cuda="13.0.2"),
            id="CUDA toolkit",
        ),
        pytest.param(
            software.ENVIRONMENTS,
            "vllm-cpu-0123456789ab/medley.json\nvllm-cuda-ba9876543210/medley.json\n",
            Software(environments=("vllm-cpu-0123456789ab", "vllm-cuda-ba9876543210")),
            id="environments",
        ),
    ],
)
def test_software(question: str, said: str, expected: Software) -> None:
    # status 2: one of several things asked for is absent, which is an answer all the same
    assert software.software({question: Answer(said, 2)}) == expected


def test_nothing_asked() -> None:
    assert software.software({}) == Software()
