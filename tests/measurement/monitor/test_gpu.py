"""GPUs as nvidia-smi prints them. The lines are composed of published fields: GB10 and Thor as facts of their
users have them ([N/A] for memory and power limit), the reasons of NVML's reference.
"""

import pytest

from medley.measurement.monitor import gpu
from medley.measurement.monitor.sample import GpuSample

ALL_FIELDS, BASIC_FIELDS = gpu.QUERY_FIELDS
MIB = 1 << 20
SEVERAL = ("hardware slowdown", "heat", "heat (hardware)")

LINES = [
    pytest.param(
        "0, NVIDIA GB10, 98, [N/A], [N/A], 71, 42.41, [N/A], 2405, 3003, 0x0000000000000004",
        GpuSample(0, "NVIDIA GB10", 0.98, None, None, 71, 42.41, None, 2405, 3003, ("power cap",)),
        id="Spark: unified memory",
    ),
    pytest.param(
        "1, NVIDIA GeForce RTX 4090, 3, 24564, 1102, 45, 61.20, 450.00, 2520, 3105, 0x0000000000000001",
        GpuSample(1, "NVIDIA GeForce RTX 4090", 0.03, 24564 * MIB, 1102 * MIB, 45, 61.2, 450, 2520, 3105),
        id="idle holds nothing back",
    ),
    pytest.param(
        "0, NVIDIA Thor, 0, [Not Supported], [Not Supported], [N/A], [N/A], [N/A], [N/A], [N/A], [N/A]",
        GpuSample(0, "NVIDIA Thor", 0.0),
        id="Thor tells little",
    ),
    pytest.param(
        "0, Odd, [Unknown Error], 100, [N/A], nan, inf, -5, 1, 1, 0x0000000000000068",
        GpuSample(0, "Odd", None, 100 * MIB, None, None, None, -5, 1, 1, SEVERAL),
        id="errors, and several reasons",
    ),
    pytest.param("WARNING: infoROM is corrupted at gpu 0000:01:00.0", None, id="a warning"),
    pytest.param("", None, id="nothing"),
    pytest.param("x, y, 1, 2, 3, 4, 5, 6, 7, 8, 9", None, id="no number"),
]  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), LINES)
def test_a_line(line: str, expected: GpuSample | None) -> None:
    assert gpu.parse_gpu(line, ALL_FIELDS) == expected


def test_the_shorter_query() -> None:
    assert gpu.parse_gpu("0, NVIDIA Tegra, 7, 100, 50, 40, 5", BASIC_FIELDS) == GpuSample(
        0, "NVIDIA Tegra", 0.07, 100 * MIB, 50 * MIB, 40, 5
    )


def test_what_is_asked() -> None:
    argv = gpu.build_query_command(BASIC_FIELDS, 2.0).argv
    assert argv[0] == "nvidia-smi"
    assert argv[-1] == "--loop-ms=2000"
    assert gpu.build_query_command(BASIC_FIELDS, 0.1).argv[-1] == "--loop-ms=500"


def test_a_jetson_counts_in_thousandths_and_hertz() -> None:
    texts = {"load": "453", "temp": "56500", "cur_freq": "1300500000", "max_freq": "1300500000"}
    assert gpu.build_jetson_sample("tegra234", texts) == GpuSample(
        0, "tegra234", 0.453, temperature_c=56.5, clock_mhz=1300.5, clock_most_mhz=1300.5
    )
    assert gpu.build_jetson_sample("tegra234", {"load": "?"}) == GpuSample(0, "tegra234")
