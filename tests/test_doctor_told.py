"""An examination is told a line a check, with what to type below what is not well."""

import json
import shlex

import pytest

from medley.doctor import told
from medley.doctor.rules import checks
from medley.doctor.shapes import Mend
from tests.conditions import case_of, old

GROUP = ("spark-mtu-mismatch", "spark-pair-b")


def test_a_line_a_check_and_what_to_type_below() -> None:
    lines = list(told.lines(tuple(checks(case_of(dict.fromkeys(GROUP))))))
    at = next(nr for nr, line in enumerate(lines) if "enp1s0f1np1 has MTU 1500" in line)
    assert lines[at].startswith("spark-mtu-mismatch  WRONG   the MTU: ")
    assert "cause: " in lines[at + 1]
    assert lines[at + 2].strip() == (
        "fix:   on spark-mtu-mismatch: sudo medley link setup --interface enp1s0f1np1 "
        "--address 192.168.100.10/24 --mtu 9000"
    )
    assert lines[-1].endswith("2 wrong, 1 not known")


def test_brief_leaves_out_what_is_well() -> None:
    lines = list(told.lines(tuple(checks(case_of({"spark": None}))), brief=True))
    assert len(lines) == 1
    assert " ok" in lines[0]


def test_what_is_not_known_for_one_reason_is_one_line() -> None:
    lines = [line for line in told.lines(tuple(checks(old("spark")))) if "not known: " in line]
    assert len(lines) == 1
    assert "disks; the model hub" in lines[0]


def test_of_one_host_no_place_is_named() -> None:
    found = tuple(checks(case_of({"spark-twins-one-subnet": None})))
    (row,) = (row for row in told.table(found)["checks"] if row["rule"] == "one-subnet")
    assert row["problem"]["fix"].startswith("sudo medley link setup")


def test_the_table_is_json_and_counts() -> None:
    found = tuple(checks(case_of(dict.fromkeys(GROUP))))
    table = json.loads(json.dumps(told.table(found)))
    assert table["counts"]["wrong"] == 2
    assert sum(table["counts"].values()) == len(table["checks"]) == len(found)
    assert {row["state"] for row in table["checks"]} <= {"ok", "better", "wrong", "unknown"}
    assert all((row["problem"] is None) == (row["state"] in {"ok", "unknown"}) for row in table["checks"])


@pytest.mark.parametrize(
    ("names", "status"), [(GROUP, 1), (("spark-pair-a", "spark-pair-b"), 0), (("spark-pcie-x2",), 0)]
)
def test_only_what_is_wrong_is_an_error(names: tuple[str, ...], status: int) -> None:
    assert told.status(tuple(checks(case_of(dict.fromkeys(names))))) == status


def test_a_mend_is_shown_as_it_is_pasted() -> None:
    mends = told.mends(tuple(checks(case_of(dict.fromkeys(GROUP)))))
    assert [mend.words[4] for mend in mends] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert all(mend.unasked == ("--yes",) and mend.root for mend in mends)
    drop = Mend("x", ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"), root=True)
    assert shlex.split(drop.shown) == ["sudo", *drop.words]
