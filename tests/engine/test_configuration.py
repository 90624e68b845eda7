"""vLLM's own configuration classes take the recorded commands, and refuse wrong ones; no GPU is needed.

The environment is that for GPUs, whose release the commands are for; a declared GPU stands in for a real one.
"""

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from medley import config, process
from medley.command import UNSET, Command
from medley.environment import virtualenv
from medley.errors import Problem
from medley.model import demo
from medley.planner.host_order import VARIABLE
from tools.dry_runs import FAMILIES, DryRun, cases, last_step

pytestmark = [pytest.mark.engine, pytest.mark.slow]
PROGRAM = Path(__file__).with_name("configured.py")
LIMIT_S = 1500
# What config.json of each family names, after the classes of transformers 5.19 and vLLM 0.33; with a type of
# its own where the numbers of the language model lie in a table beside those of a vision tower.
TYPES: Mapping[str, tuple[str, str, str | None]] = {
    "glm-5.3-flash": ("glm5_next", "Glm5NextForConditionalGeneration", "glm5_next_text"),
    "glm-5.3": ("glm_moe_dsa", "GlmMoeDsaForCausalLM", None),
    "deepseek-v4-flash": ("deepseek_v4", "DeepseekV4ForCausalLM", None),
    "deepseek-v4.1-flash": ("deepseek_v41", "DeepseekV41ForConditionalGeneration", "deepseek_v41"),
    "qwen3.8-27b": ("qwen3_5", "Qwen3_5ForConditionalGeneration", "qwen3_5_text"),
    "qwen3.8-flash-next": ("qwen4_exp", "Qwen4ExpForConditionalGeneration", "qwen4_exp_text"),
    "qwen3-coder-next": ("qwen3_next", "Qwen3NextForCausalLM", None),
    "minimax-m2.7": ("minimax_m2", "MiniMaxM2ForCausalLM", None),
    "minimax-m3": ("minimax_m3_vl", "MiniMaxM3SparseForConditionalGeneration", "minimax_m3_vl_text"),
    "mimo-v2-flash": ("mimo_v2_flash", "MiMoV2FlashForCausalLM", None),
    "kimi-k3": ("kimi_k3", "KimiK3ForConditionalGeneration", "kimi_linear"),
    "nemotron-3-nano": ("nemotron_h", "NemotronHForCausalLM", None),
}
# Which the parsers of thoughts look up in a tokenizer.
_TOKENS = ("<think>", "</think>", "<mm:think>", "</mm:think>", "<tool_call>", "</tool_call>")
_RAY = ("--distributed-executor-backend", "ray")
_FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
_NVFP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "group_size": 16, "exclude_modules": []}


@dataclass(frozen=True)
class Asked:
    """A command for a model on a GPU; `says` is of its refusal, where it is wrong."""

    model: str
    words: tuple[str, ...]
    capability: str = "12.1"
    variables: tuple[tuple[str, str], ...] = ()
    says: str | None = None

    def table(self, folder: Path) -> dict[str, Any]:
        at = folder / self.model
        at.mkdir(exist_ok=True)
        for name, table in files(self.model).items():
            (at / name).write_text(json.dumps(table))
        numbers = [int(part) for part in self.capability.split(".")]
        variables = dict.fromkeys(VARIABLE.values(), "") | dict(self.variables)
        return {"words": [str(at), *self.words], "capability": numbers, "variables": variables}


WRONG = (
    Asked("deepseek-v4-flash", (*_RAY, "--tensor-parallel-size", "3"), says="divisible"),
    Asked("qwen3.8-flash-next-fp8", (*_RAY, "--pipeline-parallel-size", "2"), says="ipeline"),
    Asked(
        "qwen3-coder-next", ("--tensor-parallel-size", "2"), says="larger than the number of available GPUs"
    ),
    Asked("qwen3.8-27b", ("--max-model-len", "524288"), says="max_model_len"),
    Asked("minimax-m2.7", ("--enable-eplb",), says="expert"),
)


def files(model: str) -> dict[str, dict[str, Any]]:
    """Return config.json, and a tokenizer of bytes with the tokens that parsers look up."""
    size = 512
    tokens = demo.tokenizer(size)
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized", "special"), False)
    added = [{"id": size + at, "content": token, **flags} for at, token in enumerate(_TOKENS)]
    known = tokens.get("added_tokens")
    tokens["added_tokens"] = [*(known if isinstance(known, list) else []), *added]
    kind = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|end|>"}
    return {"config.json": config_json(model), "tokenizer.json": tokens, "tokenizer_config.json": kind}


