"""Each known failure is found in its own examples, and not in what looks like it."""

import re
from pathlib import Path

import pytest

from medley.explain import patterns
from medley.explain.diagnosis import explain_logs
from medley.explain.root_cause import Explanation
from medley.explain.scanned_log import Log
from medley.planner.memory import UNIFIED_SHARE

FAILURES = {each.name: each for each in patterns.load(user=False).failures}
HEALTHY = sorted((Path(__file__).parents[1] / "logs" / "healthy").glob("*.txt"))
EXAMPLES = [
    pytest.param(each.name, log, id=f"{each.name}-{number}")
    for each in FAILURES.values()
    for number, log in enumerate(each.examples, 1)
]
REFUSED = """pydantic_core._pydantic_core.ValidationError: 1 validation error for ChatCompletionResponseChoice
block_size
  Input should be 1, 8 or 16 [type=literal_error, input_value=3, input_type=int]
    For further information visit https://errors.pydantic.dev/2.9/v/literal_error
"""
BENCH = """Error loading tokenizer 'demo': demo is not a local folder and is not a valid model identifier
Repository Not Found for url: https://huggingface.co/demo/resolve/main/tokenizer.json.
Falling back to 'gpt2' tokenizer as approximation.
| demo | tg1024 | 7.80 |
"""


def of(*texts: str) -> Explanation:
    return explain_logs(Log(f"log-{at}", [text.encode()]) for at, text in enumerate(texts))


def names(found: Explanation) -> list[str]:
    return [each.match.failure.name for each in found.problems]


def example(name: str) -> str:
    """A log that shows this failure."""
    return FAILURES[name].examples[0]


@pytest.mark.parametrize(("name", "log"), EXAMPLES)
def test_is_named(name: str, log: str) -> None:
    found = of(log)
    assert names(found)[:1] == [name]
    table = found.problems[0].table
    assert all(table[key] for key in ("what", "cause", "fix", "line", "confidence", "file", "line_number"))
    said = f"{table['what']} {table['cause']} {table['fix']}"
    assert "?" not in said


def test_a_heading_names_no_error_that_its_examples_do_not_have() -> None:
    """Of a group of statuses each line has its own."""
    wrong = {
        failure.name: word
        for failure in FAILURES.values()
        for word in re.findall(r"\b\w+_ERR(?:OR)?\b|\b\w+(?:Error|Exception)\b", failure.what)
        if not all(word in text for text in failure.examples)
    }
    assert not wrong


@pytest.mark.parametrize("name", FAILURES)
def test_no_advice_exceeds_what_medley_gives_unified_memory(name: str) -> None:
    shares = re.findall(r"(?:--gpu-memory-utilization|--mem-fraction-static) ([0-9.]+)", FAILURES[name].fix)
    assert all(float(share) <= UNIFIED_SHARE for share in shares)


def test_a_page_cache_may_be_why_no_memory_is_left() -> None:
    fix = FAILURES["kv-cache-none"].fix
    assert "page cache" in FAILURES["kv-cache-none"].cause
    assert "sudo sysctl vm.drop_caches=3" in fix
    assert "--kv-cache-memory-bytes 4G" in fix


@pytest.mark.parametrize("name", FAILURES)
def test_is_not_mistaken(name: str) -> None:
    assert FAILURES[name].examples
    assert FAILURES[name].look_alikes
    for log in FAILURES[name].look_alikes:
        assert name not in names(of(log))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("gpu-memory-taken", "23.41 of 119.7 GiB are free"),
        ("heads-indivisible", "14 cannot be shared by 4 ranks"),
        ("nccl-mixed-transports", "a message of type 3 instead of 4"),
        ("kv-cache-small", "one request of"),
    ],
)
def test_the_cause_has_the_numbers_of_the_line(name: str, words: str) -> None:
    assert words in of(example(name)).problems[0].table["cause"]


@pytest.mark.parametrize(
    "text",
    [REFUSED, "Traceback (most recent call last):\n  x\ndocker.errors.NotFound: no such thing\n"],
    ids=["a setting of none of the engine's", "an error of a library"],
)
def test_is_unknown(text: str) -> None:
    assert names(of(text)) == ["unknown-error"]


@pytest.mark.parametrize(
    "text",
    [
        BENCH,
        "Skipping import of cpp extensions: /x/torchao/_C.abi3.so: undefined symbol: _ZN3c105\n",
        "INFO 11-22 08:01:33 [x.py:1] Failed to fetch image https://a.example/x.png: 404\n",
    ],
)
def test_is_none(text: str) -> None:
    assert names(of(text)) == []


def test_a_kill_without_figures_has_no_empty_clause_and_names_its_step() -> None:
    step = "[2026-09-04 08:01:11 TP0] Converting MoE expert weights to FP4 ...\n"
    kill = "gx10-a kernel: oom-kill:global_oom,task=sglang::schedul,pid=41877,uid=0\n"
    (found,) = of(step + kill).problems
    cause = found.problem().cause
    assert cause.startswith(
        "sglang::schedul (process 41877) was killed; the last step before it: Converting MoE"
    )
    (bare,) = of("kernel: python3 invoked oom-killer: gfp_mask=0x140dca\n").problems
    assert bare.problem().cause.startswith("python3 was killed. On unified memory")


def test_a_constructor_that_a_call_does_not_fit_is_named_by_its_class() -> None:
    call = (
        '  File "/opt/venv/lib/python3.12/site-packages/vllm/model_executor/models/x.py", line 2, in build\n'
    )
    for name in ("FusedMoE.__init__", "layer.FusedMoE.__init__", "FusedMoE", "layer.FusedMoE"):
        (found,) = of(f"{call}TypeError: {name}() got an unexpected keyword argument 'reduce'\n").problems
        assert found.problem().cause.startswith("FusedMoE() got an unexpected keyword argument")


def test_a_length_can_be_typed() -> None:
    """vLLM says the model's as a fraction."""
    line = "ValueError: User-specified max_model_len (99999) is greater than the derived max_model_len "
    found = of(f"{line}(max_position_embeddings=2048.0 or model_max_length=None in model's config.json).")
    assert found.first
    assert "--context 2048;" in found.first.problem().fix


@pytest.mark.parametrize("file", HEALTHY, ids=lambda file: file.stem)
def test_a_healthy_log_is_healthy(file: Path) -> None:
    found = explain_logs([Log(file.name, [file.read_bytes()])])
    assert not names(found)
    assert not found.unknown


def test_expressions_are_compiled_when_a_line_needs_them() -> None:
    for each in FAILURES.values():
        for sign in each.signs:
            sign.__dict__.pop("expression", None)
    of("".join(file.read_text() for file in HEALTHY), example("disk-full"))
    compiled = [sign for each in FAILURES.values() for sign in each.signs if "expression" in sign.__dict__]
    assert 0 < len(compiled) < 20
