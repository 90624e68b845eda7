"""Earlier and lower lines decide: killed compilers, stops by a user, skipped imports."""

import pytest

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
