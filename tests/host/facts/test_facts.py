"""Every transcript in tests/host/recorded gives the facts that a person reads in it."""

from pathlib import Path
from typing import NamedTuple

import pytest

from medley.host.facts import (
    CORES_QUESTION,
    KIND_QUESTION,
    NODES_QUESTION,
    QUESTIONS,
    SYSTEM_QUESTION,
    THREADS_QUESTION,
    Cpu,
    Facts,
    gpu,
    network,
    rdma,
    read_cpu,
    read_facts,
    system,
)
from medley.transcript import Answer, parse_transcript
from tests.problems import raises_problem

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
KIB, MIB = 1 << 10, 1 << 20


class Host(NamedTuple):
    """What is most worth checking of a host, told by hand."""

    system: str
    threads: int
    total_kib: int
    gpus: tuple[tuple[str, str | None, int | None], ...] = ()
    """Name, capability, MiB."""
    soc: str | None = None
    l4t: str | None = None
    dgx: str | None = None
    driver: str | None = None
    container: str | None = None
    os: str = "ubuntu 24.04"


ARM, X86 = "aarch64-linux", "x86_64-linux"
RTX_6000 = "NVIDIA RTX PRO 6000 Blackwell Workstation Edition"
ORIN = Host(ARM, 12, 64349112, soc="tegra234", os="ubuntu 22.04", l4t="r36.4.3")
SPARK = Host(ARM, 20, 127600704, gpus=(("NVIDIA GB10", "12.1", None),), driver="580.126.09")
PC = Host(X86, 32, 131008260)
DGX_SPARK = SPARK._replace(dgx="NVIDIA DGX Spark 7.3.1")
RTX_4090 = Host(X86, 32, 65640000, gpus=(("NVIDIA GeForce RTX 4090", "8.9", 24564),), driver="580.95.05")
RTX_TWO = PC._replace(gpus=((RTX_6000, "12.0", 97887),) * 2, driver="580.95.05")
ORIN_36 = ORIN._replace(gpus=(("Orin (nvgpu)", None, None),))
THOR = Host(*(ARM, 14, 128790528, (("NVIDIA Thor", "11.0", None),), "tegra264", "r38.2.0"), driver="580.00")

# Hosts that differ in their network alone.
SPARKS = (
    *("spark-pair-a", "spark-pair-b", "spark-ring-a", "spark-ring-b", "spark-ring-c", "spark-link-local"),
    *("spark-air-gapped", "spark-gid-drift", "spark-mtu-mismatch", "spark-one-half-down", "spark-pcie-x2"),
    "spark-twins-one-subnet",
)

EXPECTED = {
    "cpu-rack": PC._replace(threads=192),
    "debian-vm": Host(X86, 2, 24684084, container="docker", os="debian 12"),
    "gb10-oem": SPARK,
    "orin-r35-no-nvidia-smi": ORIN._replace(
        gpus=(("tegra234 integrated GPU", None, None),), l4t="r35.5.0", os="ubuntu 20.04"
    ),
    "orin-pair-a": ORIN_36,
    "orin-pair-b": ORIN_36,
    "orin-r36": ORIN_36,
    "orin-r36-query": ORIN._replace(gpus=(("Orin (nvgpu)", "8.7", None),)),
    "orin-r39": Host(ARM, 8, 30694072, gpus=(("Orin (nvgpu)", None, None),), soc="tegra234", l4t="r39.2.0"),
    "pc-without-driver": PC._replace(os="nixos 25.11"),
    "rtx-4090": RTX_4090,
    "rtx-mixed": PC._replace(
        gpus=((RTX_6000, "12.0", 97887), ("NVIDIA GeForce RTX 3090", "8.6", 24576)), driver="580.173.02"
    ),
    "rtx-roce": RTX_TWO,
    "rtx-stuck": PC._replace(driver="580.95.05"),
    "rtx-two": RTX_TWO,
    "rtx-vpn-docker": RTX_4090,
    "rtx-wifi": RTX_4090,
    "server-nvidia-smi-only": PC._replace(threads=192),
    "spark": DGX_SPARK,
    **dict.fromkeys(SPARKS, DGX_SPARK),
    "spark-nvml-mismatch": SPARK._replace(gpus=(), dgx="NVIDIA DGX Spark 7.2.3"),
    "thor-in-docker": Host(
        ARM, 14, 128790528, gpus=(("NVIDIA Thor", "11.0", None),), driver="580.00", container="docker"
    ),
    "thor-mgbe-a": THOR,
    "thor-mgbe-b": THOR,
    "thor-r38": THOR,
}


def host(name: str) -> Facts:
    return read_facts(parse_transcript((HOSTS / f"{name}.txt").read_text()))


