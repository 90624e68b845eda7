"""What the owner of a log has tried is not offered again."""

import pytest

from medley.explain.lines import parse_line
from medley.explain.tried_steps import is_tried, leave_out_tried
from tests.explain.test_explain import of

BUS = "[ 410.101010] NVRM: Xid (PCI:0000:01:00): 79, pid='<unknown>', GPU has fallen off the bus.\n"
TESTS = (
    "tests, one at a time: PCIe Gen4 in the BIOS; another slot; another release of the driver; a newer BIOS"
)


@pytest.mark.parametrize(
    ("sentence", "absent", "present"),
    [
        ("card reseated, power checked, no thermal event", "another slot", "Gen4"),
        ("Two drivers were tried: the same", "release of the driver", "another slot"),
        ("# I already set the BIOS to Gen4, no effect", "Gen4", "another slot"),
        ("a lower power limit did not help", "nvidia-smi -pl", "another slot"),
    ],
)
def test_a_tried_step_is_not_offered_again(sentence: str, absent: str, present: str) -> None:
    [plain] = of(BUS).problems
    assert absent in plain.problem().fix
    [report] = of(f"{BUS}{sentence}\n").problems
    assert absent not in report.problem().fix
    assert present in report.problem().fix


def test_a_setting_in_prose_is_in_effect() -> None:
    """The advice was P2P off where the owner had said to have set it."""
    log = "RuntimeError: NCCL error: unhandled cuda error (run with NCCL_DEBUG=INFO for details)\n"
    assert "NCCL_P2P_DISABLE=1" in of(log).problems[0].problem().fix
    [report] = of(f"{log}I already set NCCL_P2P_DISABLE=1, the same error\n").problems
    assert "NCCL_P2P_DISABLE=1" not in report.problem().fix
    assert "NCCL_CUMEM_ENABLE=0" in report.problem().fix


@pytest.mark.parametrize(
    "text",
    [
        "ERROR 11-21 08:01:33 [x.py:1] the model is already loaded on another driver",
        "OSError: [Errno 98] Address already in use",
        "please try another driver",
        "all ranks must have the same driver",
        '  File "already.py", line 3, in tried',
    ],
)
def test_a_program_s_own_line_is_not_a_test(text: str) -> None:
    assert not is_tried(parse_line(text))


def test_a_lead_stays_before_the_next_clause() -> None:
    assert leave_out_tried(TESTS, ["already at gen4"]) == (
        "tests, one at a time: another slot; another release of the driver; a newer BIOS"
    )


def test_the_whole_fix_stays_where_nothing_else_is_known() -> None:
    assert leave_out_tried("sudo reboot", ["rebooted twice, the same"]) == "sudo reboot"
    assert leave_out_tried(TESTS, []) == TESTS
