"""A stand-in for SGLang's own kernels, medley's and not SGLang's: enough for SGLang to start on a CPU.

SGLang imports `sgl_kernel` on a CPU whatever it serves, and PyPI has it for CUDA alone (sglang-kernel). Here
is, in plain PyTorch, what serving a dense model calls; every other CPU kernel says so when it is called.
"""

import torch

__version__ = "0.4.10+medley.standin"

if torch.version.cuda is not None:
    raise ImportError(
        f"sgl_kernel {__version__} is medley's stand-in for a CPU, and this torch is built for CUDA "
        f"{torch.version.cuda}: uninstall medley-sgl-kernel-standin and install sglang-kernel"
    )

from . import gaps
from .missing import missing
from .pool import assign_req_to_token_pool_cpu

__all__ = ["assign_req_to_token_pool_cpu", "register"]


def register() -> None:
    """Called at the end of `import torch`, in every process: what SGLang misses in a torch for CPUs."""
    gaps.fill()


def __getattr__(name: str) -> object:
    """SGLang names its CPU kernels `*_cpu` and imports some that it calls for speculative decoding alone."""
    if name.endswith("_cpu"):
        return missing(name)
    raise AttributeError(f"medley's stand-in for sgl_kernel has no {name}")
