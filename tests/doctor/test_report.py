"""The JSON table of an examination; reports without secrets."""

import json
import shlex
from pathlib import Path

import pytest

from medley.doctor import report
from medley.doctor.checks import Fix
from medley.doctor.registry import run_checks
from tests.explain.test_explain import of
from tests.host.health.cases import case_of

ALL_HOSTS_NAME = ("spark-mtu-mismatch", "spark-pair-b")


def test_of_one_host_no_place_is_named() -> None:
    results = tuple(run_checks(case_of({"spark-twins-one-subnet": None})))
    (row,) = (row for row in report.build_table(results)["checks"] if row["rule"] == "one-subnet")
    assert row["problem"]["fix"].startswith("sudo $(command -v medley) link setup")


def test_the_table_is_json_and_counts() -> None:
    results = tuple(run_checks(case_of(dict.fromkeys(ALL_HOSTS_NAME))))
    table = json.loads(json.dumps(report.build_table(results)))
    assert table["counts"]["wrong"] == 2
    assert sum(table["counts"].values()) == len(table["checks"]) == len(results)
    assert {row["state"] for row in table["checks"]} <= {"ok", "better", "wrong", "unknown"}
    assert all((row["problem"] is None) == (row["state"] in {"ok", "unknown"}) for row in table["checks"])


@pytest.mark.parametrize(
    ("names", "status"), [(ALL_HOSTS_NAME, 1), (("spark-pair-a", "spark-pair-b"), 0), (("spark-pcie-x2",), 0)]
)
def test_only_what_is_wrong_is_an_error(names: tuple[str, ...], status: int) -> None:
    assert report.compute_exit_code(tuple(run_checks(case_of(dict.fromkeys(names))))) == status


def test_a_mend_is_shown_as_it_is_pasted() -> None:
    fixes = report.list_fixes(tuple(run_checks(case_of(dict.fromkeys(ALL_HOSTS_NAME)))))
    assert [fix.arguments[4] for fix in fixes] == ["enp1s0f1np1", "enP2p1s0f1np1"]
    assert all(fix.consent_arguments == ("--yes",) and fix.needs_root for fix in fixes)
    drop_caches = Fix("x", ("sh", "-c", "sync; echo 3 > /proc/sys/vm/drop_caches"), needs_root=True)
    assert shlex.split(drop_caches.command_text) == ["sudo", *drop_caches.arguments]


SECRET = "q7Zk3mPw9xLr"


def test_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    token = "ab1" * 20
    (tmp_path / "token").write_text(token)
    log = (
        "medley: alone on vm: the only layout that fits\n$ vllm serve /m\n"
        f"FooError: something odd at 8.8.8.8, in /home/carol/x, {token}, --api-key {SECRET}\n"
    )
    file = report.write_bug_report(of(log))
    text = file.read_text()
    assert file.stat().st_mode & 0o777 == 0o600
    for secret in (token, SECRET, "8.8.8.8", "carol"):
        assert secret not in text
    for part in (
        "FooError: something odd",
        "the only layout that fits",
        "vllm serve /m",
        "$ uname -m",
        "medley ",
    ):
        assert part in text


def test_a_report_is_cut_when_it_has_no_secret(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of a key, and a prompt whose beginning is above the log's end, are not recognized as such."""
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    token = "tulipsInMayAndInJune1234"
    (tmp_path / "token").write_text(token)
    long_line = f"{'y' * 960} Bearer {token[:12]}{token}"
    prompt_lines = "".join(f"  a line of daisies {number}\n" for number in range(150))
    log = f"prompt: |\n{prompt_lines}{long_line}\n{'z' * 985} {token}\nFooError: {'x ' * 284}{token}\n"
    text = report.write_bug_report(of(log)).read_text()
    assert "tulips" not in text
    assert "daisies" not in text
    assert len(next(line for line in text.splitlines() if line.startswith("zzz"))) <= 1000
