import pytest

from medley.serving import api
from tests.problems import raises_problem

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_chat_comes_in_pieces_and_ends_with_its_speed(server: str) -> None:
    *pieces, speed = api.stream_chat(server, "tiny", HELLO, max_tokens=9)
    assert pieces == ["so ", "it ", "is"]
    assert isinstance(speed, api.AnswerSpeed)
    assert (speed.prompt_tokens, speed.answer_tokens) == (5, 3)
    assert 0 < speed.first_token_s < speed.total_s
    rate = speed.tokens_per_second
    assert rate is not None
    assert rate < 100, "three words, 20 ms after each"


@pytest.mark.parametrize("server", ["breaks-off"], indirect=True)
def test_an_answer_that_breaks_off_is_a_problem(server: str) -> None:
    with raises_problem("aborted", cause="engine is gone"):
        list(api.stream_chat(server, "tiny", HELLO, max_tokens=None))


def test_another_models_name_is_a_problem(server: str) -> None:
    cause, fix = "404: The model `huge` does not exist.", f"curl {server}/models"
    with raises_problem("'huge'", cause=cause, fix=fix):
        list(api.stream_chat(server, "huge", HELLO, max_tokens=None))


@pytest.mark.parametrize(
    ("written", "url"),
    [
        ("http://spark:8000/v1/", "http://spark:8000/v1"),
        ("http://spark:8000", "http://spark:8000/v1"),
        ("spark:8000", "http://spark:8000/v1"),
        ("https://host/openai", "https://host/openai"),
    ],
)
def test_base(written: str, url: str) -> None:
    assert api.complete_url(written) == url


def test_models(server: str) -> None:
    assert api.list_models(server) == ["tiny"]


def test_no_server_is_a_problem(free_port: int) -> None:
    url = f"http://127.0.0.1:{free_port}/v1"
    with raises_problem(
        url, cause="Connection refused", fix=("medley serve smollm2", "--url http://HOST:PORT/v1")
    ):
        api.list_models(url)


def test_one_token_has_no_rate() -> None:
    assert api.AnswerSpeed(5, 1, 0.5, 0.5, 1).tokens_per_second is None
    assert api.AnswerSpeed(5, 11, 0.5, 1.5, 11).tokens_per_second == 10


@pytest.mark.parametrize(
    ("total_s", "pieces"),
    [pytest.param(2.001, 20, id="all at once after the first"), pytest.param(4.0, 2, id="in two pieces")],
)
def test_the_speed_of_an_answer_that_comes_at_once_is_that_of_the_whole_time(
    total_s: float, pieces: int
) -> None:
    assert api.AnswerSpeed(5, 20, 2.0, total_s, pieces).tokens_per_second == 20 / total_s
