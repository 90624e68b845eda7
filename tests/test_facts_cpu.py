"""The processor as lscpu or /proc/cpuinfo tell it."""

import pytest

from medley.facts import cpu
from medley.facts.cpu import Cpu
from medley.transcript import Answer


def found(kind: str, *, cores: str = "2", nodes: str = "") -> Cpu:
    return cpu.cpu(
        {
            cpu.SYSTEM: Answer("aarch64\n"),
            cpu.THREADS: Answer("4\n"),
            cpu.CORES: Answer(f"{cores}\n"),
            cpu.KIND: Answer(kind),
            cpu.NODES: Answer(nodes, 0 if nodes else 2),
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
