"""The gaps are what SGLang takes for granted and neither a torch for CPUs nor PyPI has."""

import os

import torch

# PyPI's torchvision is linked against CUDA, so that its own library does not load here, and without these two
# operators it cannot even be imported. Nothing implements them: torchvision says so where they are called.
_OPERATORS = ("nms", "qnms")
_SIGNATURE = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"

# torch forgets what a library defined when the library is gone.
_defined: list[torch.library.Library] = []


def fill() -> None:
    """Once in a process."""
    if _defined:
        return
    library = torch.library.Library("torchvision", "DEF")
    for name in _OPERATORS:
        library.define(f"{name}{_SIGNATURE}")
    _defined.append(library)
    # Under Ray SGLang calls it whatever the device.
    torch.cuda.set_device = _ignore
    # On an Arm CPU it calls these without asking for them; on others it asks for other kernels first.
    torch.ops.sgl_kernel.init_cpu_threads_env = _take_threads
    torch.ops.sgl_kernel.initialize = _share_no_memory


def _ignore(_device: object) -> None:
    """There is no device to choose."""


def _take_threads(cores: str) -> None:
    """As many threads as there are cores in `0-3,8`; where they run is left to the kernel."""
    spans = [span.partition("-") for span in cores.split(",")]
    torch.set_num_threads(sum(int(last or first) - int(first) + 1 for first, _, last in spans))


def _share_no_memory(_ranks: int, _rank: int) -> None:
    """SGLang has just said how many ranks share memory; told that none do, it reduces through gloo."""
    os.environ["LOCAL_SIZE"] = "0"
