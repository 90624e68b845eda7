"""Configure vLLM for commands on a declared GPU, and print the kernels that it chooses.

    LD_LIBRARY_PATH=FOLDER python declared_vllm.py 12.1 FILE      with the Python of vllm-cuda

FILE holds a JSON list of tables: `words` after `vllm serve`, `variables`, `construct`. FOLDER has a
libcuda.so.1 without a function: vLLM's extensions are loaded, none of their code runs. For each command a
child of this process makes the engine's configuration, and where asked constructs the first rank's model on
PyTorch's meta device: it has no weights, and its layers choose their kernels. Each prints a line of JSON.

Groups of ranks are PyTorch's own fake ones, because there is one process. Nothing else is changed.
"""

import importlib
import json
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any

import declared_torch

_IMPORTS = (
    *("engine.arg_utils", "entrypoints.common.cli_args", "model_executor.model_loader.utils"),
    *(f"model_executor.layers.quantization.{name}" for name in ("fp8", "modelopt", "mxfp4", "auto_awq")),
    "model_executor.layers.quantization.compressed_tensors.compressed_tensors",
    *(f"v1.attention.backends.{name}" for name in ("flash_attn", "flashinfer", "triton_attn")),
)


def declare(capability: tuple[int, int]) -> None:
    """Let torch and vLLM find one integrated GPU of 119 GiB with this capability."""
    sys.setdlopenflags(
        os.RTLD_LAZY
    )  # the extensions' symbols of CUDA are looked up when they are called: never
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    declared_torch.declare(capability)
    import vllm.platforms
    from vllm.platforms.cuda import CudaPlatformBase
    from vllm.platforms.interface import DeviceCapability

    answers = {
        "get_device_capability": DeviceCapability(*capability),
        "get_device_name": "declared",
        "get_device_total_memory": 119 << 30,
        "device_count": 1,
        "num_compute_units": 48,
        "is_integrated_gpu": True,
        "is_fully_connected": False,
        # Its own would load NCCL, which starts the driver.
        "get_device_communicator_cls": "vllm.distributed.device_communicators.base_device_communicator."
        "DeviceCommunicatorBase",
    }
    methods = {name: classmethod(lambda *_, _value=value, **__: _value) for name, value in answers.items()}
    platform = type("DeclaredGpu", (CudaPlatformBase,), methods)()
    vllm.platforms.current_platform = vllm.platforms._current_platform = platform
    from vllm.model_executor.models import registry

    # Each model's class would be looked at in a Python of its own, which imports vLLM again.
    registry._run_in_subprocess = lambda function: function()
    for name in _IMPORTS:
        importlib.import_module(f"vllm.{name}")


def load_classes(folders: set[str]) -> None:
    """Import the classes of these models once, before the children need them."""
    from vllm.model_executor.models import ModelRegistry

    for folder in folders:
        (name,) = json.loads((Path(folder) / "config.json").read_text())["architectures"]
        with suppress(Exception):  # the child's configuration fails by it, and says so
            ModelRegistry.models[name].load_model_cls()


def configured(words: list[str], *, construct: bool) -> Any:
    from vllm.engine.arg_utils import AsyncEngineArgs
    from vllm.entrypoints.common.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    args = make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(words)
    args.model = args.model_tag
    # A vision tower is not constructed: no table has its numbers.
    args.language_model_only = args.language_model_only or construct
    return AsyncEngineArgs.from_cli_args(args).create_engine_config()


def configuration(made: Any) -> dict[str, Any]:
    parallel, cache = made.parallel_config, made.cache_config
    return {
        "architecture": made.model_config.architecture,
        "context": made.model_config.max_model_len,
        "ranks": parallel.world_size,
        "launcher": str(parallel.distributed_executor_backend),
        "kv_type": str(cache.cache_dtype),
        "sequences": made.scheduler_config.max_num_seqs,
        "attention": _backends(made),
    }


