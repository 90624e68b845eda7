"""A ready server that prints errors and answers 4xx or 5xx has a finding, which a healthy one has not."""

import pytest

from tests.explain.test_explain import names, of

READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
ERROR = "(APIServer pid=1) ERROR 01-10 10:12:21 [serving.py:315] "
POST = '(APIServer pid=1) INFO:     127.0.0.1:48912 - "POST /v1/chat/completions HTTP/1.1" {}\n'
BROKEN = ERROR + "Error in chat completion stream generator.\n"


def test_errors_before_an_answer_of_5xx_are_the_finding() -> None:
    (found,) = of(READY + POST.format("200 OK") + BROKEN + POST.format("500 Internal Server Error")).problems
    assert found.match.failure.name == "request-refused"
    assert found.confidence == "low"
    assert "500 Internal Server Error" in found.problem().what
    assert "POST /v1/chat/completions" in found.problem().cause
    assert "Error in chat completion stream generator" in found.problem().cause
    assert found.match.number == 3


def test_they_are_also_where_later_requests_succeed() -> None:
    later = POST.format("200 OK") * 3
    assert names(of(READY + BROKEN + POST.format("400 Bad Request") + later)) == ["request-refused"]


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ("404 Not Found", "--served-model-name"),
        ("401 Unauthorized", "--api-key"),
        ("400 Bad Request", "curl"),
    ],
)
def test_a_status_alone_has_its_advice(status: str, words: str) -> None:
    (found,) = of(READY + POST.format(status)).problems
    assert words in found.problem().fix
    assert "'\"'\"'" not in found.problem().fix


@pytest.mark.parametrize(
    "log",
    [
        READY + POST.format("400 Bad Request") + POST.format("200 OK"),
        READY + 'INFO:     127.0.0.1:1 - "GET /favicon.ico HTTP/1.1" 404 Not Found\n',
        READY + POST.format("404 Not Found") + "INFO:     Shutting down\n",
    ],
    ids=["answered later", "a browser's icon", "stopped"],
)
def test_is_no_finding(log: str) -> None:
    assert names(of(log)) == []


def test_an_exception_of_a_request_has_its_status() -> None:
    error = f'{ERROR}  File "/v/vllm/x.py", line 3, in run\n{ERROR}FooError: odd\n'
    (found,) = of(READY + error + POST.format("500 Internal Server Error")).problems
    assert found.match.failure.name == "request-failed"
    assert found.problem().what.startswith(
        "a request failed (500 Internal Server Error), and the server goes on"
    )
    (alone,) = of(READY + error).problems
    assert alone.problem().what.startswith("a request failed, and the server goes on")


def test_an_error_of_memory_without_figures_has_no_stop_at_its_start() -> None:
    (found,) = of("RuntimeError: CUDA error: out of memory\n").problems
    assert found.problem().cause.startswith("Usual causes")


def test_an_absent_model_is_compared_with_the_served_one() -> None:
    absent = f"{ERROR}Error with model message='The model `q/Llama` does not exist.' code=404\n"
    served = '{"object":"list","data":[{"id":"/q/Llama","object":"model"}]}\n'
    (found,) = of(READY + absent + POST.format("404 Not Found") + served).problems
    assert "no model of the name that the request has: q/Llama; its own is /q/Llama" in found.problem().cause
    assert "no such path" not in found.problem().cause


def test_a_path_outside_the_api_is_the_reason_itself() -> None:
    """The advice was another name of the model."""
    generate = POST.replace("/v1/chat/completions", "/generate").format("404 Not Found")
    (found,) = of(READY + generate).problems
    assert "served-model-name" not in found.problem().fix
    assert "/v1/completions" in found.problem().fix


def test_a_key_may_come_from_the_environment() -> None:
    (found,) = of(READY + POST.format("401 Unauthorized")).problems
    assert "VLLM_API_KEY" in found.problem().cause


def test_the_answer_that_a_client_printed_is_the_message() -> None:
    answer = '{"error":{"message":"max_tokens is too large: 65536.","type":"BadRequestError","code":400}}\n'
    (found,) = of(READY + POST.format("400 Bad Request") + answer).problems
    assert "max_tokens is too large: 65536" in found.problem().cause
