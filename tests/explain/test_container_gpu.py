"""A container that was started without the GPU, against a driver that does not answer."""

import pytest

from tests.explain.test_explain import names, of

BANNER = "{at}WARNING: The NVIDIA Driver was not detected.  GPU functionality will not be available.\n"
NO_DEVICE = "{at}RuntimeError: Failed to infer device type, please set the environment variable\n"
NO_ACCELERATOR = "{at}RuntimeError: No accelerator (CUDA, XPU, HPU, NPU) is available.\n"
GPU_LIST = "$ nvidia-smi -L\nGPU 0: NVIDIA GB10 (UUID: GPU-5d0c)\n"
GPU_TABLE = "|   0  NVIDIA RTX PRO 6000 Blac...    On  |   00000000:01:00.0 Off |                  Off |\n"
SILENT = "NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.\n"


@pytest.mark.parametrize("at", ["vllm-1  | ", ""])
@pytest.mark.parametrize("error", [NO_DEVICE, NO_ACCELERATOR])
@pytest.mark.parametrize(
    ("host", "gpu"), [(GPU_LIST, "NVIDIA GB10"), (GPU_TABLE, "RTX PRO 6000"), ("", None)]
)
def test_the_banner_of_the_image_explains_the_error(at: str, error: str, host: str, gpu: str | None) -> None:
    (report,) = of((BANNER + error).format(at=at) + host).problems
    assert report.match.failure.name == "container-without-gpu"
    assert report.match.number == 1
    assert "deploy.resources.reservations.devices" in report.problem().fix
    assert "-cpu" not in report.problem().fix
    assert ("are in order" in report.problem().cause) == (gpu is not None)
    assert (gpu or "") in report.problem().cause


@pytest.mark.parametrize("error", [NO_DEVICE, NO_ACCELERATOR])
def test_a_driver_that_does_not_answer_decides(error: str) -> None:
    assert names(of((BANNER + error).format(at="") + SILENT)) == ["driver-silent"]
    assert names(of(error.format(at="") + SILENT)) == ["driver-silent"]


def test_without_a_banner_a_gpu_of_the_host_is_named() -> None:
    (report,) = of(NO_DEVICE.format(at="") + GPU_LIST).problems
    assert report.match.failure.name == "device-unknown"
    assert "NVIDIA GB10" in report.problem().cause
    assert "without the GPU" in report.problem().cause
