"""What nvidia-smi says, in all the ways it says it."""

import pytest

from medley.host.facts import gpu
from medley.host.facts.gpu import Gpu, NvidiaDriver
from medley.transcript import Answer

UUID = "GPU-00000000-0000-0000-0000-00000000000"
GIB = 1 << 30


def row(index: int, bus_id: str, *, mib: str = "1024", free: str = "512", capability: str = "12.0") -> str:
    return f"{index}, NVIDIA X{index}, {UUID}{index}, {bus_id}, {mib}, {free}, {capability}, 580.95.05\n"


def gpus(said: str, status: int = 0) -> tuple[Gpu, ...]:
    return gpu.read_gpus({gpu.GPUS_QUESTION: Answer(said, status)})


def driver(said: str, status: int = 0, **more: str) -> NvidiaDriver:
    asked = {"module": gpu.MODULE_QUESTION, "cards": gpu.CARDS_QUESTION}
    rest = {asked[name]: Answer(text) for name, text in more.items()}
    return gpu.read_driver({gpu.GPUS_QUESTION: Answer(said, status), **rest})


def test_a_row() -> None:
    expected = Gpu(0, "NVIDIA X0", f"{UUID}0", "00000000:01:00.0", GIB, GIB // 2, "12.0", "580.95.05")
    assert gpus(row(0, "00000000:01:00.0")) == (expected,)


@pytest.mark.parametrize(
    "absent",
    ["[N/A]", "N/A", "[Not Supported]", "Not Supported", "[Unknown Error]", "[GPU requires reset]", ""],
)
def test_no_value_is_none(absent: str) -> None:
    (found,) = gpus(row(0, absent, mib=absent, free=absent, capability=absent))
    assert (found.bus_id, found.memory_bytes, found.memory_free_bytes, found.capability) == (None,) * 4


@pytest.mark.parametrize(
    ("buses", "order"),
    [
        pytest.param(("00000000:01:00.0", "00000000:02:00.0"), ["NVIDIA X0", "NVIDIA X1"], id="as listed"),
        pytest.param(
            ("00000000:C1:00.0", "00000000:41:00.0"), ["NVIDIA X1", "NVIDIA X0"], id="the other way"
        ),
        pytest.param(("00000001:01:00.0", "00000000:FF:00.0"), ["NVIDIA X1", "NVIDIA X0"], id="domain first"),
        pytest.param(
            ("00000000:0A:00.0", "00000000:9:00.0"), ["NVIDIA X1", "NVIDIA X0"], id="numbers, not text"
        ),
        pytest.param(("[N/A]", "00000000:01:00.0"), ["NVIDIA X0", "NVIDIA X1"], id="one without address"),
    ],
)
def test_pci_order(buses: tuple[str, str], order: list[str]) -> None:
    found = gpus(row(0, buses[0]) + row(1, buses[1]))
    assert [each.name for each in found] == order
    assert [each.index for each in found] == [0, 1]


@pytest.mark.parametrize(
    ("line", "name"),
    [
        (f"GPU 0: Orin (nvgpu) (UUID: {UUID}1)", "Orin (nvgpu)"),
        ("GPU 0: Orin (nvgpu)", "Orin (nvgpu)"),
        (f"GPU 0: NVIDIA H100 (UUID: {UUID}1)\n  MIG 1g.10gb  Device  0: (UUID: MIG-1)", "NVIDIA H100"),
    ],
    ids=["uuid", "no uuid", "MIG"],
)
def test_the_plain_list_is_the_fallback(line: str, name: str) -> None:
    refused = 'Field "compute_cap" is not a valid field to query.\n\n'
    (found,) = gpus(f"{refused}{line}\n")
    assert (found.index, found.name, found.capability) == (0, name, None)
    assert driver(f"{refused}{line}\n").error == 'Field "compute_cap" is not a valid field to query.'


def test_rows_win_over_the_list() -> None:
    """nvidia-smi lists after a warning's status, too."""
    said = (
        row(0, "00000000:01:00.0") + "WARNING: infoROM is corrupted at gpu 0000:01:00.0\nGPU 0: NVIDIA X0\n"
    )
    assert len(gpus(said, 14)) == 1
    assert driver(said, 14).error == "WARNING: infoROM is corrupted at gpu 0000:01:00.0"


@pytest.mark.parametrize(
    ("said", "status", "error"),
    [
        pytest.param("sh: 1: nvidia-smi: not found\n" * 2, 127, None, id="not installed"),
        pytest.param("", 124, "nvidia-smi gave no answer and was stopped", id="stuck"),
        pytest.param("No devices were found\n" * 2, 6, "No devices were found", id="no devices"),
        pytest.param("", 139, "nvidia-smi ended with status 139", id="crash"),
        pytest.param(
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 580.173\n" * 2,
            18,
            "Failed to initialize NVML: Driver/library version mismatch; NVML library version: 580.173",
            id="mismatch",
        ),
        pytest.param(row(0, "00000000:01:00.0"), 0, None, id="well"),
    ],
)
def test_why_no_gpu_shows(said: str, status: int, error: str | None) -> None:
    assert driver(said, status).error == error
    assert driver(said, status).installed is (status != 127)
    assert driver(said, status).stuck is (status == 124)


@pytest.mark.parametrize(
    ("line", "version"),
    [
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  580.126.09  Release Build", "580.126.09"),
        (
            "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  Sat Feb 24 22:55:45 UTC 2024",
            "535.161.08",
        ),
        ("NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  540.4.0  Release Build", "540.4.0"),
        ("", None),
    ],
    ids=["open", "closed", "jetson", "none"],
)
def test_module_version(line: str, version: str | None) -> None:
    assert driver("", 127, module=line).version == version


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("CUDA Version        : 12.4\n", "12.4"),
        ("CUDA UMD Version : 13.1\n", "13.1"),
        ("CUDA Version : Not Found\n", None),
        ("", None),
    ],
    ids=["one", "newer", "no library", "none"],
)
def test_cuda_version(said: str, version: str | None) -> None:
    assert gpu.read_driver({gpu.CUDA_QUESTION: Answer(said)}).cuda == version


def test_cards_are_pci_addresses() -> None:
    found = driver("", 127, cards="/sys/bus/pci/devices/0000:01:00.0/uevent\n")
    assert found.cards == ("0000:01:00.0",)
    assert found.has_hardware


def test_not_asked_is_no_gpu() -> None:
    assert gpu.read_gpus({}) == ()
    assert gpu.read_driver({}) == NvidiaDriver()
