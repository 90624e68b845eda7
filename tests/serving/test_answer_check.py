"""An engine whose answers float32 does not explain is refused, with the answers."""

from medley.serving import answer_check, answers
from medley.serving.answers import Comparison
from tests.problems import raises_problem

PARIS = answers.read_references(1)[0]
RIGHT = Comparison(PARIS, PARIS.text, len(PARIS.steps), 0.00004, None)
WRONG = RIGHT.replace(
    text="The capital of France is Lyon.",
    equal_tokens=5,
    fault="token 5 differs, where they are 4.6858 apart",
)


def test_right_answers_pass() -> None:
    answer_check.require_correct_answers([RIGHT, RIGHT], "x", "y")
    assert list(answer_check.list_rows([RIGHT])) == [
        (
            "answer",
            "'What is the capital of France?': equal of 7 tokens, log-probabilities 4.0e-05 off: right",
        )
    ]


def test_another_answer_is_a_problem_with_its_text() -> None:
    cause = ("1 of 2 answers", "token 5 differs", "Lyon")
    with raises_problem("vllm 9.9 answers differently", cause=cause, fix="medley env list"):
        answer_check.require_correct_answers(
            [RIGHT, WRONG], "vllm 9.9 answers differently", "medley env list"
        )
    assert "5 equal of 7 tokens" in next(answer_check.list_rows([WRONG]))[1]
