"""Replace SGLang's own kernels on a CPU with as much plain PyTorch as serving a dense model calls.

SGLang imports `sgl_kernel` on a CPU whatever it serves, and PyPI has it for CUDA only (sglang-kernel). Every
other CPU kernel can be imported, and raises when it is called.
"""

import os
from collections.abc import Callable
from typing import NoReturn

import torch

__version__ = "0.4.10+medley.standin"
__all__ = ["assign_req_to_token_pool_cpu", "register"]

if torch.version.cuda is not None:
    raise ImportError(
        f"sgl_kernel {__version__} is medley's stand-in for a CPU, and this torch is built for CUDA "
        f"{torch.version.cuda}: uninstall medley-sgl-kernel-standin and install sglang-kernel"
    )

# torch removes the operators of a library that is garbage-collected.
_LIBRARIES: list[torch.library.Library] = []


def register() -> None:
    """Add the functions that SGLang misses in a torch for CPUs; `import torch` calls it in every process."""
    if _LIBRARIES:
        return
    # PyPI's torchvision is linked against CUDA: its own library does not load here, and without these two
    # operators it cannot be imported. Nothing implements them: torchvision says so where they are called.
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)
    # Under Ray SGLang calls it for any device.
    torch.cuda.set_device = lambda _device: None
    # On an Arm CPU it calls these without asking for them; on others it asks for other kernels first.
    torch.ops.sgl_kernel.init_cpu_threads_env = _set_thread_count
    torch.ops.sgl_kernel.initialize = _disable_shared_memory


def _set_thread_count(cores: str) -> None:
    """Use one thread per core of a list such as `0-3,8`, without binding them."""
    spans = [span.partition("-") for span in cores.split(",")]
    torch.set_num_threads(sum(int(last or first) - int(first) + 1 for first, _, last in spans))


def _disable_shared_memory(_ranks: int, _rank: int) -> None:
    """Let SGLang reduce through gloo: set the number of ranks that share memory, which it just set, to 0."""
    os.environ["LOCAL_SIZE"] = "0"


def __getattr__(name: str) -> Callable[..., NoReturn]:
    """Return a kernel that raises: SGLang imports all its kernels `*_cpu`, and a dense model calls few."""
    if not name.endswith("_cpu"):
        raise AttributeError(f"medley's stand-in for sgl_kernel has no {name}")

    def kernel(*_given: object, **_named: object) -> NoReturn:
        raise NotImplementedError(
            f"sgl_kernel.{name} is not in medley's stand-in for SGLang's CPU kernels, "
            "which has no speculative decoding and no quantized layers"
        )

    kernel.__name__ = kernel.__qualname__ = name
    return kernel


def assign_req_to_token_pool_cpu(  # noqa: PLR0917 - as SGLang calls it
    req_pool_indices: torch.Tensor,
    req_to_token: torch.Tensor,
    start_offset: torch.Tensor,
    end_offset: torch.Tensor,
    out_cache_loc: torch.Tensor,
    pool_len: int,
) -> None:
    """Write each request's new slots of the KV cache into its row, from its start to before its end.

    The slots are in one list. `pool_len` is the length of a row, which a tensor of two dimensions has itself.
    """
    del pool_len
    counts = (end_offset - start_offset).to(torch.int64)
    rows = req_pool_indices.to(torch.int64).repeat_interleave(counts)
    # A slot's column: its place in the list, less where its request begins there, plus where it starts.
    shifts = start_offset.to(torch.int64) - (counts.cumsum(0) - counts)
    places = torch.arange(rows.numel(), device=rows.device)
    columns = places + shifts.repeat_interleave(counts)
    req_to_token[rows, columns] = out_cache_loc[: rows.numel()].to(req_to_token.dtype)
