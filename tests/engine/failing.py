"""Run by an engine environment's Python: makes failures, and prints each as its program prints it.

python failing.py MODEL FOLDER    # MODEL: a folder with a whole model; FOLDER: an empty one, to write in
Each begins with a line `=== NAME`.
"""

import contextlib
import importlib
import json
import os
import resource
import shutil
import socket
import sys
import time
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

MODEL, FOLDER = Path(sys.argv[1]), Path(sys.argv[2])


def configured(model: object = MODEL, **settings: Any) -> None:
    from vllm.engine.arg_utils import EngineArgs

    EngineArgs(model=str(model), **settings).create_engine_config()


def changed(name: str, **config: Any) -> Path:
    """The model with another config.json."""
    folder = FOLDER / name
    shutil.copytree(MODEL, folder)
    file = folder / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **config}))
    return folder


def typed(*words: str) -> None:
    from vllm.entrypoints.launchers.cli_args import make_arg_parser, validate_parsed_serve_args
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    validate_parsed_serve_args(make_arg_parser(FlexibleArgumentParser(prog="vllm serve")).parse_args(words))


def parser_unknown() -> None:
    from vllm.entrypoints.launchers import launcher

    asked = SimpleNamespace(enable_auto_tool_choice=True, tool_call_parser="hermess", reasoning_parser="")
    launcher.validate_api_server_args(asked)


def config_missing() -> None:
    (FOLDER / "empty").mkdir()
    configured(FOLDER / "empty")


def config_broken() -> None:
    folder = changed("broken")
    (folder / "config.json").write_text('{"architectures": [')
    from transformers import AutoConfig

    AutoConfig.from_pretrained(folder)


def remote_code() -> None:
    folder = changed("remote", model_type="odd", auto_map={"AutoConfig": "configuration_odd.OddConfig"})
    (folder / "configuration_odd.py").write_text("from transformers import PretrainedConfig as OddConfig\n")
    configured(folder)


def layers_partition() -> None:
    from vllm.distributed.utils import get_pp_indices

    os.environ["VLLM_PP_LAYER_PARTITION"] = "2,5"
    try:
        get_pp_indices(6, 0, 2)
    finally:
        del os.environ["VLLM_PP_LAYER_PARTITION"]


def kv_cache(free: int) -> None:
    from vllm.v1.core.kv_cache_utils import _check_enough_kv_cache_memory

    _check_enough_kv_cache_memory(free, lambda: 16 << 30, 131_072, lambda _: 26_208)


def weights_broken() -> None:
    from safetensors import safe_open

    whole = next(MODEL.glob("*.safetensors")).read_bytes()
    file = FOLDER / "cut.safetensors"
    file.write_bytes(whole[: len(whole) // 2])
    with safe_open(file, "pt") as opened:
        opened.keys()


def weights_missing() -> None:
    from vllm.config.load import LoadConfig
    from vllm.model_executor.model_loader.default_loader import DefaultModelLoader

    (FOLDER / "none").mkdir()
    loader = DefaultModelLoader(LoadConfig())
    loader._prepare_weights(  # noqa: SLF001 - what loading a model begins with
        str(FOLDER / "none"), None, None, fall_back_to_pt=True, allow_patterns_overrides=None
    )


def on_a_gpu() -> None:
    import torch

    torch.zeros(1, device="cuda")


def too_much() -> None:
    import torch

    torch.empty(1 << 50, dtype=torch.uint8)


def store(*, port: int, master: bool) -> Any:
    from torch.distributed import TCPStore

    return TCPStore("127.0.0.1", port, 1, is_master=master, timeout=timedelta(seconds=1))


def rendezvous_port() -> None:
    with taken() as port:
        store(port=port, master=True)


def gloo_interface() -> None:
    import torch.distributed as ranks

    os.environ["GLOO_SOCKET_IFNAME"] = "eth99"
    try:
        ranks.init_process_group("gloo", store=store(port=0, master=True), rank=0, world_size=2)
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]


@contextlib.contextmanager
def taken() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def port_taken() -> None:
    with taken() as port:
        socket.create_server(("127.0.0.1", port))


def files_open() -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        Path("/dev/null").open()  # noqa: SIM115 - it cannot be opened
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def disk_full() -> None:
    with Path("/dev/full").open("w") as file:
        file.write("x" * 100_000)


FAILURES: dict[str, Callable[[], object]] = {
    "context-too-long": lambda: configured(max_model_len=1_000_000),
    "heads-indivisible": lambda: configured(tensor_parallel_size=3, distributed_executor_backend="mp"),
    "quantization-unknown": lambda: configured(quantization="awqq"),
    "quantization-differs": lambda: configured(
        changed("gptq", quantization_config={"quant_method": "gptq", "bits": 4, "group_size": 128}),
        quantization="fp8",
    ),
    "architecture-unknown": lambda: configured(changed("odd", architectures=["OddForCausalLM"])),
    "remote-code": remote_code,
    "config-missing": config_missing,
    "config-broken": config_broken,
    "hub-name": lambda: configured("/nonexistent/model/folder"),
    "hub-offline": lambda: configured("nobody/has-this"),
    "flag-value": lambda: configured(dtype="float99"),
    "ray-nodes-flag": lambda: configured(
        nnodes=2, pipeline_parallel_size=2, distributed_executor_backend="ray"
    ),
    "flag-unknown": lambda: typed("--swap-room", "0"),
    "flag-removed": lambda: typed("--swap-space", "0"),
    "parser-unknown": parser_unknown,
    "tool-parser-missing": lambda: typed("--model", str(MODEL), "--enable-auto-tool-choice"),
    "layers-partition": layers_partition,
    "kv-cache-small": lambda: kv_cache(3 << 30),
    "kv-cache-none": lambda: kv_cache(0),
    "weights-broken": weights_broken,
    "weights-missing": weights_missing,
    "torch-without-cuda": on_a_gpu,
    "memory-not-given": too_much,
    "rendezvous-timeout": lambda: store(port=1, master=False),
    "rendezvous-port": rendezvous_port,
    "gloo-interface": gloo_interface,
    "port-taken": port_taken,
    "files-open": files_open,
    "disk-full": disk_full,
    "module-missing": lambda: importlib.import_module("flash_attn_99"),
    "name-unknown": lambda: socket.create_connection(("spark-9.invalid", 22)),
}


def main() -> None:
    for name, fail in FAILURES.items():
        print(f"=== {name}", flush=True)
        began = time.monotonic()
        try:
            fail()
        except SystemExit:
            pass  # argparse has said it
        except BaseException:  # noqa: BLE001 - each is printed, as it is what we are after
            traceback.print_exc(file=sys.stdout)
        print(f"--- {time.monotonic() - began:.1f} s", flush=True)


main()
