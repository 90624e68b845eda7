"""Run by an engine environment's Python: print what KV cache vLLM itself allocates for models, as JSON.

    python kv_spec.py FOLDER...      python kv_spec.py --unsplit   which models no pipeline can split

For each folder (config.json is enough) a child process builds the engine's configuration and constructs the
model on PyTorch's meta device: it has no weights, and nothing runs. Each attention and state layer is then
asked for its `get_kv_cache_spec`. Printed is a line for each folder: {"model", "layers": [...], "config"} or
{"model", "error", "where"}; the configuration is the file's with what its class adds.

Changed in the engine, here only, because none of it decides how large a cache is:
- This process inspects a model's class itself: `_LazyRegisteredModel.inspect_model_cls` would start a Python
  for each architecture.
- The CPU has no backend for sparse attention. FlashMLA's sparse backend stands in: get_kv_cache_spec asks it
  for the layout of a page only, and its kernels are never called.
- Experts without a gate are refused on a CPU: the check of `FusedMoEConfig` finds another platform, and
  where no kernel for experts is found, the CPU's stands in.
- Streams and events of CUDA are empty stand-ins too, and Qwen 4 is told that there is FlashAttention.
- DeepSeek V4.1 finds a capability of 12.1 where it chooses how its kernel multiplies, and has the pages that
  GPUs' backends prefer (sparse_swa.py) instead of the CPU's.
- Names of libraries that modules import but the CPU environment lacks (`LACKING`) are empty stand-ins, and a
  sparse backend reserves no workspace.
- A model_type that only a repository's own code knows is read as a plain configuration.
- A CPU with bfloat16 instructions keeps a recurrent state in 32 bits (`platforms/cpu.py`), a GPU does not:
  this process says it has none.
"""

import importlib.abc
import importlib.machinery
import json
import os
import select
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

LIMIT_S = 120
# torchvision for images, the others for kernels.
LACKING = {"torchvision", "cutlass", "quack", "cuda", "tilelang"}
# Frames of the engine that an error names.
_FRAMES = 2


def spec_of(spec: Any) -> dict[str, Any]:
    """The fields of a layer's spec; `bytes` is a page without what pads it to another layer's."""
    unpadded = spec.real_page_size_bytes if hasattr(spec, "real_page_size_bytes") else spec.page_size_bytes
    names = (
        "num_kv_heads",
        "head_size",
        "head_size_v",
        "sliding_window",
        "attention_chunk_size",
        "cache_dtype_str",
    )
    found = {name: getattr(spec, name) for name in names if getattr(spec, name, None) is not None}
    role = getattr(spec, "cache_role", None)
    return found | {
        "spec": type(spec).__name__,
        "page_size_bytes": spec.page_size_bytes,
        "bytes": unpadded,
        "block_size": spec.block_size,
        "tokens_per_state": str(getattr(spec, "tokens_per_state", 1)),
        "dtype": [str(each) for each in getattr(spec, "dtypes", None) or [getattr(spec, "dtype", None)]],
        "role": role.value if role else None,
    }


def specs(folder: str, device: str) -> dict[str, Any]:
    """Each layer that keeps something, as the engine constructs them, and the whole configuration."""
    import torch
    from vllm.config import set_current_vllm_config
    from vllm.distributed import init_distributed_environment, initialize_model_parallel
    from vllm.engine.arg_utils import EngineArgs
    from vllm.model_executor.model_loader.utils import initialize_model
    from vllm.utils.torch_utils import set_default_torch_dtype
    from vllm.v1.worker.gpu.attn_utils import get_kv_cache_spec
    from vllm.v1.worker.workspace import init_workspace_manager

    _readable(Path(folder))
    arguments = EngineArgs(
        model=folder,
        load_format="dummy",
        enforce_eager=True,
        dtype="bfloat16",
        skip_tokenizer_init=True,
        language_model_only=True,
        enable_prefix_caching=False,
        max_num_seqs=4,
        kv_cache_memory_bytes=2**28,
    )
    config = arguments.create_engine_config()
    if config.model_config.hf_text_config.model_type == "deepseek_v41":
        config.cache_config.block_size = 256
    with set_current_vllm_config(config), tempfile.TemporaryDirectory() as meeting:
        init_distributed_environment(1, 0, f"file://{meeting}/point", 0, "gloo")
        initialize_model_parallel()
        init_workspace_manager(torch.device(device))
        whole = json.loads(config.model_config.hf_config.to_json_string(use_diff=False))
        with set_default_torch_dtype(torch.bfloat16), torch.device(device):
            initialize_model(config)
        found = get_kv_cache_spec(config)
    layers = [{"layer": name} | spec_of(spec) for name, spec in found.items()]
    return {"layers": layers, "config": whole}


def _readable(folder: Path) -> None:
    """Let transformers read a model_type that it does not know."""
    from transformers import CONFIG_MAPPING, AutoConfig, PretrainedConfig
    from vllm.transformers_utils.config import _CONFIG_REGISTRY

    table = json.loads((folder / "config.json").read_text())
    for inner in (table, table.get("text_config") or table):
        name = inner["model_type"]
        if name not in CONFIG_MAPPING and name not in _CONFIG_REGISTRY:
            AutoConfig.register(name, type(name, (PretrainedConfig,), {"model_type": name}))


