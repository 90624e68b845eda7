"""Let torch find one GPU that is only declared, and answer each command in a process of its own.

Imported by declared_vllm.py and declared_sglang.py, which the Pythons of engine environments run.
"""

import json
import os
import select
import signal
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

MEMORY_BYTES = 119 << 30
LIMIT_S = 300


class Nothing:
    """A stream or an event of CUDA: made, and never used."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass


def declare(capability: tuple[int, int]) -> None:
    import torch

    properties = SimpleNamespace(
        name="declared",
        major=capability[0],
        minor=capability[1],
        total_memory=MEMORY_BYTES,
        multi_processor_count=48,
        warp_size=32,
        shared_memory_per_block_optin=101376,
        shared_memory_per_multiprocessor=102400,
        max_threads_per_multi_processor=1536,
        regs_per_multiprocessor=65536,
        L2_cache_size=24 << 20,
        is_integrated=1,
        gcnArchName="",
        uuid="GPU-declared",
    )
    answers = {
        "is_available": True,
        "device_count": 1,
        "get_device_capability": capability,
        "get_device_name": "declared",
        "get_device_properties": properties,
        "current_device": 0,
        "mem_get_info": (MEMORY_BYTES, MEMORY_BYTES),
        "get_arch_list": ["sm_80", "sm_90", "sm_100", "sm_110", "sm_120"],
        "set_device": None,
        "synchronize": None,
        "empty_cache": None,
    }
    for name, value in answers.items():
        setattr(torch.cuda, name, lambda *_, _value=value, **__: _value)
    torch.cuda.Stream, torch.cuda.Event = Nothing, Nothing
    torch.set_num_threads(1)


def on_meta() -> Any:
    """Return a context in which tensors that a layer wants on the GPU are made on the meta device."""
    from torch.overrides import TorchFunctionMode

    class OnMeta(TorchFunctionMode):  # type: ignore[misc] # torch is not in this environment
        def __torch_function__(self, function: Any, _: Any, args: Any = (), kwargs: Any = None) -> Any:
            named = dict(kwargs or {})
            if str(named.get("device", "cpu")) not in {"cpu", "None"}:
                named["device"] = "meta"
            return function(*args, **named)

    return OnMeta()


def in_child(answer: Callable[[dict[str, Any]], dict[str, Any]], case: dict[str, Any]) -> dict[str, Any]:
    """Answer in a child of this process, whose engine is untouched by the commands before."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(2, 1)
        with os.fdopen(writing, "w") as pipe:
            json.dump(answer(case), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        ready, _, _ = select.select([pipe], [], [], LIMIT_S)
        if not ready:
            os.kill(child, signal.SIGKILL)
        text = pipe.read()
    os.waitpid(child, 0)
    found: dict[str, Any] = json.loads(text) if text else {"error": "the child ended without an answer"}
    return found
