"""Levels of memory, from figures and from a real control group with a limit."""

import subprocess
import sys
from pathlib import Path

import pytest

from medley.host.memory_pressure import (
    GIB,
    MIB,
    Level,
    MemoryState,
    count_kernel_kills,
    describe_killer,
    read_memory,
    read_reserve,
)
from tests.memory_group import killed, limited
from tests.problems import raises_problem

MEMINFO = "MemTotal: {} kB\nMemAvailable: {} kB\nSwapTotal: {} kB\nSwapFree: {} kB\n"


@pytest.mark.parametrize(
    ("total_gib", "low_mib"),
    [(128, 2048), (64, 2048), (24, 983), (8, 512), (2, 256)],
    ids=["a Spark", "an Orin of 64 GiB", "24 GiB", "an Orin Nano", "a small group"],
)
def test_bounds_are_below_what_a_plan_leaves(total_gib: int, low_mib: int) -> None:
    low, critical = MemoryState("here", total_gib * GIB, 0).compute_bounds()
    assert (low // MIB, critical) == (low_mib, low // 2)


@pytest.mark.parametrize(
    ("available", "swap_free", "stalled", "level"),
    [
        pytest.param(2100, 0, 99.0, "enough", id="enough, whatever stalls"),
        pytest.param(1900, 0, 0.0, "low", id="low"),
        pytest.param(1900, 0, 60.0, "critical", id="low, and nothing goes on"),
        pytest.param(900, 0, 0.0, "critical", id="nearly none, no swap"),
        pytest.param(900, 4000, 0.0, "low", id="nearly none, and swap that works"),
        pytest.param(900, 200, 0.0, "critical", id="nearly none, swap used up"),
        pytest.param(900, 4000, None, "critical", id="a kernel without PSI, swap or not"),
    ],
)
def test_levels(available: int, swap_free: int, stalled: float | None, level: Level) -> None:
    found = MemoryState("here", 128 * GIB, available * MIB, 8000 * MIB, swap_free * MIB, stalled)
    assert found.classify() == level


def test_a_reserve_of_the_user_replaces_the_bound() -> None:
    assert read_reserve({}) is None
    assert (
        MemoryState("here", 128 * GIB, 3 * GIB).classify(read_reserve({"MEDLEY_MEMORY_RESERVE_MIB": "4096"}))
        == "low"
    )
    with raises_problem("MEDLEY_MEMORY_RESERVE_MIB", "'4G'", fix="export MEDLEY_MEMORY_RESERVE_MIB=2048"):
        read_reserve({"MEDLEY_MEMORY_RESERVE_MIB": "4G"})


def files(root: Path, found: dict[str, str]) -> Path:
    for name, text in {"proc/meminfo": MEMINFO.format(8 << 20, 4 << 20, 0, 0), **found}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_who_killed_is_known_from_the_kernels_count(tmp_path: Path) -> None:
    assert (
        describe_killer(count_kernel_kills(tmp_path), tmp_path) == "as the kernel does when memory runs out"
    )
    before = count_kernel_kills(files(tmp_path, {"proc/vmstat": "pgfault 7\noom_kill 3\ndrop_slab 0\n"}))
    assert before == 3
    assert describe_killer(before, tmp_path).startswith("and not by the kernel")
    files(tmp_path, {"proc/vmstat": "oom_kill 5\n"})
    assert (
        describe_killer(before, tmp_path) == "and the kernel killed 2 processes for memory since it started"
    )


def test_the_tightest_group_above_a_process_counts(tmp_path: Path) -> None:
    group = "sys/fs/cgroup/a"
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "0::/a/b\n",
            f"{group}/memory.max": str(2 * GIB),
            f"{group}/memory.current": str(2 * GIB - 100 * MIB),
            f"{group}/memory.stat": f"inactive_file {50 * MIB}\nactive_file {20 * MIB}\n",
            f"{group}/memory.pressure": "some avg10=9.00\nfull avg10=7.50 avg60=0.00\n",
            f"{group}/b/memory.max": "max\n",
            f"{group}/b/memory.current": "7\n",
        },
    )
    memory = read_memory(root)
    assert memory
    host, found = memory.states
    assert (host.where, host.available, host.stalled) == ("this host", 4 * GIB, None)
    assert (found.total, found.available, found.stalled) == (2 * GIB, 160 * MIB, 7.5)


def test_a_container_sees_its_group_at_the_root(tmp_path: Path) -> None:
    root = files(
        tmp_path,
        {
            "proc/self/cgroup": "4:memory:/docker/not-here\n2:cpu:/\n",
            "sys/fs/cgroup/memory/memory.limit_in_bytes": str(GIB),
            "sys/fs/cgroup/memory/memory.usage_in_bytes": str(GIB // 2),
            "sys/fs/cgroup/memory/memory.stat": f"inactive_file 5\ntotal_inactive_file {MIB}\n",
        },
    )
    memory = read_memory(root)
    assert memory
    assert [each.available for each in memory.states] == [4 * GIB, GIB // 2 + MIB]


def test_a_host_without_proc_has_no_figures(tmp_path: Path) -> None:
    assert read_memory(tmp_path) is None


FILL = """
import sys, time
from medley.host.memory_pressure import MemoryWatch
open(sys.argv[1], "w").write("0")
watch, kept, more = MemoryWatch(), [b"x" * (400 << 20)], 3
while not watch.check():
    if more:
        kept.append(b"x" * (12 << 20))
        if watch.low:
            print("low:", watch.low, flush=True)
            more -= 1
    time.sleep(1.1)
print(watch.build_problem("the engine"), flush=True)
"""
"""Fill memory until it is low, then a little more, until it is critical."""


def test_low_and_then_critical_come_before_the_kernel_kills() -> None:
    with limited(512 * MIB) as group:
        words = [sys.executable, "-c", FILL, str(group / "cgroup.procs")]
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=55)
        assert killed(group) == 0
    assert done.returncode == 0, done.stderr
    low, _, _, *problem = done.stdout.splitlines()
    assert low.startswith("low: ")
    assert "MiB of 512 MiB available on control group" in low
    assert problem[0] == "medley ended the engine before this host's memory ran out"
    assert "largest processes: " in problem[1]
