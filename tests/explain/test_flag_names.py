"""What is known about a flag that an engine refused."""

import pytest

from medley.explain.flag_names import explain_flags
from medley.explain.patterns import read_engine_flags
from tests.explain.test_explain import of


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("vllm serve: error: unrecognized arguments: --max-model-length 8", "of vLLM is --max-model-len"),
        ("sglang serve: error: unrecognized arguments: --max-model-len 8", "SGLang has --context-length"),
        ("launch_server.py: error: unrecognized arguments: --max_model_len", "SGLang has --context-length"),
        ("vllm: error: unrecognized arguments: --mem-fraction-static 0.8", "--gpu-memory-utilization"),
        ("vllm: error: unrecognized arguments: --async-scheduling", "is a flag of vLLM 0.33.0"),
        ("vllm: error: unrecognized arguments: --xyzzy", None),
        ("vllm: error: unrecognized arguments: serve m", None),
        ("FooError: odd --max-model-length", None),
    ],
)
def test_a_refused_flag_is_compared_with_those_of_the_locks(line: str, said: str | None) -> None:
    known = explain_flags(line, None, read_engine_flags())
    assert (known or "") == "" if said is None else said in (known or "")


def test_the_answer_names_the_nearest_flag() -> None:
    (found,) = of("vllm serve: error: unrecognized arguments: --max-model-length 8\n").problems
    assert "--max-model-len" in found.problem().cause


def test_a_fix_for_older_versions_is_left_out_for_a_newer_one() -> None:
    start = "(APIServer pid=1) INFO 11-22 08:01:33 [utils.py:344] vLLM API server version {}\n"
    error = "ValueError: Tokenizer class TokenizersBackend does not exist or is not currently imported.\n"
    old, new = (of(start.format(each) + error).problems[0].problem().fix for each in ("0.16.0", "0.19.1"))
    assert "so a newer engine" in old
    assert "this engine (vLLM 0.19.1) can use it" in new
    assert "newer engine" not in new
    assert "newer engine" in of(error).problems[0].problem().fix