def test_every_transcript_has_an_expectation() -> None:
    assert {path.stem for path in HOSTS.glob("*.txt")} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_facts(name: str) -> None:
    found = host(name)
    l4t = found.board.l4t
    assert EXPECTED[name] == Host(
        system=found.system,
        threads=found.cpu.threads,
        total_kib=found.memory.total_bytes // KIB,
        gpus=tuple((g.name, g.capability, g.memory_bytes and g.memory_bytes // MIB) for g in found.gpus),
        soc=found.board.soc,
        l4t=l4t.release if l4t else None,
        dgx=found.board.dgx,
        driver=found.driver.version,
        container=found.software.container,
        os=f"{found.software.os_id} {found.software.os_version}",
    )


# Asked since some of the hosts were recorded.
LATER = {
    *(gpu.CUDA_QUESTION, system.PYTHON_QUESTION, system.CUDA_QUESTION, system.ENVIRONMENTS_QUESTION),
    *(*network.QUESTIONS, *rdma.QUESTIONS),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_transcript_holds_the_questions(name: str) -> None:
    """Or its fixture is stale: a question was reworded and its answer is no longer found."""
    asked = tuple(parse_transcript((HOSTS / f"{name}.txt").read_text()))
    assert asked == tuple(question for question in QUESTIONS if question in asked or question not in LATER)


@pytest.mark.parametrize("name", EXPECTED)
def test_a_transcript_says_where_it_is_from(name: str) -> None:
    assert (HOSTS / f"{name}.txt").read_text().startswith(("# Recorded by ", "# Composed, not recorded: "))


@pytest.mark.parametrize("name", EXPECTED)
def test_the_index_is_the_place_in_the_list(name: str) -> None:
    gpus = host(name).gpus
    assert [gpu.index for gpu in gpus] == list(range(len(gpus)))


@pytest.mark.parametrize(
    ("name", "jetson"),
    [("orin-r39", True), ("orin-r35-no-nvidia-smi", True), ("thor-in-docker", True), ("spark", False)],
)
def test_is_jetson(name: str, *, jetson: bool) -> None:
    assert host(name).is_jetson is jetson


def test_absent_is_none() -> None:
    """A transcript with only what every Linux host answers."""
    found = read_facts(
        parse_transcript(
            "$ uname -m\n  x86_64\n$ nproc || getconf _NPROCESSORS_ONLN\n  4\n"
            "$ grep -E '^(MemTotal|MemAvailable):' /proc/meminfo\n  MemTotal:  8 kB\n  MemAvailable:  4 kB\n"
        )
    )
    assert (found.memory.total_bytes, found.memory.available_bytes) == (8 * KIB, 4 * KIB)
    assert found.memory.shm_bytes is None
    assert (found.cpu.model, found.cpu.cores, found.cpu.numa_nodes, found.cpu.flags) == (None, None, None, ())
    assert found.software.libc is None
    assert found.software.kernel is None
    assert found.gpus == ()
    assert found.driver.error is None


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        pytest.param("", "uname -m", id="empty"),
        pytest.param("$ uname -m\n", "uname -m", id="unanswered"),
        pytest.param("$ uname -m\n  x86_64\n", "nproc || ", id="cut"),
    ],
)
def test_half_a_transcript_is_a_problem(text: str, lacks: str) -> None:
    with raises_problem(cause=lacks, fix="medley facts --transcript > HOST.txt"):
        read_facts(parse_transcript(text))


def found(kind: str, *, cores: str = "2", nodes: str = "") -> Cpu:
    return read_cpu(
        {
            SYSTEM_QUESTION: Answer("aarch64\n"),
            THREADS_QUESTION: Answer("4\n"),
            CORES_QUESTION: Answer(f"{cores}\n"),
            KIND_QUESTION: Answer(kind),
            NODES_QUESTION: Answer(nodes, 0 if nodes else 2),
        }
    )


@pytest.mark.parametrize(
    ("said", "model", "flags"),
    [
        pytest.param(
            "Model name:  Intel(R) Xeon(R)\nFlags:  fpu avx2 avx512f amx_tile\n",
            "Intel(R) Xeon(R)",
            ("avx2", "avx512f", "amx_tile"),
            id="x86",
        ),
        pytest.param(
            "  Model name:  Cortex-X925\n    Flags:  asimd sve\n"
            "  Model name:  Cortex-A725\n    Flags:  asimd sve\n",
            "Cortex-X925 + Cortex-A725",
            ("asimd", "sve"),
            id="two sorts of cores",
        ),
        pytest.param("Model name:  -\nFlags:  asimd\n", None, ("asimd",), id="lscpu knows no name"),
        pytest.param(
            "Features\t: fp asimd i8mm bf16\n", None, ("asimd", "bf16", "i8mm"), id="Arm's /proc/cpuinfo"
        ),
        pytest.param("model name\t: Xeon\nflags\t\t: avx2\n", "Xeon", ("avx2",), id="x86's /proc/cpuinfo"),
        pytest.param("Flags:  avx2_not avx512_bf16x\n", None, (), id="flags are whole words"),
        pytest.param("", None, (), id="nothing"),
    ],
)
def test_model_and_flags(said: str, model: str | None, flags: tuple[str, ...]) -> None:
    assert (found(said).model, found(said).flags) == (model, flags)


def test_no_lscpu_means_no_core_count() -> None:
    assert found("", cores="0").cores is None


def test_numa_nodes() -> None:
    assert found("", nodes="/sys/devices/system/node/node0\n/sys/devices/system/node/node1\n").numa_nodes == 2
