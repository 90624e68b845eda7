"""The recorded kernels are of every command that the parsers took, and each has code for its GPU."""

import re

import pytest

from benchmarks import dry_runs, kernel_choice, model_configs
from medley import config
from medley.schema import EngineName

# Two need pinned memory for their n-gram table, which only a driver gives; one needs more of its config.json.
NOT_CONFIGURED = {
    ("qwen3.8-flash-next-fp8", "vllm"),
    ("qwen3.8-flash-next-nvfp4", "vllm"),
    ("deepseek-v4.1-flash", "vllm"),
}
KERNELS = kernel_choice.RESULT.read_text(encoding="utf-8")


def test_every_command_has_kernels() -> None:
    lines = dry_runs.RESULT.read_text(encoding="utf-8").splitlines()
    columns = [tuple(each.split()) for each in re.findall(r"\S+ (?:vllm|sglang)", lines[2])]
    expected = {
        (model, engine, f"{kind}:{hosts}")
        for model, *cells in (line.split() for line in lines[3:] if line and "commands" not in line)
        for (kind, engine), hosts in zip(columns, cells, strict=True)
        if hosts.isdigit()
    }
    assert len(expected) > 150
    assert set(recorded()) == expected


def test_each_kernel_has_code() -> None:
    assert "NO CODE" not in "".join(KERNELS.splitlines()[2:])
    assert {(model, engine) for model, engine, _ in recorded(" +ERROR ")} == NOT_CONFIGURED
    assert "  ?" not in KERNELS


def recorded(after: str = " ") -> list[tuple[str, str, str]]:
    """Return model, engine and hosts of each command with this pattern after its hosts."""
    found, model, engine = [], "", ""
    for line in KERNELS.splitlines():
        if head := re.fullmatch(r"(\S+), (vllm|sglang)", line):
            model, engine = head.groups()
        elif at := re.match(rf"  (\S+:\d+){after}", line):
            found.append((model, engine, at[1]))
    return found


@pytest.mark.parametrize(
    ("choice", "capability", "engine", "where"),
    [
        ("FLASHINFER_TRTLLM", "12.1", "vllm", "NO CODE"),
        ("flashinfer_trtllm", "11.0", "sglang", "NO CODE"),
        ("trtllm_mha", "12.0", "sglang", "NO CODE"),
        ("FlashAttentionBackend", "8.7", "vllm", "wheel, FA2"),
        ("FlashAttentionBackend", "11.0", "vllm", "wheel, FA2: PTX 8.0"),
        ("MARLIN", "11.0", "vllm", "wheel, _moe_C"),
        ("flashinfer_cutlass", "12.1", "sglang", "compiled by FlashInfer"),
        ("a kernel that nobody knows", "12.1", "vllm", "?"),
    ],
)
def test_origin(choice: str, capability: str, engine: EngineName, where: str) -> None:
    assert kernel_choice.origin(choice, capability, engine) == where


def test_every_table_has_a_configuration() -> None:
    for name, table in config.load_models().items():
        if table.shape:
            made = model_configs.config_json(name)
            assert made["model_type"] == table.architecture
            assert ("quantization_config" in made) == (table.shape.weights != "bf16")
