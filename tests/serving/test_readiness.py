from medley.serving import readiness
from tests.problems import raises_problem


def test_nobody_listens_yet(free_port: int) -> None:
    assert readiness.request_probe_answer(f"http://127.0.0.1:{free_port}/v1", "tiny") is None


def test_a_completion_is_answered(server: str) -> None:
    assert readiness.request_probe_answer(server, "tiny") == " ba lu"


def test_another_models_name_is_a_problem(server: str) -> None:
    with raises_problem("'huge'", cause="404: The model `huge` does not exist.", fix=f"curl {server}/models"):
        readiness.request_probe_answer(server, "huge")