def prepare() -> None:
    """Import the engine once for all models, and change what the module's docstring says."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "VLLM_LOGGING_LEVEL": "ERROR", "VLLM_NO_USAGE_STATS": "1"}
    import torch
    from transformers.utils import is_torchvision_available

    # It remembers the answer, and so reads no stand-in.
    assert not is_torchvision_available()
    sys.meta_path.append(StandIns())
    from vllm.model_executor.layers.fused_moe import config
    from vllm.model_executor.models import registry
    from vllm.triton_utils import triton
    from vllm.v1.worker.workspace import WorkspaceManager

    torch.set_num_threads(1)
    torch.cuda.Stream, torch.cuda.Event = _stand_in("Stream"), _stand_in("Event")
    from vllm.models.qwen4_exp.nvidia.model import Qwen4ExpQSAAttention

    torch.cpu._is_avx512_bf16_supported = lambda: False  # noqa: SLF001 - there is no public name
    lazy = registry._LazyRegisteredModel  # noqa: SLF001 - the engine has no switch for it
    lazy.inspect_model_cls = lambda self: registry._ModelInfo.from_model_cls(self.load_model_cls())  # noqa: SLF001
    config.current_platform = Elsewhere(config.current_platform)
    triton.set_allocator = lambda _: None
    WorkspaceManager.get_simultaneous = lambda *_: []
    qsa = sys.modules[Qwen4ExpQSAAttention.__module__]
    vars(qsa)["is_flash_attn_varlen_func_available"] = lambda: True
    from vllm.models.deepseek_v4.nvidia.ops import o_proj

    o_proj.current_platform = Elsewhere(o_proj.current_platform)
    _sparse_backend()
    _experts_backend()
    import vllm.engine.arg_utils
    import vllm.model_executor.model_loader.utils
    import vllm.v1.worker.gpu.attn_utils  # noqa: F401 - the children find it imported


class Elsewhere:
    """The platform as it is, with kernels for experts without a gate, and the capability of a Spark."""

    def __init__(self, platform: Any) -> None:
        self.platform = platform

    def __getattr__(self, name: str) -> Any:
        return (lambda: True) if name == "is_xpu" else getattr(self.platform, name)

    def get_device_capability(self, *_: Any) -> Any:
        from vllm.platforms.interface import DeviceCapability

        return DeviceCapability(12, 1)


class StandIns(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """The modules of `LACKING`, whose every name is a class without contents."""

    def find_spec(self, fullname: str, *_: Any) -> Any:
        if fullname.partition(".")[0] not in LACKING:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True)

    def exec_module(self, module: Any) -> None:
        module.__getattr__ = _stand_in


class Named(type):
    """A class whose every attribute is such a class, and which decorates by leaving a function as it is."""

    def __getattr__(cls, name: str) -> type:
        return _stand_in(name)

    def __getitem__(cls, _: Any) -> type:
        return cls

    def __call__(cls, *values: Any, **_: Any) -> Any:
        return values[0] if len(values) == 1 and callable(values[0]) else cls


def _stand_in(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return Named(name, (), {})


def _sparse_backend() -> None:
    from vllm.platforms.cpu import CpuPlatform
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    chosen = CpuPlatform.get_attn_backend_cls.__func__

    def choose(cls: Any, selected: Any, attn_selector_config: Any, num_heads: int | None = None) -> str:
        if attn_selector_config.use_sparse:
            return str(AttentionBackendEnum.FLASHMLA_SPARSE.get_path())
        return str(chosen(cls, selected, attn_selector_config, num_heads))

    CpuPlatform.get_attn_backend_cls = classmethod(choose)


def _experts_backend() -> None:
    from vllm.model_executor.layers.fused_moe import unquantized_fused_moe_method as method
    from vllm.model_executor.layers.fused_moe.oracle import unquantized

    chosen = method.select_unquantized_moe_backend

    def choose(moe_config: Any) -> tuple[Any, Any]:
        try:
            found: tuple[Any, Any] = chosen(moe_config=moe_config)
        except NotImplementedError:
            backend = unquantized.UnquantizedMoeBackend.CPU
            return backend, unquantized.backend_to_kernel_cls(backend)[0]
        return found

    method.select_unquantized_moe_backend = choose


def told(folder: str, device: str) -> dict[str, Any]:
    try:
        return specs(folder, device)
    except BaseException as error:  # noqa: BLE001 - whatever ends a child is its answer
        frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
        where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames))
        return {"error": f"{type(error).__name__}: {str(error)[:300]}", "where": where}


def in_child(folder: str, device: str = "meta") -> dict[str, Any]:
    """Ask in a child of this process, whose engine is untouched by the models before."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        os.dup2(2, 1)
        with os.fdopen(writing, "w") as answer:
            json.dump(told(folder, device), answer)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as answer:
        ready, _, _ = select.select([answer], [], [], LIMIT_S)
        if not ready:
            os.kill(child, signal.SIGKILL)
        text = answer.read()
    os.waitpid(child, 0)
    if not text:
        return {"error": f"no answer in {LIMIT_S} s" if not ready else "the child died"}
    found: dict[str, Any] = json.loads(text)
    return found


def asked(folder: str) -> dict[str, Any]:
    """The meta device knows no values: a model that computes with some is constructed in memory instead."""
    found = in_child(folder)
    return in_child(folder, "cpu") if "meta tensor" in found.get("error", "") else found


def unsplit() -> list[str]:
    """The architectures of the registry that generate text and that no pipeline can split."""
    from vllm.model_executor.models import registry

    known = {**registry._TEXT_GENERATION_MODELS, **registry._MULTIMODAL_MODELS}  # noqa: SLF001 - no public name
    found = []
    for name in known:
        try:
            model = registry.ModelRegistry.models[name].inspect_model_cls()
        except (ImportError, KeyError):
            continue
        if not model.supports_pp:
            found.append(name)
    return found


if __name__ == "__main__":
    prepare()
    if sys.argv[1:] == ["--unsplit"]:
        print(json.dumps(unsplit()))
        raise SystemExit
    for each in sys.argv[1:]:
        print(json.dumps({"model": Path(each).name} | asked(each)), flush=True)
