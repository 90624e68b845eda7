"""Earlier and lower lines decide: killed compilers, stops by a user, skipped imports."""

import pytest

from medley.explain.stops import find_stop
from tests.explain.test_explain import of

KILLED_COMPILERS = """(EngineCore pid=9) INFO 11-21 08:01:33 [runner.py:1] Model loading took 61.2 GiB memory
(EngineCore pid=9) ERROR 11-21 08:05:33 [core.py:1] RuntimeError: Ninja build failed. Ninja output:
[7/31] /usr/local/cuda/bin/nvcc -c gemm_bf16.cu -o gemm_120/gemm_bf16.cuda.o
FAILED: [code={code}] gemm_120/gemm_fp4.cuda.o
/usr/local/cuda/bin/nvcc -c gemm_fp4.cu -o gemm_120/gemm_fp4.cuda.o
ninja: build stopped: subcommand failed.
NVRM: Check failed: Out of memory [NV_ERR_NO_MEMORY] (0x00000051) returned from x @ mem_desc.c:1359
"""


@pytest.mark.parametrize(
    ("code", "expected"), [(137, "compiler-killed"), (-9, "compiler-killed"), (1, "gpu-driver-out-of-memory")]
)
def test_a_killed_compiler_comes_before_the_driver(code: int, expected: str) -> None:
    (found, *_) = of(KILLED_COMPILERS.format(code=code)).problems
    assert found.match.failure.name == expected
    if code != 1:
        assert "MAX_JOBS" in found.problem().fix
        assert "--gpu-memory-utilization" not in found.problem().fix


SKIPPED = "[2026-11-21 08:01:30] Ignore import error when loading sglang.srt.{module}: {reason}\n"
NO_PROCESSOR = "ValueError: No processor registered for architecture: ['Gemma9VForConditionalGeneration'].\n"


@pytest.mark.parametrize(
    ("module", "reason", "expected", "words"),
    [
        (
            "multimodal.processors.gemma9v",
            "Can not import FA3 in sgl_kernel",
            "import-skipped",
            "for this GPU",
        ),
        ("multimodal.processors.gemma9v", "No module named 'timm'", "import-skipped", "timm"),
        (
            "models.zebra",
            "cannot import name 'Z' from 'transformers'",
            "processor-unregistered",
            "newer SGLang",
        ),
    ],
)
def test_a_skipped_import_decides_over_its_consequence(
    module: str, reason: str, expected: str, words: str
) -> None:
    (found, *_) = of(SKIPPED.format(module=module, reason=reason) + NO_PROCESSOR).problems
    assert found.match.failure.name == expected
    assert words in found.problem().fix


def test_all_processors_that_were_skipped_for_one_reason_decide() -> None:
    reason = "undefined symbol: _ZN3c10"
    modules = [f"multimodal.processors.{name}" for name in ("aaaa", "bbbb", "cccc")]
    (found, *_) = of(
        "".join(SKIPPED.format(module=each, reason=reason) for each in modules) + NO_PROCESSOR
    ).problems
    assert found.match.failure.name == "import-skipped"
    assert "3 modules" in found.problem().cause


RANKS = (
    "(Worker pid=21) INFO 11-21 08:01:33 [p.py:1] world_size=2 rank=0 local_rank=0 "
    "distributed_init_method=tcp://{address}:35553 backend=nccl\n"
    "(Worker pid=21) INFO 11-21 08:01:34 [pynccl.py:111] vLLM is using nccl==2.28.9\n"
)
STOP = "waiting for http://localhost:8000/health ... timed out\n$ docker ps -a\nExited (137) 2 minutes ago\n"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("127.0.0.1", "ended-between-gpus"), ("10.0.0.1", "ended-while-connecting")],
)
def test_a_stop_after_a_wait_is_no_lack_of_memory(address: str, expected: str) -> None:
    (found, *_) = of(RANKS.format(address=address) + STOP).problems
    assert found.match.failure.name == expected
    assert "stopped from outside" in found.problem().cause
    assert ("NCCL_P2P_DISABLE=1" in found.problem().fix) == (expected == "ended-between-gpus")


def test_a_kill_without_a_stop_is_one() -> None:
    (found, *_) = of(RANKS.format(address="127.0.0.1") + "Exited (137) 2 minutes ago\n").problems
    assert found.match.failure.name == "killed"


def test_a_failure_without_a_reason_on_one_host_leads_to_its_gpus() -> None:
    error = "RuntimeError: NCCL error: unhandled system error (run with NCCL_DEBUG=INFO for details)\n"
    (one, *_) = of(RANKS.format(address="127.0.0.1") + error).problems
    assert "on one host" in one.problem().fix
    (unclear, *_) = of(RANKS.format(address="10.0.0.1") + error).problems
    assert "on one host" not in unclear.problem().fix


def test_a_rank_s_own_timeout_is_no_stop_from_outside() -> None:
    """The fallback of an engine was reported as a script that stopped it."""
    engine = (
        "(Worker_TP0 pid=26) WARNING 08-13 11:52:00 [x.py:85] [unbound_buffer.cc:129] Timed out waiting 9ms"
    )
    assert find_stop([engine]) is None
    assert find_stop(["Timed out waiting for the server, docker stop vllm"])
