"""A plan of a report's transcripts comes out the same again, and what differs is said."""

from medley import config
from medley.measurement.field_report import ReportedPlan, Wishes
from medley.measurement.field_report.replay import differences, planned, reported
from medley.planner import Device, HostLink, Layout, Stage
from medley.schema import Shape
from tests.measurement.field_report.reports import draft

DEMO_SHAPE = "gpt-oss-120b"


def plan(**more: object) -> ReportedPlan:
    shape = config.models()[DEMO_SHAPE].shape
    assert isinstance(shape, Shape)
    asked = {"engine": "vllm", "hosts": 2, "spread": True, **more}
    return planned(DEMO_SHAPE, shape, draft().answers, Wishes(), **asked)  # type: ignore[arg-type]


def test_the_same_again() -> None:
    one = plan()
    assert list(differences(one, plan())) == []
    assert one.layout == "tensor parallel 2 on host-1, host-2"
    assert (one.rdma, one.replicas) == (True, 1)
    assert any("medley serve gpt-oss-120b" in line for line in one.typed)
    again = ReportedPlan.model_validate_json(one.model_dump_json())
    assert list(differences(again, one)) == []


def test_what_differs_is_said() -> None:
    one = plan()
    other = one.model_copy(update={"tokens_per_s": one.tokens_per_s * 1.1, "why": (*one.why[1:], "because")})
    said = list(differences(one, other))
    assert any(line.startswith("tokens_per_s: ") for line in said)
    assert "why: + because" in said
    rounded = one.model_copy(update={"tokens_per_s": one.tokens_per_s * (1 + 1e-12)})
    assert list(differences(one, rounded)) == []


def test_a_layout_in_the_words_of_the_report() -> None:
    stages = tuple(
        Stage((Device(f"{name} (10.0.0.1)", 0, "spark", 1, 1.0, 1.0),), 18) for name in ("ann", "bob")
    )
    found = reported(
        Layout(stages, HostLink(10_000, 1.0)),
        {"ann (10.0.0.1)": "host-1", "bob (10.0.0.1)": "host-2"}.__getitem__,
    )
    assert found.layout == "2 stages of 18,18 layers on host-1, host-2"
    assert [stage.devices for stage in found.stages] == [(("host-1", 0),), (("host-2", 0),)]