def config_json(model: str) -> dict[str, Any]:
    """Return a config.json with the numbers of the model's table; the class has what it leaves out."""
    shape = config.models()[model].shape
    assert shape is not None
    family = max((each for each in FAMILIES if model.startswith(each)), key=len)
    kind, architecture, text = TYPES[family]
    numbers: dict[str, Any] = {
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "vocab_size": shape.vocabulary,
        "max_position_embeddings": shape.context,
    }
    if family != "nemotron-3-nano":  # the kinds of its layers count them
        numbers["num_hidden_layers"] = shape.layers
    if family == "qwen3.8-flash-next":
        numbers |= {"ple_layer_ids": [2], "eos_token_id": 2}  # which layers have n-grams changes nothing here
    stored = {"fp8": _FP8, "nvfp4": _NVFP4}.get(shape.weights)
    top: dict[str, Any] = {"model_type": kind, "architectures": [architecture], "dtype": "bfloat16"}
    if stored:
        top["quantization_config"] = stored
    return top | ({"text_config": {"model_type": text, **numbers}} if text else numbers)


def recorded() -> dict[Asked, DryRun]:
    """Return vLLM's commands in the table, each with the first case that has it."""
    found: dict[Asked, DryRun] = {}
    for case in (each for each in cases() if each.engine == "vllm"):
        try:
            step = last_step(case)
        except Problem:
            continue
        made = step.starts.command
        cut = tuple((name, made.env[name]) for name in VARIABLE.values() if name in made.env)
        at = config.hosts()[step.host.rpartition("-")[0]].capability or "12.0"
        found.setdefault(Asked(case.model, tuple(made.argv[3:]), at, cut), case)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a libcuda.so.1 that has no function."""
    made = tmp_path_factory.mktemp("configured")
    compiler = shutil.which("cc")
    if compiler is None:
        pytest.skip("needs a C compiler, for a libcuda.so.1 where there is no driver")
    source = made / "libcuda.c"
    source.touch()
    words = (compiler, "-shared", "-Wl,-soname,libcuda.so.1", "-o", str(made / "libcuda.so.1"), str(source))
    assert process.run(Command(words), limit_s=60).status == 0
    return made


def answers(asked: Sequence[Asked], folder: Path) -> list[dict[str, Any]]:
    built = virtualenv.find("vllm-cuda")
    if built is None:
        pytest.skip("vllm-cuda is not built here: medley env build vllm-cuda (10 GB)")
    file = folder / "cases.json"
    file.write_text(json.dumps([each.table(folder) for each in asked]))
    env = {"LD_LIBRARY_PATH": str(folder), "HF_HUB_OFFLINE": "1", "VLLM_CACHE_ROOT": str(folder / "cache")}
    lines: list[str] = []
    argv = (str(built.python), str(PROGRAM), str(file))
    finished = process.run(Command(argv, env, UNSET), limit_s=LIMIT_S, on_line=lines.append)
    found = next((line for line in reversed(lines) if line.startswith("[{")), None)
    assert finished.status == 0, lines[-20:]
    assert found is not None, lines[-20:]
    answered: list[dict[str, Any]] = json.loads(found)
    return answered


def test_vllm_is_configured_by_every_recorded_command_and_by_no_wrong_one(folder: Path) -> None:
    made = recorded()
    assert len(made) >= 30
    asked = [*made, *WRONG]
    wrong = {}
    for one, answer in zip(asked, answers(asked, folder), strict=True):
        error = answer["error"]
        if one.says is not None:
            right = one.says in (error or "")
        else:
            over_ray = "--distributed-executor-backend" in one.words
            longest = config.models()[one.model].shape
            at = (answer.get("ranks"), answer.get("launcher") == "ray", answer.get("context"))
            right = at == (ranks(one.words), over_ray, longest and longest.context)
            # DeepSeek V4's layers choose theirs by themselves.
            right = right and bool(answer["attention"] or one.model.startswith("deepseek-v4"))
        if not right:
            wrong[str(made.get(one, one))] = answer
    assert not wrong


def test_a_table_names_the_capabilities_that_have_an_attention_backend(folder: Path) -> None:
    """Of an Orin, a Thor, an RTX and a Spark; other GPUs' backends want to see one when they are imported."""
    gpus = ("8.7", "11.0", "12.0", "12.1")
    kv_types = {"glm-5.3": "fp8", "glm-5.3-flash-nvfp4": "auto"}
    asked = [
        Asked(model, (*_RAY, "--tensor-parallel-size", "2", "--kv-cache-dtype", kv_type), gpu)
        for model, kv_type in kv_types.items()
        for gpu in gpus
    ]
    for one, answer in zip(asked, answers(asked, folder), strict=True):
        shape = config.models()[one.model].shape
        assert shape
        known = one.capability.partition(".")[0] in shape.capabilities.vllm
        assert bool(answer["attention"]) == known, (one, answer)


def ranks(words: Sequence[str]) -> int:
    sizes = dict(pairwise(words))
    return int(sizes.get("--tensor-parallel-size", 1)) * int(sizes.get("--pipeline-parallel-size", 1))
