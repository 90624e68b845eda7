"""Prometheus' text, read and written; the texts are an engine's own, recorded here."""

import pytest

from medley.monitor import exposition
from medley.monitor.exposition import Family, Point
from tests.monitored import METRICS


@pytest.mark.parametrize("name", ["vllm", "sglang", "ray"])
def test_what_was_read_and_written_reads_the_same(name: str) -> None:
    found = exposition.families((METRICS / f"{name}.txt").read_text())
    again = exposition.families(exposition.written(found.values()))
    assert again == {key: family for key, family in found.items() if family.points}
    assert all(family.type != "untyped" and family.help for family in again.values())


def test_a_family_has_its_samples_under_their_suffixes() -> None:
    found = exposition.families((METRICS / "vllm.txt").read_text())
    names = {point.name for point in found["vllm:time_to_first_token_seconds"].points}
    assert names == {f"vllm:time_to_first_token_seconds_{end}" for end in ("bucket", "count", "sum")}
    assert found["vllm:generation_tokens_total"].type == "counter"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('a{b="c"} 1', Point("a", (("b", "c"),), 1), id="a label"),
        pytest.param("a 1e3 1700000000000", Point("a", (), 1000), id="a time"),
        pytest.param('a{b="x\\"y\\\\z\\nw",} 2', Point("a", (("b", 'x"y\\z\nw'),), 2), id="escapes"),
        pytest.param(
            'a{b="}",c="{1,2}"} 3', Point("a", (("b", "}"), ("c", "{1,2}")), 3), id="braces in a value"
        ),
        pytest.param("a +Inf", Point("a", (), float("inf")), id="no end"),
        pytest.param("<html>404</html>", None, id="no metrics"),
        pytest.param("a b", None, id="no number"),
    ],
)
def test_a_sample(line: str, expected: Point | None) -> None:
    found = [point for family in exposition.families(line).values() for point in family.points]
    assert found == ([expected] if expected else [])


def test_what_is_written() -> None:
    points = [
        Point("a_total", (("host", 'x"y\\z\nw'),), 3.0),
        Point("a_total", (), 0.25),
        Point("a_total", (("n", "1"),), float("nan")),
    ]
    said = exposition.written(
        [Family("a_total", "counter", "So many.", points), Family("empty", "gauge", "None.")]
    )
    assert said == (
        "# HELP a_total So many.\n# TYPE a_total counter\n"
        'a_total{host="x\\"y\\\\z\\nw"} 3\na_total 0.25\na_total{n="1"} NaN\n'
    )
