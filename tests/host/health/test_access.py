"""Limits of a process as the kernel tells them."""

import os

import pytest

from medley.host.health.access import ProcessLimits, list_low_limits, parse_limits, read_limits

DEFAULT = """\
Limit                     Soft Limit           Hard Limit           Units
Max cpu time              unlimited            unlimited            seconds
Max processes             96343                96343                processes
Max open files            1024                 524288               files
Max locked memory         8388608              8388608              bytes
Max realtime timeout      unlimited            unlimited            us
"""
RAISED = """\
Max open files            1048576              1048576              files
Max locked memory         unlimited            unlimited            bytes
"""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        pytest.param(DEFAULT, ProcessLimits(8 << 20, 524_288, 96_343), id="as a login has them"),
        pytest.param(RAISED, ProcessLimits(None, 1_048_576, None), id="as a unit of ours has them"),
        pytest.param("", ProcessLimits(), id="nothing told"),
    ],
)
def test_what_a_process_may_have(text: str, expected: ProcessLimits) -> None:
    assert parse_limits(text) == expected


def test_of_this_very_process() -> None:
    found = read_limits(os.getpid())
    assert found
    assert found.open_files


def test_of_none() -> None:
    assert read_limits(1 << 30) is None


@pytest.mark.parametrize(
    ("found", "rdma", "expected"),
    [
        pytest.param(
            ProcessLimits(8 << 20), True, ["memlock unlimited"], id="RDMA needs memory that is locked"
        ),
        pytest.param(ProcessLimits(8 << 20), False, [], id="TCP does not"),
        pytest.param(ProcessLimits(None, 1_048_576), True, [], id="unlimited"),
        pytest.param(ProcessLimits(None, 4096), False, ["nofile 1048576"], id="few files"),
    ],
)
def test_what_is_too_low(found: ProcessLimits, *, rdma: bool, expected: list[str]) -> None:
    fixes = [each.fix for each in list_low_limits(found, "ann", rdma=rdma)]
    assert len(fixes) == len(expected)
    assert all(f"'ann - {item}'" in fix for item, fix in zip(expected, fixes, strict=True))