def _backends(made: Any) -> list[str]:
    """Return the backends that vLLM's platform finds for the attention of the model."""
    from vllm.config import set_current_vllm_config
    from vllm.platforms import current_platform
    from vllm.v1.attention.selector import AttentionSelectorConfig

    model = made.model_config
    asked = AttentionSelectorConfig(
        head_size=model.get_head_size(),
        dtype=model.dtype,
        kv_cache_dtype=made.cache_config.cache_dtype,
        block_size=None,
        use_mla=model.use_mla,
        use_sparse=hasattr(model.hf_text_config, "index_topk"),
    )
    heads = model.get_num_attention_heads(made.parallel_config)
    with set_current_vllm_config(made):
        capability = current_platform.get_device_capability()
        found, _ = current_platform.get_valid_backends(capability, asked, num_heads=heads)
    return [each.backend.name for each in found]


def constructed(made: Any) -> dict[str, list[str]]:
    """Return the kernels of attention, linear layers and experts, as the model's layers choose them."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.workspace import init_workspace_manager

    parallel = made.parallel_config
    fake_groups(parallel.world_size)
    with set_current_vllm_config(made):
        init_distributed_environment(parallel.world_size, 0, "env://", 0, "fake")
        initialize_model_parallel(parallel.tensor_parallel_size, parallel.pipeline_parallel_size)
        init_workspace_manager(torch.device("meta"))
        on_meta = declared_torch.on_meta()
        with set_default_torch_dtype(made.model_config.dtype), torch.device("meta"), on_meta:
            model = initialize_model(made)
    found: dict[str, set[str]] = {"attention": set(), "linear": set(), "experts": set()}
    for module in model.modules():
        for layer, kernel in kernels(module):
            found[layer].add(kernel)
    return {layer: sorted(names) for layer, names in found.items()}


def fake_groups(ranks: int) -> None:
    import torch.distributed
    from torch.testing._internal.distributed.fake_pg import FakeStore
    from vllm.distributed import parallel_state
    from vllm.distributed.device_communicators.shm_broadcast import MessageQueue

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    real = torch.distributed.new_group
    torch.distributed.new_group = lambda members=None, **_: real(members, backend="fake")
    parallel_state.in_the_same_node_as = lambda *_, **__: [True] * ranks
    MessageQueue.create_from_process_group = staticmethod(lambda *_, **__: None)


def kernels(module: Any) -> Iterator[tuple[str, str]]:
    """Yield the kind of layer and the kernel that it has chosen."""
    backend = getattr(module, "attn_backend", None)
    if isinstance(backend, type):
        yield "attention", backend.__name__
    method = getattr(module, "quant_method", None)
    if method is None:
        return
    is_experts = hasattr(method, "moe")
    parts = [method, getattr(module, "scheme", None)]
    names = [name for each in parts if each is not None for name in _chosen(each)]
    if is_experts or names:
        yield "experts" if is_experts else "linear", "+".join(names) or type(method).__name__


def _chosen(method: Any) -> Iterator[str]:
    for name, value in vars(method).items():
        if value is None or not ("backend" in name or "kernel" in name or name.endswith("linear")):
            continue
        if isinstance(value, Enum):
            yield str(value.name)
        elif type(value).__name__.endswith("Kernel"):
            yield type(value).__name__


def answer(case: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(case["variables"])
    try:
        made = configured(case["words"], construct=case.get("construct", False))
        found = configuration(made) | {"error": None}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its refusal
        return {"error": f"{type(error).__name__}: {error}"[:600]}
    if not case.get("construct"):
        return found
    try:
        return found | {"kernels": constructed(made)}
    except BaseException as error:  # noqa: BLE001 - the same
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames))
        return found | {"unconstructed": f"{type(error).__name__}: {error}"[:300] + f" ({where})"}


if __name__ == "__main__":
    major, minor = map(int, sys.argv[1].split("."))
    declare((major, minor))
    cases = json.loads(Path(sys.argv[2]).read_text())
    load_classes({case["words"][0] for case in cases})
    for case in cases:
        print(json.dumps(declared_torch.in_child(answer, case)), flush=True)
