"""An argument between two packages is a mismatch of versions, unless the request or a flag has it."""

import pytest

from tests.explain.test_explain import names, of

CALLS = """  File "/v/dist-packages/{caller}/renderers/x.py", line 34, in safe_apply_chat_template
  File "/v/dist-packages/{called}/tokenization.py", line 1432, in apply_chat_template
"""
ERRORS = [
    "ValueError: Kwargs ['reasoning_effort'] are not supported by `MistralCommonTokenizer.apply`.",
    "ValueError: Unexpected kwargs: ['reasoning_effort']",
    "TypeError: Unknown argument 'reasoning_effort' in apply_chat_template",
]
VERSIONS = "transformers                      4.57.6\nvllm                              0.18.1rc1\n"


@pytest.mark.parametrize("error", ERRORS)
@pytest.mark.parametrize(
    ("caller", "called"), [("vllm", "transformers"), ("sglang", "transformers"), ("vllm", "mistral_common")]
)
def test_both_packages_and_their_versions_are_named(error: str, caller: str, called: str) -> None:
    (report,) = of(CALLS.format(caller=caller, called=called) + f"{error}\n{VERSIONS}").problems
    assert report.match.failure.name == "packages-unlike"
    problem = report.problem()
    assert f"{caller} calls {called} with reasoning_effort" in problem.cause
    assert "transformers 4.57.6" in problem.cause
    assert "vllm 0.18.1rc1" in problem.cause
    assert "--" not in problem.fix.replace("--image", "")


@pytest.mark.parametrize(
    "before",
    ['$ curl -d \'{"reasoning_effort":"low"}\' localhost:8000/v1/chat/completions\n'],
)
def test_an_argument_of_the_request_is_no_mismatch(before: str) -> None:
    log = before + CALLS.format(caller="vllm", called="transformers") + ERRORS[0] + "\n"
    assert "packages-unlike" not in names(of(log))


def test_a_call_within_one_package_is_no_mismatch() -> None:
    log = CALLS.format(caller="vllm", called="vllm") + ERRORS[0] + "\n"
    assert "packages-unlike" not in names(of(log))
