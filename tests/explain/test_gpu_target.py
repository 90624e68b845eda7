"""The architecture that a compiler refuses is compared with the GPU of the log."""

import pytest

from medley.explain.gpu_target import compare_target
from tests.explain.test_explain import of

REFUSAL = "nvcc fatal   : Unsupported gpu architecture '{}'"
OLD_ORIN = "│ L4T_VERSION   36.4    │ JETPACK_VERSION  6.2   │\n"


@pytest.mark.parametrize(
    ("architecture", "figures", "own", "other"),
    [
        ("compute_121a", {"gpu_capability": "12.1"}, "sm_121", None),
        ("compute_120f", {"gpu_capability": "12.1"}, "sm_121", None),
        ("compute_120a", {"gpu_capability": "12.1"}, None, "sm_121"),
        ("compute_100a", {"host_l4t": "36.4"}, None, "sm_87"),
        ("compute_101", {"gpu_capability": "11.0"}, "sm_110", None),
        ("compute_70", {"gpu_capability": "7.0"}, None, None),
        ("compute_121a", {"host_l4t": "38.2"}, None, None),
        ("compute_121a", {}, None, None),
    ],
)
def test_it_is_the_gpus_own_or_another_ones(
    architecture: str, figures: dict[str, str], own: str | None, other: str | None
) -> None:
    target = compare_target(REFUSAL.format(architecture), figures, [])
    assert (target.own_target, target.other_target) == (own, other)


def test_the_source_file_is_that_of_the_last_command() -> None:
    before = [b"nvcc -c /src/a.cu -o a.o", b"[2/9] nvcc -O3 -c /src/b.cu -o b.o", b"FAILED: b.o"]
    target = compare_target(REFUSAL.format("compute_121a"), {}, before)
    assert target.compiled_file == "/src/b.cu"


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (OLD_ORIN, "nvcc-other-architecture"),
        ("0, NVIDIA GB10, 12.1, 580.95.05\n", "nvcc-own-architecture"),
        ("#9 ENV TORCH_CUDA_ARCH_LIST='12.1a'\n", "nvcc-own-architecture"),
        ("ENV TORCH_CUDA_ARCH_LIST='8.6;12.1a'\n", "nvcc-architecture"),
    ],
)
def test_the_log_shows_the_gpu(shown: str, expected: str) -> None:
    first = of(shown + REFUSAL.format("compute_121a") + "\n").first
    assert first
    assert first.match.failure.name == expected
    assert first.confidence == ("high" if expected == "nvcc-own-architecture" else "medium")
