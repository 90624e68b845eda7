"""A missing kernel is one that can be imported, and says what it is when it is called."""

from collections.abc import Callable
from typing import NoReturn


def missing(name: str) -> Callable[..., NoReturn]:
    def kernel(*_given: object, **_named: object) -> NoReturn:
        raise NotImplementedError(
            f"sgl_kernel.{name} is not in medley's stand-in for SGLang's CPU kernels, "
            "which has no speculative decoding and no quantised layers"
        )

    kernel.__name__ = kernel.__qualname__ = name
    return kernel
