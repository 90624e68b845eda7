"""Let SGLang's server arguments resolve commands on a declared GPU; run by its own Python.

    LD_LIBRARY_PATH=FOLDER python declared_sglang.py 12.1 FILE

FILE holds a JSON list of tables: `words` of the command and `variables`. FOLDER has a libcuda.so.1 without a
function. For each command a child of this process resolves `ServerArgs`, as the server does before it loads a
model: attention, experts and matrix kernels, page size, memory. A line of JSON is printed for each.
"""

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

import declared_torch

_IMPORTS = (
    "server_args",
    "arg_groups.pipeline",
    "configs.model_config",
    "layers.quantization",
    "models.registry",
)
# The field of the server's arguments that decides a layer's kernel; the first that is set counts.
_ATTENTION = {
    "attention": ("decode_attention_backend", "attention_backend"),
    "prefill": ("prefill_attention_backend", "attention_backend"),
    "sparse": ("dsa_decode_backend",),
}
# What experts take where the arguments leave `auto`, by quant_method of config.json: create_moe_runner in
# layers/quantization/{unquant,fp8,modelopt_quant}.py, awq/ and compressed_tensors/ of SGLang 0.5.23.
_EXPERTS = {
    None: "triton",
    "fp8": "triton",
    "modelopt": "flashinfer_trtllm",
    "compressed-tensors": "flashinfer_cutlass",
    "awq": "marlin",
}


def declare(capability: tuple[int, int]) -> None:
    sys.setdlopenflags(
        os.RTLD_LAZY
    )  # the extensions' symbols of CUDA are looked up when they are called: never
    os.environ |= {"HF_HUB_OFFLINE": "1"}
    declared_torch.declare(capability)
    for name in _IMPORTS:
        importlib.import_module(f"sglang.srt.{name}")
    import sglang.srt.server_args
    from sglang.srt import utils

    sglang.srt.server_args.get_device_memory_capacity = lambda *_: declared_torch.MEMORY_BYTES >> 20
    utils.get_nvgpu_memory_capacity = lambda *_: declared_torch.MEMORY_BYTES >> 20


def answer(case: dict[str, Any]) -> dict[str, Any]:
    os.environ.update(case["variables"])
    try:
        return {"error": None, "kernels": chosen(case["words"])}
    except BaseException as error:  # noqa: BLE001 - whatever it raises is its refusal
        frames = traceback.extract_tb(error.__traceback__)[-3:]
        where = " < ".join(f"{Path(each.filename).name}:{each.lineno}" for each in reversed(frames))
        return {"error": f"{type(error).__name__}: {error}"[:600] + f" ({where})"}


def chosen(words: list[str]) -> dict[str, list[str]]:
    """Return the kernels of each kind of layer, as the arguments resolve and the scheduler begins."""
    from sglang.srt.layers.quantization import fp4_utils, fp8_utils
    from sglang.srt.server_args import prepare_server_args, set_global_server_args_for_scheduler

    made = prepare_server_args(words)
    made.resolve_once()
    values = made.resolved_dict()
    set_global_server_args_for_scheduler(made)
    fp8_utils.initialize_fp8_gemm_config()
    fp4_utils.initialize_fp4_gemm_config()
    table = json.loads((Path(values["model_path"]) / "config.json").read_text())
    method = table.get("quantization_config", {}).get("quant_method")
    found = {
        layer: next((str(values[name]) for name in names if values.get(name) is not None), None)
        for layer, names in _ATTENTION.items()
    }
    if has_experts(table):
        runner = str(values["moe_runner_backend"])
        found["experts"] = _EXPERTS[method] if runner == "auto" else runner
    if method == "fp8":
        found["linear"] = str(fp8_utils.get_fp8_gemm_runner_backend().value)
    if method in {"modelopt", "compressed-tensors"}:
        found["linear"] = str(fp4_utils.get_fp4_gemm_runner_backend().value)
    return {layer: [name] for layer, name in found.items() if name is not None}


def has_experts(table: dict[str, Any]) -> bool:
    return "num_experts_per_tok" in table.get("text_config", table)


if __name__ == "__main__":
    major, minor = map(int, sys.argv[1].split("."))
    declare((major, minor))
    for each in json.loads(Path(sys.argv[2]).read_text()):
        print(json.dumps(declared_torch.in_child(answer, each)), flush=True)
