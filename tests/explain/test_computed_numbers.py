"""A refused number that no option sets comes from others."""

import pytest

from medley.explain.computed_numbers import explain_number
from tests.explain.test_explain import of

BUDGET = "max_num_scheduled_tokens is set to {value}, which does not allow any tokens to be scheduled"
COMMAND = """$ docker run vllm/vllm-openai:v0.26.0 org/model --max-model-len 65536{more} \\
    --speculative-config '{{"method":"dflash","num_speculative_tokens":{draft}}}'
"""
BATCH = "(APIServer pid=1) INFO 08-01 09:20:22 [scheduler.py:241] It has max_num_batched_tokens=2304.\n"


def test_the_budget_is_computed_with_the_numbers_of_the_log() -> None:
    error = f"  Value error, {BUDGET.format(value=-1792)} [type=value_error]\n"
    (report,) = of(COMMAND.format(more="", draft=16) + BATCH + error).problems
    assert (report.match.failure.name, report.confidence) == ("token-budget-negative", "high")
    assert "2304 - 16 x 256 (the default) = -1792" in report.problem().cause
    assert "--max-num-batched-tokens 6400" in report.problem().fix
    assert "--max-num-seqs 72" in report.problem().fix
    assert 2304 - 16 * 72 > 0
    assert "named number" not in report.problem().fix


@pytest.mark.parametrize(("value", "streams"), [(0, 512), (-4096, 1024)])
def test_the_flags_of_the_log_are_its_inputs(value: int, streams: int) -> None:
    arguments = f"--max-num-batched-tokens 4096 --max-num-seqs {streams} {{'num_speculative_tokens': 8}}"
    number = explain_number(BUDGET.format(value=value), arguments, {})
    assert f"Here 4096 - 8 x {streams} = {value}" in (number.computed or "")
    assert number.budget_fix


def test_numbers_that_do_not_come_out_are_not_stated() -> None:
    number = explain_number(
        BUDGET.format(value=-5), "{'num_speculative_tokens': 8}", {"batched_tokens": "4096"}
    )
    assert "Here" not in (number.computed or "")


def test_another_negative_number_is_no_option() -> None:
    error = "ValueError: num_prefill_slots is -512, which must be positive\n"
    (report,) = of(f"$ vllm serve org/model --max-model-len 4096\n{error}").problems
    assert report.match.failure.name == "wording-computed"
    assert "does not set num_prefill_slots" in report.problem().cause


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("swap_space is -4, which must be positive", "--swap-space -4"),
        ("max_tokens must be at least 1, got -1", ""),
        ("max_model_len must be positive", ""),
        ("block_size is 0, which must be positive", ""),
    ],
)
def test_a_number_of_the_log_is_not_computed(text: str, arguments: str) -> None:
    assert explain_number(text, arguments, {}) == (None, None)
