import pytest

from medley import config, passed
from medley.container import Runtime
from medley.kind import kind
from medley.passed import Limits
from medley.problem import Problem
from tests.recorded import recorded

ROOT = Limits(files=1_048_576, processes=None, memlock_bytes=None, may_raise=True)
PERSON = Limits(files=524_288, processes=8192, memlock_bytes=8 << 20, may_raise=False)


def words(runtime: Runtime, host: str, limits: Limits = ROOT) -> list[str]:
    facts = recorded(host)
    flags = tuple(passed.of_host(runtime, kind(facts, config.hosts()).host, facts, limits))
    assert all(flag.why for flag in flags)
    return [" ".join(flag.argv()) for flag in flags]


RDMA = ["--ulimit memlock=-1:-1", "--device /dev/infiniband"]
OWN = ["--ulimit nofile=1048576:1048576", "--ulimit nproc=32768:32768"]


@pytest.mark.parametrize(
    ("runtime", "host", "flags"),
    [
        pytest.param(
            "docker",
            "orin-r36",
            ["--runtime nvidia", "--env NVIDIA_DRIVER_CAPABILITIES=all"],
            id="Orin, L4T 36: NVIDIA's runtime",
        ),
        pytest.param("docker", "thor-r38", ["--gpus all"], id="Thor: as any other"),
        pytest.param("docker", "rtx-4090", ["--gpus all"], id="RTX"),
        pytest.param("docker", "spark-pair-a", [RDMA[0], "--gpus all", RDMA[1]], id="Spark: RDMA"),
        pytest.param("docker", "cpu-rack", [], id="no GPU"),
        pytest.param(
            "podman",
            "spark-pair-a",
            [*OWN, RDMA[0], "--device nvidia.com/gpu=all", RDMA[1]],
            id="Spark, podman: CDI",
        ),
        pytest.param("podman", "orin-r36", [*OWN, "--device nvidia.com/gpu=all"], id="Orin, podman: CDI"),
        pytest.param("podman", "cpu-rack", OWN, id="no GPU, podman"),
    ],
)
def test_what_a_kind_of_host_passes_on(runtime: Runtime, host: str, flags: list[str]) -> None:
    assert words(runtime, host) == flags


def test_podman_gives_no_more_than_the_host_has() -> None:
    assert words("podman", "cpu-rack", PERSON) == [
        "--ulimit nofile=524288:524288",
        "--ulimit nproc=8192:8192",
    ]


def test_rdma_without_the_right_to_lock_memory_is_a_problem_for_podman_alone() -> None:
    assert RDMA[0] in words("docker", "spark-pair-a", PERSON)  # its daemon is root
    assert RDMA[0] not in words("podman", "rtx-4090", PERSON)
    with pytest.raises(Problem) as caught:
        words("podman", "spark-pair-a", PERSON)
    assert "8192 KiB" in caught.value.cause
    assert "memlock unlimited" in caught.value.fix
