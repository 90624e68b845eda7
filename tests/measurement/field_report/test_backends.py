"""Backends and kernels in the logs of engines, each with its line."""

from pathlib import Path

from medley.measurement.field_report.backends import find_backends

LOGS = Path(__file__).parents[2] / "logs" / "healthy"
# As vLLM 0.32.0 and NCCL format them; no such log was recorded here.
CUDA = """\
INFO 11-24 [cuda.py:506] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].
INFO 11-24 [mxfp4.py:242] Using 'MARLIN' Mxfp4 MoE backend out of potential backends: ['MARLIN', 'TRITON'].
INFO 11-24 [nvfp4.py:242] Using 'FLASHINFER_CUTLASS' NvFp4 MoE backend out of potential backends: [].
INFO 11-24 [__init__.py:759] Selected CutlassFP8ScaledMMLinearKernel for ModelOptFp8LinearMethod
INFO 11-24 [__init__.py:1240] Using FlashInferCutlassNvFp4LinearKernel for NVFP4 GEMM
INFO 11-24 [cache.py:355] Using fp8 data type to store kv cache. It reduces the GPU memory footprint
INFO 11-24 [pynccl.py:148] vLLM is using nccl==2.30.7
spark-1:2301:2301 [0] NCCL INFO NET/IB : Using [0]rocep1s0f0:1/RoCE [RO]; OOB enp1s0f0np0:192.168.100.11<0>
spark-1:2301:2301 [0] NCCL INFO Using network IB
spark-1:2301:2399 [0] NCCL INFO Channel 00/0 : 1[0] -> 0[0] [receive] via NET/IB/0
INFO 11-24 [monitor.py:80] torch.compile took 21.40 s in total
INFO 11-24 [gpu_model_runner.py:6582] Graph capturing finished in 12 secs, took 0.61 GiB
INFO 11-24 [cuda.py:506] Using FLASH_ATTN attention backend out of potential backends: ['FLASH_ATTN'].
"""


def list_backends(engine: str, text: str) -> list[tuple[str, str, int]]:
    lines = text.splitlines()
    return [(each.what, each.found, each.line) for each in find_backends(engine, lines, str)]  # type: ignore[arg-type]


def test_a_gpu() -> None:
    assert list_backends("vllm", CUDA) == [
        ("attention", "FLASH_ATTN", 1),
        ("experts", "MARLIN", 2),
        ("experts", "FLASHINFER_CUTLASS", 3),
        ("matrix products", "CutlassFP8ScaledMMLinearKernel", 4),
        ("matrix products", "FlashInferCutlassNvFp4LinearKernel", 5),
        ("KV cache", "fp8", 6),
        ("NCCL", "2.30.7", 7),
        ("NCCL transport", "NET/IB", 8),
        ("NCCL transport", "IB", 9),
        ("NCCL transport", "NET/IB/0", 10),
        ("compile", "took 21.40 s", 11),
        ("CUDA graphs", "Graph capturing finished", 12),
    ]


def test_recorded_logs_of_cpus() -> None:
    vllm = {each[:2] for each in list_backends("vllm", (LOGS / "vllm.txt").read_text())}
    assert {("CUDA graphs", "Enforce eager set"), ("collectives", "gloo")} <= vllm
    sglang = {each[:2] for each in list_backends("sglang", (LOGS / "sglang.txt").read_text())}
    assert {
        ("attention", "torch_native"),
        ("KV cache", "auto"),
        ("CUDA graphs", "Disable prefill CUDA graph"),
    } <= sglang


def test_the_line_is_redacted_and_short() -> None:
    """Names that its beginning and its end would cut are recognized before that."""
    line = f"ann-secret{'x' * 75} vLLM is using nccl==2.30.7 at ann {'y' * 183} ann-secret {'z' * 900}"
    (backend,) = find_backends(
        "vllm", [line], lambda text: text.replace("ann-secret", "").replace("ann", "N")
    )
    assert " at N " in backend.text
    assert "ann" not in backend.text
    assert "cret" not in backend.text
    assert len(backend.text) < 310
