"""Run by the Python of vllm-cuda on a host without a GPU: vLLM's configuration of commands, or its refusal.

    LD_LIBRARY_PATH=FOLDER python configured.py FILE

FILE holds a JSON list of tables: `words` after `vllm serve`, `capability` of the declared GPU, `variables`.
FOLDER has a libcuda.so.1 without a function: vLLM's extensions are loaded, none of their code runs. Prints a
JSON list: what each command comes to, or the error.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

sys.setdlopenflags(os.RTLD_LAZY)  # the extensions' symbols of CUDA are looked up when they are called: never
import vllm.platforms  # noqa: E402 - after the flags
from vllm.platforms.cuda import CudaPlatformBase  # noqa: E402 - the same
from vllm.platforms.interface import DeviceCapability  # noqa: E402 - the same


class DeclaredGpu(CudaPlatformBase):  # type: ignore[misc] # vLLM is not installed where this is checked
    """One integrated GPU of 119 GiB, whose capability each command declares."""

    capability = (12, 1)

    @classmethod
    def get_device_capability(cls, *_: Any, **__: Any) -> Any:
        return DeviceCapability(*cls.capability)

    @classmethod
    def get_device_name(cls, *_: Any, **__: Any) -> str:
        return "declared"

    @classmethod
    def get_device_total_memory(cls, *_: Any, **__: Any) -> int:
        return 119 << 30

    @classmethod
    def device_count(cls) -> int:
        return 1

    @classmethod
    def num_compute_units(cls, *_: Any, **__: Any) -> int:
        return 48

    @classmethod
    def is_integrated_gpu(cls, *_: Any, **__: Any) -> bool:
        return True

    @classmethod
    def is_fully_connected(cls, *_: Any, **__: Any) -> bool:
        return False


vllm.platforms.current_platform = DeclaredGpu()
from vllm.config import set_current_vllm_config  # noqa: E402 - after the platform is declared
from vllm.engine.arg_utils import AsyncEngineArgs  # noqa: E402 - the same
from vllm.entrypoints.common.cli_args import make_arg_parser  # noqa: E402 - the same
from vllm.model_executor.models import registry  # noqa: E402 - the same
from vllm.utils.argparse_utils import FlexibleArgumentParser  # noqa: E402 - the same
from vllm.v1.attention.selector import AttentionSelectorConfig  # noqa: E402 - the same

# Each model's class would be looked at in a Python of its own, which imports vLLM again.
registry._run_in_subprocess = lambda function: function()  # noqa: SLF001 - there is no switch for it


def configured(parser: Any, case: dict[str, Any]) -> dict[str, Any]:
    DeclaredGpu.capability = tuple(case["capability"])
    os.environ.update(case["variables"])
    args = parser.parse_args(case["words"])
    args.model = args.model_tag
    try:
        made = AsyncEngineArgs.from_cli_args(args).create_engine_config()
    except Exception as error:  # noqa: BLE001 - whatever it raises is its refusal
        return {"error": f"{type(error).__name__}: {error}"[:600]}
    parallel, cache = made.parallel_config, made.cache_config
    return {
        "architecture": made.model_config.architecture,
        "context": made.model_config.max_model_len,
        "ranks": parallel.world_size,
        "launcher": str(parallel.distributed_executor_backend),
        "kv_type": str(cache.cache_dtype),
        "sequences": made.scheduler_config.max_num_seqs,
        "attention": attention(made),
        "error": None,
    }


def attention(made: Any) -> list[str]:
    """Return the backends that vLLM's platform finds for the attention of the model on the declared GPU."""
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
        found, _ = DeclaredGpu.get_valid_backends(DeclaredGpu.get_device_capability(), asked, num_heads=heads)
    return [each.backend.name for each in found]


if __name__ == "__main__":
    made = make_arg_parser(FlexibleArgumentParser(prog="vllm serve"))
    cases = json.loads(Path(sys.argv[1]).read_text())
    print(json.dumps([configured(made, case) for case in cases]), flush=True)
