"""Figures of engines' own metrics, recorded here."""

import pytest

from medley import ray
from medley.monitor import engine, exposition
from tests.monitored import METRICS


def figures(text: str) -> dict[str, float]:
    return engine.figures(exposition.families(text))


def test_vllm() -> None:
    assert figures((METRICS / "vllm.txt").read_text()) == pytest.approx(
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
    found = figures((METRICS / "sglang.txt").read_text())
    assert (found["generated_tokens_total"], found["prompt_tokens_total"], found["first_token_total"]) == (
        28,
        28,
        2,
    )
    assert (found["running"], found["waiting"], found["kv_cache"]) == (0, 0, 0)


def test_engines_side_by_side_add_up_and_ranks_of_one_do_not() -> None:
    said = "".join(
        f'{name}{{{key}="{nth}",model_name="m"}} {value}\n'
        for name, key, values in (
            ("vllm:num_requests_running", "engine", (6, 2)),
            ("vllm:kv_cache_usage_perc", "engine", (0.5, 0.1)),
            ("sglang:num_queue_reqs", "pp_rank", (3, 3)),
            ("sglang:generation_tokens_total", "dp_rank", (10, 20)),
        )
        for nth, value in enumerate(values)
    )
    assert figures(said) == {"running": 8, "kv_cache": 0.5, "waiting": 3, "generated_tokens_total": 30}


def test_of_other_programs_nothing_is_known() -> None:
    assert figures("nginx_connections_active 5\n") == {}


def test_slots_of_ray() -> None:
    assert ray.slots((METRICS / "ray.txt").read_text()) == {"AVAILABLE": 1.0, "USED": 0.0}
    assert ray.slots("") == {}
