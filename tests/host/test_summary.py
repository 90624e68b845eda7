"""The summary says what a person asks first."""

from pathlib import Path

import pytest

from medley.errors import Problem
from medley.host.facts import read_facts
from medley.host.kind import Kind
from medley.host.summary import describe_facts
from medley.host_schema import HostSigns, HostTable, MemoryTable, Speed
from medley.transcript import parse_transcript

HOSTS = Path(__file__).parents[1] / "host" / "recorded"
TABLE = HostTable(
    title="A box",
    systems=("aarch64-linux",),
    device="cuda",
    recognise=HostSigns(),
    memory=MemoryTable(unified=True),
    speed=Speed(like="orin"),
    capability="8.7",
)
CHOSEN = Kind("box", TABLE, "it is one", "it hums")


def lines(name: str, chosen: Kind | Problem = CHOSEN) -> list[tuple[str, str]]:
    return list(describe_facts(read_facts(parse_transcript((HOSTS / f"{name}.txt").read_text())), chosen))


def test_spark() -> None:
    assert lines("spark") == [
        ("kind", "box: A box"),
        ("", "because: it is one"),
        ("", "but: it hums"),
        ("system", "aarch64-linux, Ubuntu 24.04.3 LTS, kernel 6.14.0-1013-nvidia, glibc 2.39"),
        ("board", "NVIDIA DGX Spark 7.3.1"),
        ("CPU", "Cortex-X925 + Cortex-A725, 20 cores, 20 threads, asimd asimddp bf16 i8mm sve"),
        ("memory", "121.7 GiB, 115.6 GiB available, 60.8 GiB for shared memory (/dev/shm)"),
        ("GPU 0", "NVIDIA GB10, capability 12.1, 121.7 GiB shared with the CPU, 0000000F:01:00.0"),
        ("driver", "580.126.09, for CUDA 13.0"),
        ("link enP7s7", "up, 1 Gbit/s, MTU 1500, 192.168.1.10/24, default route, 0007:01:00.0"),
        ("link enp1s0f0np0", "down, MTU 1500, 0000:01:00.0"),
        ("link enp1s0f1np1", "down, MTU 1500, 0000:01:00.1"),
        ("link enP2p1s0f0np0", "down, MTU 1500, 0002:01:00.0"),
        ("link enP2p1s0f1np1", "down, MTU 1500, 0002:01:00.1"),
        ("link wlP9s9", "wifi, down, MTU 1500, 0009:01:00.0"),
        ("other links", "container: docker0"),
        ("RDMA roceP2p1s0f0", "down, 40 Gbit/s, RoCE on enP2p1s0f0np0, PCIe x4 at 32 GT/s"),
        ("RDMA roceP2p1s0f1", "down, 40 Gbit/s, RoCE on enP2p1s0f1np1, PCIe x4 at 32 GT/s"),
        ("RDMA rocep1s0f0", "down, 40 Gbit/s, RoCE on enp1s0f0np0, PCIe x4 at 32 GT/s"),
        ("RDMA rocep1s0f1", "down, 40 Gbit/s, RoCE on enp1s0f1np1, PCIe x4 at 32 GT/s"),
        ("environments", "vllm-cuda-0123456789ab"),
        ("programs", "python3.12 nvcc gcc g++"),
    ]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("orin-r39", ("board", "NVIDIA Jetson AGX Orin Developer Kit, tegra234, L4T r39.2.0")),
        ("orin-r39", ("GPU 0", "Orin (nvgpu), capability 8.7, 29.3 GiB shared with the CPU")),
        (
            "rtx-4090",
            ("GPU 0", "NVIDIA GeForce RTX 4090, capability 8.9, 24.0 GiB, 23.4 GiB free, 00000000:01:00.0"),
        ),
        (
            "spark-pair-a",
            (
                "RDMA rocep1s0f1",
                "active, 200 Gbit/s, RoCE on enp1s0f1np1, PCIe x4 at 32 GT/s, GID 3 is 192.168.100.10",
            ),
        ),
        (
            "orin-pair-a",
            ("other links", "gadget: l4tbr0 usb0 usb1; virtual: can0 can1; container: docker0"),
        ),
        ("cpu-rack", ("link ens1f0np0", "up, 25 Gbit/s, MTU 9000, part of bond0, 0000:17:00.0")),
        ("cpu-rack", ("link bond0.40", "vlan, up, 50 Gbit/s, MTU 9000, 10.40.0.7/24")),
        ("rtx-stuck", ("driver", "580.95.05, nvidia-smi gave no answer and was stopped")),
    ],
)
def test_a_line(name: str, line: tuple[str, str]) -> None:
    assert line in lines(name)


def test_a_host_of_no_kind_still_has_facts() -> None:
    said = lines("thor-in-docker", Problem("nothing fits", cause="a", fix="b"))
    assert said[:3] == [("kind", "none: nothing fits"), ("", "cause: a"), ("", "fix: b")]
    assert ("GPU 0", "NVIDIA Thor, capability 11.0, memory unknown, 00000000:01:00.0") in said
