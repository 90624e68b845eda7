"""Figures of engines' own metrics, recorded here."""

import pytest

from medley.cluster import ray
from medley.serving import metrics
from medley.serving.metrics import parse_figures
from tests.measurement.monitor.hosts import METRICS


def test_vllm() -> None:
    assert parse_figures((METRICS / "vllm.txt").read_text()) == pytest.approx(
        {
            "running": 0,
            "waiting": 0,
            "preempted_total": 0,
            "kv_cache": 0,
            "generated_tokens_total": 28,
            "prompt_tokens_total": 28,
            "first_token_s_total": 0.04729723930358887,
            "first_token_total": 2,
        }
    )


def test_sglang_tells_of_streams_apart() -> None:
    figures = parse_figures((METRICS / "sglang.txt").read_text())
    assert (
        figures["generated_tokens_total"],
        figures["prompt_tokens_total"],
        figures["first_token_total"],
    ) == (
        28,
        28,
        2,
    )
    assert (figures["running"], figures["waiting"], figures["kv_cache"]) == (0, 0, 0)


def test_engines_side_by_side_add_up_and_ranks_of_one_do_not() -> None:
    text = "".join(
        f'{name}{{{key}="{index}",model_name="m"}} {value}\n'
        for name, key, values in (
            ("vllm:num_requests_running", "engine", (6, 2)),
            ("vllm:kv_cache_usage_perc", "engine", (0.5, 0.1)),
            ("sglang:num_queue_reqs", "pp_rank", (3, 3)),
            ("sglang:generation_tokens_total", "dp_rank", (10, 20)),
        )
        for index, value in enumerate(values)
    )
    assert parse_figures(text) == {"running": 8, "kv_cache": 0.5, "waiting": 3, "generated_tokens_total": 30}


def test_of_other_programs_nothing_is_known() -> None:
    assert parse_figures("nginx_connections_active 5\n") == {}


def test_slots_of_ray() -> None:
    assert ray.parse_slot_metrics((METRICS / "ray.txt").read_text()) == {"AVAILABLE": 1.0, "USED": 0.0}
    assert ray.parse_slot_metrics("") == {}


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        pytest.param('a{b="c"} 1', ({"b": "c"}, 1), id="a label"),
        pytest.param("a 1e3 1700000000000", ({}, 1000), id="a time"),
        pytest.param('a{b="x\\"y\\\\z\\nw",} 2', ({"b": 'x"y\\z\nw'}, 2), id="escapes"),
        pytest.param('a{b="}",c="{1,2}"} 3', ({"b": "}", "c": "{1,2}"}, 3), id="braces in a value"),
        pytest.param("a +Inf", ({}, float("inf")), id="no end"),
        pytest.param("<html>404</html>", None, id="no metrics"),
        pytest.param("a b", None, id="no number"),
        pytest.param(f"a {'9' * 400}", None, id="more than a float"),
        pytest.param(f'a{{b="{"x" * 20_000}"}} 1', None, id="longer than any engine's"),
        pytest.param('a{b="' + '\\"' * 200 + '"} 1', None, id="more quotes than any engine's"),
        pytest.param("# TYPE a of no kind", None, id="no type"),
    ],
)
def test_a_line_that_is_no_sample_is_left_out(
    line: str, expected: tuple[dict[str, str], float] | None
) -> None:
    families = metrics.parse_families(["# TYPE z gauge", "z 5", line, "y 6"])
    samples = {sample.name: (sample.labels, sample.value) for family in families for sample in family.samples}
    assert samples == {"z": ({}, 5), "y": ({}, 6), **({"a": expected} if expected else {})}
