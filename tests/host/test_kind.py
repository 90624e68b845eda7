"""Every host in tests/host/recorded is of one kind, and says why."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from medley import config
from medley.errors import Problem
from medley.host.facts import Cpu, Facts, Memory, read_facts
from medley.host.facts.gpu import Gpu, NvidiaDriver
from medley.host.kind import find_gpu_capability, find_gpu_memory_bytes, match_kind, read_answers_by_host
from medley.host_schema import HostTable
from medley.transcript import parse_transcript
from tests.problems import raises_problem

TREE = Path(__file__).parents[2] / "hosts"
HOSTS = Path(__file__).parents[1] / "host" / "recorded"
GIB = 1 << 30

KINDS = {
    "cpu-rack": "cpu",
    "debian-vm": "cpu",
    "gb10-oem": "spark",
    "orin-pair-a": "orin",
    "orin-pair-b": "orin",
    "orin-r36": "orin",
    "orin-r36-query": "orin",
    "orin-r39": "orin-r39",
    "pc-without-driver": "cpu",
    "rtx-4090": "cuda",
    "rtx-mixed": "cuda",
    "rtx-roce": "rtx",
    "rtx-two": "rtx",
    "rtx-vpn-docker": "cuda",
    "rtx-wifi": "cuda",
    "server-nvidia-smi-only": "cpu",
    **{path.stem: "spark" for path in HOSTS.glob("spark*.txt") if path.stem != "spark-nvml-mismatch"},
    "thor-mgbe-a": "thor",
    "thor-mgbe-b": "thor",
    "thor-r38": "thor",
}
PROBLEMS = {
    "orin-r35-no-nvidia-smi": ("tegra234 and L4T r35.5.0", "orin is tegra234 with L4T r36", "add a table"),
    "rtx-stuck": (
        "does not answer",
        "gave no answer and was stopped; the loaded module is 580.95.05",
        "dmesg",
    ),
    "spark-nvml-mismatch": (
        "does not answer",
        "NVML library version: 580.173; the loaded module is 580.126.09",
        "sudo reboot",
    ),
    "thor-in-docker": (
        "a Jetson with an unseen SoC",
        "thor is tegra264 with any L4T",
        "outside of the container",
    ),
}


@pytest.fixture(scope="module")
def hosts() -> Mapping[str, HostTable]:
    """The tables of this tree, whatever the user has of their own."""
    return {path.stem: config.read_table(path, HostTable) for path in TREE.glob("*.toml")}


def host(name: str) -> Facts:
    return read_facts(parse_transcript((HOSTS / f"{name}.txt").read_text()))


def pc(*gpus: Gpu, system: str = "x86_64-linux") -> Facts:
    return Facts(Cpu(system, 8), Memory(64 * GIB, 32 * GIB), gpus)


def test_every_transcript_has_an_expectation() -> None:
    assert {path.stem for path in HOSTS.glob("*.txt")} == {*KINDS, *PROBLEMS}


def test_every_kind_has_a_transcript(hosts: Mapping[str, HostTable]) -> None:
    assert set(KINDS.values()) == set(hosts)


@pytest.mark.parametrize("name", KINDS)
def test_kind(name: str, hosts: Mapping[str, HostTable]) -> None:
    chosen = match_kind(host(name), hosts)
    assert chosen.name == KINDS[name]
    assert chosen.table.title == hosts[chosen.name].title


@pytest.mark.parametrize("name", KINDS)
def test_the_order_of_the_tables_does_not_matter(name: str, hosts: Mapping[str, HostTable]) -> None:
    assert match_kind(host(name), dict(reversed(list(hosts.items())))).name == KINDS[name]


@pytest.mark.parametrize("name", PROBLEMS)
def test_no_kind(name: str, hosts: Mapping[str, HostTable]) -> None:
    what, cause, fix = PROBLEMS[name]
    with pytest.raises(Problem) as caught:
        match_kind(host(name), hosts)
    assert what in caught.value.what
    assert cause in caught.value.cause
    assert fix in caught.value.fix


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("orin-r36", "SoC tegra234, L4T r36 (Orin (nvgpu))"),
        ("spark", "GPU GB10 (NVIDIA GB10)"),
        ("debian-vm", "no sign of a usable NVIDIA GPU"),
    ],
)
def test_why(name: str, why: str, hosts: Mapping[str, HostTable]) -> None:
    assert match_kind(host(name), hosts).why == why


@pytest.mark.parametrize(
    ("name", "warning"),
    [
        ("spark", None),
        ("debian-vm", None),
        ("rtx-4090", "nvidia-smi says: WARNING: infoROM is corrupted at gpu 0000:01:00.0"),
        ("pc-without-driver", "the NVIDIA GPU at 0000:01:00.0 is not used: there is no nvidia-smi on PATH"),
        (
            "server-nvidia-smi-only",
            "nvidia-smi is installed, but there is no NVIDIA GPU: NVIDIA-SMI has failed",
        ),
    ],
)
def test_warning(name: str, warning: str | None, hosts: Mapping[str, HostTable]) -> None:
    said = match_kind(host(name), hosts).warning
    assert said is None if warning is None else said and said.startswith(warning)


@pytest.mark.parametrize(
    ("found", "name"),
    [
        pytest.param(pc(Gpu(0, "NVIDIA GB100", capability="10.0")), "cuda", id="GB100 is no GB10"),
        pytest.param(pc(Gpu(0, "NVIDIA GeForce RTX 5090", capability="12.0")), "rtx", id="RTX 5090"),
        pytest.param(pc(Gpu(0, "NVIDIA GeForce RTX 5090")), "cuda", id="RTX whose capability is not told"),
        pytest.param(
            pc(Gpu(0, "NVIDIA RTX PRO 6000", capability="12.0"), system="aarch64-linux"),
            "cuda",
            id="RTX on Arm",
        ),
        pytest.param(
            pc(Gpu(0, "NVIDIA GH200 480GB", capability="9.0"), system="aarch64-linux"), "cuda", id="Grace"
        ),
        pytest.param(pc(system="aarch64-linux"), "cpu", id="Arm server"),
    ],
)
def test_hosts_without_a_transcript(found: Facts, name: str, hosts: Mapping[str, HostTable]) -> None:
    assert match_kind(found, hosts).name == name


def test_a_system_nobody_builds_for(hosts: Mapping[str, HostTable]) -> None:
    with raises_problem(cause=("riscv64-linux; ", " spark, ")):
        match_kind(pc(system="riscv64-linux"), hosts)


def test_no_module_and_no_card_is_no_broken_gpu(hosts: Mapping[str, HostTable]) -> None:
    found = pc().replace(driver=NvidiaDriver(error="No devices were found", installed=True))
    assert match_kind(found, hosts).name == "cpu"


def test_an_unused_table_of_equal_weight_is_a_problem(hosts: Mapping[str, HostTable]) -> None:
    with raises_problem("spark", "mine", fix="hosts/spark.toml, hosts/mine.toml"):
        match_kind(host("spark"), {**hosts, "mine": hosts["spark"]})


@pytest.mark.parametrize(
    ("name", "gib", "capability"),
    [
        pytest.param("spark", 121.69, "12.1", id="unified: the host's"),
        pytest.param("orin-r39", 29.27, "8.7", id="capability from the table"),
        pytest.param("rtx-two", 95.59, "12.0", id="its own"),
    ],
)
def test_what_the_table_adds(name: str, gib: float, capability: str, hosts: Mapping[str, HostTable]) -> None:
    found = host(name)
    table = match_kind(found, hosts).table
    assert find_gpu_memory_bytes(found.gpus[0], table, found) == pytest.approx(gib * GIB, rel=1e-3)
    assert find_gpu_capability(found.gpus[0], table) == capability


def test_memory_that_nobody_tells_is_none(hosts: Mapping[str, HostTable]) -> None:
    found = pc(Gpu(0, "NVIDIA X"))
    assert find_gpu_memory_bytes(found.gpus[0], hosts["cuda"], found) is None


def test_a_transcript_whose_name_would_be_an_option(tmp_path: Path) -> None:
    file = tmp_path / "-oProxyCommand=x.txt"
    with raises_problem("-oProxyCommand=x", cause="option", fix=f"mv {file} host-oProxyCommand=x.txt"):
        read_answers_by_host([str(file)])
