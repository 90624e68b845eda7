"""What the makers state is found by GPU name, then by kind; nobody's figure is a floor, and says so."""

import pytest

from medley.planner.device_specs import find_stated_speed

_GIB = 1 << 30


@pytest.mark.parametrize(
    ("kind", "name", "bandwidth"),
    [
        pytest.param("spark", "NVIDIA GB10", 273, id="spark"),
        pytest.param("spark", "", 273, id="kind-alone"),
        pytest.param("thor", "NVIDIA Thor", 273, id="thor"),
        pytest.param("orin", "Orin (nvgpu)", 204.8, id="orin"),
        pytest.param("orin-r39", "", 204.8, id="orin-r39"),
        pytest.param("rtx", "NVIDIA RTX PRO 6000 Blackwell Workstation Edition", 1792, id="pro-6000"),
        pytest.param("rtx", "NVIDIA RTX 6000 Ada Generation", 960, id="older-6000"),
        pytest.param("rtx", "NVIDIA GeForce RTX 5090", 1792, id="5090"),
        pytest.param("rtx", "NVIDIA GeForce RTX 5070 Ti", 896, id="5070-ti"),
        pytest.param("rtx", "NVIDIA GeForce RTX 5070", 672, id="5070"),
        pytest.param("rtx", "NVIDIA GeForce RTX 5060 Ti", 448, id="5060-ti"),
        pytest.param("cuda", "NVIDIA GeForce RTX 4090", 1008, id="4090"),
        pytest.param("cuda", "NVIDIA H100 PCIe", 2000, id="h100-pcie"),
        pytest.param("cuda", "NVIDIA H100 80GB HBM3", 3350, id="h100-sxm"),
        pytest.param("rtx", "NVIDIA RTX PRO 6000 Blackwell Server Edition", 1597, id="pro-6000-server"),
        pytest.param("cuda", "NVIDIA L40S", 864, id="l40s-is-no-l4"),
        pytest.param("cuda", "NVIDIA GH200 480GB", 4000, id="gh200-is-no-h200"),
        pytest.param("spark", "a GPU nobody has seen", 273, id="its-kind-knows"),
    ],
)
def test_stated(kind: str, name: str, bandwidth: float) -> None:
    assert find_stated_speed(kind, name).bandwidth_gb_s == bandwidth
    assert not find_stated_speed(kind, name).assumed
    assert find_stated_speed(kind, name).bf16_tflops > 0


def test_a_small_orin_has_half_the_bus() -> None:
    assert find_stated_speed("orin", "Orin (nvgpu)", memory_bytes=8 * _GIB).bandwidth_gb_s == 102.4
    assert find_stated_speed("orin", "Orin (nvgpu)", memory_bytes=30 * _GIB).bandwidth_gb_s == 204.8


@pytest.mark.parametrize(
    ("capability", "gib", "bandwidth"),
    [
        pytest.param("12.0", 8, 320, id="small-blackwell"),
        pytest.param("12.0", 96, 900, id="memory-tells-the-bus"),
        pytest.param("9.0", 80, 2000, id="data-centre"),
        pytest.param("8.6", 24, 500, id="large-ampere"),
        pytest.param("6.1", 24, 160, id="old-cards-may-be-large-and-slow"),
        pytest.param(None, None, 160, id="nothing-known"),
    ],
)
def test_unknown_is_a_floor(capability: str | None, gib: int | None, bandwidth: float) -> None:
    memory = None if gib is None else gib * _GIB
    found = find_stated_speed("cuda", "NVIDIA Unheard-of 1", capability=capability, memory_bytes=memory)
    assert (found.bandwidth_gb_s, found.assumed) == (bandwidth, True)
    assert found.source


def test_a_cpu_is_assumed() -> None:
    assert find_stated_speed("cpu").assumed
    assert find_stated_speed("cpu").bandwidth_gb_s < find_stated_speed("orin").bandwidth_gb_s
