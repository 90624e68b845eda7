"""A plan of a report's transcripts comes out the same again, and what differs is said."""

from benchmarks.field_report import differences
from medley import config
from medley.measurement.field_report.replay import plan_model, report_layout
from medley.measurement.field_report.report import PlanRequest, ReportedPlan, Wishes
from medley.planner import Device, HostLink, Layout, Stage
from tests.measurement.field_report.reports import MODEL, draft


def plan() -> ReportedPlan:
    shape = config.load_models()[MODEL].shape
    assert shape
    return plan_model(MODEL, shape, draft().answers, Wishes(), PlanRequest(hosts=2, spread=True))


def test_the_same_again() -> None:
    first = plan()
    assert list(differences(first, plan())) == []
    assert first.made.layout == "tensor parallel 2 on host-1, host-2"
    assert (first.made.rdma, first.made.replicas) == (True, 1)
    assert any("medley serve gpt-oss-120b" in line for line in first.typed)
    copy = ReportedPlan.from_json(first.to_json())
    assert list(differences(copy, first)) == []


def test_what_differs_is_said() -> None:
    first = plan()
    changed = first.replace(tokens_per_s=first.tokens_per_s * 1.1, why=(*first.why[1:], "because"))
    texts = list(differences(first, changed))
    assert any(line.startswith("tokens_per_s: ") for line in texts)
    assert "why: + because" in texts
    rounded = first.replace(tokens_per_s=first.tokens_per_s * (1 + 1e-12))
    assert list(differences(first, rounded)) == []


def rename(text: str) -> str:
    return text.replace(" (10.0.0.1)", "").replace("ann", "host-1").replace("bob", "host-2")


def test_a_layout_in_the_words_of_the_report() -> None:
    stages = tuple(
        Stage((Device(f"{name} (10.0.0.1)", 0, "spark", 1, 1.0, 1.0),), 18) for name in ("ann", "bob")
    )
    report = report_layout(Layout(stages, HostLink(10_000, 1.0)), rename)
    assert report.layout == "2 stages of 18,18 layers on host-1, host-2"
    assert [stage.devices for stage in report.stages] == [(("host-1", 0),), (("host-2", 0),)]
