"""`medley doctor --from` names the fault of each recording, and nothing else."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from medley.doctor import report
from medley.doctor.examination import examine_transcripts
from medley.doctor.registry import run_checks
from medley.transcript import Answer, Transcript, parse_transcript
from tests.host.health.cases import sound
from tests.host.recordings import HOSTS

FAULTS = HOSTS / "faults"
RulesByHost = Mapping[str, tuple[str, ...]]
NOTHING: RulesByHost = {}
NO_NCCL = ("kernels",)
NO_LOCK = ("kernels",)

# By the recordings of a group: the rules that are not content, by host. "all" is the group.
EXPECTED: Mapping[tuple[str, ...], RulesByHost] = {
    ("orin-r36-30w",): {"orin-r36-30w": ("power", "power", *NO_LOCK)},
    ("orin-r39-a", "orin-r39-b"): {"orin-r39-a": NO_NCCL, "orin-r39-b": NO_NCCL},
    ("orin-pair-a", "orin-pair-b"): {"orin-pair-a": NO_LOCK, "orin-pair-b": NO_LOCK},
    ("orin-r39-a", "orin-pair-b"): {"orin-r39-a": NO_NCCL, "orin-pair-b": ("versions", *NO_LOCK)},
    ("rtx-peers",): NOTHING,
    ("rtx-peers-iommu",): {"rtx-peers-iommu": ("peer-access",)},
    ("rtx-no-peers",): NOTHING,
    ("rtx-two",): NOTHING,
    ("spark-aer",): {"spark-aer": ("pcie-errors",)},
    ("spark-aer", "spark-pair-b"): {"spark-aer": ("pcie-errors",)},
    ("spark-kernel-7",): {"spark-kernel-7": ("rdma-kernel",)},
    ("spark-kernel-7", "spark-pair-b"): {"spark-kernel-7": ("rdma-kernel",)},
    ("spark-kernel-7-kho-off", "spark-pair-b"): NOTHING,
    ("spark-link-local",): {"spark-link-local": ("one-subnet",)},
    ("spark-link-local", "spark-link-local-b"): {
        "spark-link-local": ("one-subnet",),
        "spark-link-local-b": ("one-subnet",),
    },
    ("spark-no-address-a",): {"spark-no-address-a": ("idle-port",)},
    ("spark-no-address-a", "spark-no-address-b"): {"all": ("idle-port",)},
    ("spark-one-half-bare",): {"spark-one-half-bare": ("half-cage",)},
    ("spark-one-half-bare", "spark-pair-b"): {
        "spark-one-half-bare": ("half-cage",),
        "spark-pair-b": ("half-cage",),
    },
    ("spark-one-half-down", "spark-pair-b"): {
        "spark-one-half-down": ("half-cage",),
        "spark-pair-b": ("half-cage",),
    },
    ("spark-pair-a", "spark-pair-b"): NOTHING,
    ("spark-pcie-x2",): {"spark-pcie-x2": ("pcie",)},
    ("spark-restarts",): {"spark-restarts": ("memory",)},
    ("spark-slow",): {"spark-slow": ("clocks",)},
    ("thor-120w",): {"thor-120w": ("power", "power")},
    ("thor-mgbe-a", "thor-mgbe-b"): NOTHING,
    ("thor-no-toolkit",): NOTHING,
}
# How cables of a ring, and a host beside it, are judged.
RINGS: Mapping[tuple[str, ...], RulesByHost] = {
    ("spark-ring-a", "spark-ring-b", "spark-ring-c"): NOTHING,
    ("spark-ring-a", "spark-ring-b", "spark-ring-c", "thor-r38"): NOTHING,
    ("spark-ring4-a", "spark-ring4-b", "spark-ring4-c", "spark-ring4-d"): {"all": ("ring",)},
}
ALL_HOSTS = {**EXPECTED, **RINGS}
GROUPS = pytest.mark.parametrize("names", ALL_HOSTS, ids="+".join)


def find_cluster_file(name: str) -> Path:
    return next(path for folder in (FAULTS, HOSTS) if (path := folder / f"{name}.txt").exists())


def read_recording(name: str) -> Transcript:
    return parse_transcript(find_cluster_file(name).read_text(encoding="utf-8"))


def read_complete_recording(name: str) -> Transcript:
    """Return the recording, with the answers of a sound host to questions that are newer than it."""
    answers = {
        question: answer if isinstance(answer, Answer) else Answer(answer)
        for question, answer in sound(name).items()
    }
    return {**answers, **read_recording(name)}


def find_failures(answers: Mapping[str, Transcript]) -> dict[str, tuple[str, ...]]:
    rows = [(rule, check) for rule, check in run_checks(examine_transcripts(answers)) if check.problem]
    assert all(check.problem and check.problem.cause and check.problem.fix for _, check in rows)
    assert report.compute_exit_code(rows) == any(check.state == "wrong" for _, check in rows)
    hosts = dict.fromkeys(check.host for _, check in rows)
    return {host: tuple(rule.name for rule, check in rows if check.host == host) for host in hosts}


@GROUPS
def test_its_fault_and_nothing_else(names: tuple[str, ...]) -> None:
    assert find_failures({name: read_recording(name) for name in names}) == ALL_HOSTS[names]


@GROUPS
def test_the_same_where_everything_was_asked(names: tuple[str, ...]) -> None:
    assert find_failures({name: read_complete_recording(name) for name in names}) == ALL_HOSTS[names]


def test_no_recording_of_a_fault_is_forgotten() -> None:
    used = {name for names in ALL_HOSTS for name in names}
    assert {path.stem for path in FAULTS.glob("*.txt")} <= used


@pytest.mark.parametrize("path", sorted(FAULTS.glob("*.txt")), ids=lambda path: path.stem)
def test_a_composed_recording_says_so(path: Path) -> None:
    assert path.read_text(encoding="utf-8").startswith("# Composed, not recorded: ")
