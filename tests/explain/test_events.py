"""A log that breaks off: where it was in a start, and not where it had ended or said why."""

import pytest

from tests.explain.test_context import traced
from tests.explain.test_explain import names, of

LOADS = (
    "(EngineCore pid=9) INFO 11-22 08:01:33 [core.py:10] Initializing\n"
    "(EngineCore pid=9) Loading safetensors checkpoint shards:  43% Completed | 21/49 [02:17<02:51]\n"
)
LEFT = (
    "UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n"
)
INITIALIZED = "INFO 11-22 08:01:33 [core.py:402] init engine (profile, create kv cache, warmup) took 9 s\n"
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([LOADS], ["ended-while-loading"], id="while it loads"),
        pytest.param([LOADS + LEFT], ["ended-while-loading"], id="and Python counts what is left"),
        pytest.param([LOADS.replace("\n", "") + "\r 50%" + LEFT], ["ended-while-loading"], id="in one line"),
        pytest.param(
            ["INFO 11-22 08:01:33 [x.py:1] Compiling a graph\n"], ["ended-while-compiling"], id="compiles"
        ),
        pytest.param([LOADS + READY], [], id="ready"),
        pytest.param([LOADS, READY], [], id="another rank is ready"),
        pytest.param([LOADS + "KeyboardInterrupt\n" + LOADS], [], id="told to end"),
        pytest.param(
            [LOADS + "INFO 11-22 08:01:33 [x.py:1] waiting\n"],
            ["ended-while-loading"],
            id="other lines after",
        ),
        pytest.param([LOADS + INITIALIZED + '{"prompt": "The", "text": " wire"}\n'], [], id="it answered"),
        pytest.param([LOADS + "FooError: odd\n"], ["unknown-error"], id="it says why"),
        pytest.param(["[17962, 17963]\n"], [], id="no start"),
    ],
)
def test_an_end(texts: list[str], expected: list[str]) -> None:
    assert names(of(*texts)) == expected


def test_the_last_words_are_told() -> None:
    (found,) = of(LOADS + LEFT).problems
    assert "Loading safetensors checkpoint shards:  43% Completed" in found.problem().cause
    assert found.match.number == 2


TRACE = 'Traceback (most recent call last):\n  File "x.py", line 1, in f\n    g()\n'
ODD = f"{TRACE}FooError: something odd\n"
DEAD = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"
BECAUSE = "\nThe above exception was the direct cause of the following exception:\n\n"
ENGINE = "(EngineCore pid=9) ERROR 11-22 08:01:33 [core.py:1109] "
SERVED = 'INFO:     10.0.0.7:4242 - "POST /v1/completions HTTP/1.1" 200 OK\n'


def prefixed(prefix: str, text: str) -> str:
    return "".join(f"{prefix}{line}\n" for line in text.splitlines())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        pytest.param(ODD, "FooError: something odd", id="a script's"),
        pytest.param(f"{ODD}{DEAD}", "FooError: something odd", id="before what follows"),
        pytest.param(f"{DEAD}{ODD}", "FooError: something odd", id="also where it is printed later"),
        pytest.param(
            prefixed(ENGINE, ODD) + f"{TRACE}BarError: Worker failed with error 'something odd'\n{DEAD}",
            "FooError: something odd",
            id="the first that has a reason of its own",
        ),
        pytest.param(f"{ODD}{DURING}{TRACE}BarError: so\n", "BarError: so", id="the end of a chain"),
        pytest.param(
            f"{ODD}{BECAUSE}{TRACE}BarError: so\n",
            "BarError: so; raised because of: FooError: something odd",
            id="of a chain from",
        ),
        pytest.param(
            f"{ODD}{BECAUSE}{TRACE}EngineDeadError: see above\n",
            "FooError: something odd",
            id="not a follower",
        ),
        pytest.param(
            f"{TRACE}FooError: 1 validation error for Config\nsize\n  Input is odd\n",
            "FooError: 1 validation error for Config size Input is odd",
            id="of several lines",
        ),
        pytest.param(
            f"{TRACE}    assert a == b, c\nAssertionError\n",
            "AssertionError: assert a == b, c",
            id="an assertion",
        ),
        pytest.param(f"Error: it is odd\n{ODD}", "FooError: something odd", id="a traceback before words"),
        pytest.param("Error: it is odd\n", "Error: it is odd", id="a command's"),
        pytest.param(f"{READY}{SERVED}{ODD}{DEAD}", "FooError: something odd", id="it served, and died"),
        pytest.param(
            f"{TRACE}BarError: long ago\n{SERVED * 700}{ODD}{DEAD}",
            "FooError: something odd",
            id="the last words",
        ),
        pytest.param(ODD.replace("\n", "\r\n"), "FooError: something odd", id="lines of Windows"),
        pytest.param(prefixed("head-1  | ", ODD), "FooError: something odd", id="Docker Compose"),
        pytest.param(
            prefixed("2026-11-22T08:01:33.123456789Z stderr F ", ODD),
            "FooError: something odd",
            id="Kubernetes",
        ),
        pytest.param(prefixed("[pod/vllm-0/vllm] ", ODD), "FooError: something odd", id="kubectl"),
        pytest.param(
            prefixed("Nov 22 08:01:33 spark-1 vllm[812]: ", ODD), "FooError: something odd", id="journald"
        ),
        pytest.param(
            prefixed("\x1b[36m(EngineCore pid=8)\x1b[0;0m ", ODD), "FooError: something odd", id="colours"
        ),
        pytest.param(prefixed("[rank1]: ", ODD), "FooError: something odd", id="torchrun"),
        pytest.param(
            "    g()\nFooError: something odd\n", "FooError: something odd", id="cut at its beginning"
        ),
    ],
)
def test_its_own_words(text: str, said: str) -> None:
    (found,) = of(text).problems
    assert found.match.failure.name == "unknown-error"
    assert found.problem().cause == f"its message: {said}"
    assert [scan.name for scan in of(text).unknown] == ["log-0"]


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{ODD}{READY}", id="ready after all"),
        pytest.param(f"{READY}{ODD}{SERVED}", id="a request's, and it goes on"),
        pytest.param(f"{READY}INFO:     Shutting down\n{ODD}", id="told to end"),
        pytest.param(prefixed("WARNING 11-21 08:00:00 [x.py:1] ", ODD), id="a warning"),
        pytest.param(prefixed("INFO 11-21 08:00:00 [x.py:1] ", ODD), id="an information"),
        pytest.param(f"{TRACE}KeyboardInterrupt\n", id="Ctrl-C"),
        pytest.param(f"Ignore import error when loading x: FooError: something odd\n{SERVED}", id="ignored"),
    ],
)
def test_none(text: str) -> None:
    assert names(of(text)) == []


def test_another_rank_s_log_is_before_what_follows() -> None:
    lost = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:12345.\n"
    assert names(of(lost, ODD)) == ["unknown-error"]
    assert names(of(lost, READY + ODD)) == ["gloo-lost"]


def test_no_error_of_a_rank_where_another_is_ready() -> None:
    assert names(of(ODD, READY)) == []


def test_many_tracebacks_before_the_one_that_counts() -> None:
    many = "".join(f"{TRACE}BarError: number {at}\n" for at in range(500))
    (found,) = of(f"{READY}{many}{ODD}{DEAD}").problems
    assert found.match.number > 1900


def test_an_exception_of_a_request_is_not_the_end_of_the_server() -> None:
    ready = "(APIServer pid=1) INFO:     Application startup complete.\n"
    text = ready + traced("vllm/tool_parsers/glm4.py", error="AttributeError: odd")
    (found,) = of(text).problems
    assert found.match.failure.name == "request-failed"
    assert found.confidence == "low"
    assert "parser" in found.problem().what
    assert not of(text + "INFO:     Shutting down\n").problems


def test_an_exception_in_a_group_is_named() -> None:
    inner = '    | Traceback (most recent call last):\n    |   File "/opt/vllm/lora/x.py", line 1, in go\n'
    text = f"  + Exception Group Traceback (most recent call last):\n{inner}    |     x()\n"
    (found,) = of(f"{text}    | KeyError: 'odd'\n    +------\n").problems
    assert found.match.line.text == "KeyError: 'odd'"
    assert "LoRA" in found.problem().what


def test_an_error_of_a_stream_counts_where_other_requests_are_answered() -> None:
    text = READY + prefixed("(APIServer pid=1) ERROR 11-22 08:01:33 [serving.py:1244] ", ODD)
    (failure,) = of(text + SERVED).problems
    assert failure.match.failure.name == "request-failed"
    assert failure.confidence == "low"


def test_an_engine_that_a_request_ended_does_not_go_on() -> None:
    dead = (
        "CRITICAL 03-30 02:15:01 [launcher.py:116] MQLLMEngine is already dead, terminating server process\n"
    )
    text = READY + prefixed("ERROR 03-30 02:15:01 [engine.py:160] ", ODD) + dead
    (failure,) = of(text).problems
    assert failure.match.failure.name == "unknown-error"


def test_a_tool_s_last_words_are_an_error_of_the_system() -> None:
    """They have no level and no word such as Error."""
    (found,) = of("$ ip link set dev eth9 up\nmount: /models/new: Operation not permitted\n").problems
    assert "Operation not permitted" in found.problem().cause
    assert found.confidence == "low"


@pytest.mark.parametrize("last", ["stopped; nothing of it runs any more", "KeyboardInterrupt"])
def test_an_end_by_its_user_is_no_failure(last: str) -> None:
    log = "(APIServer pid=1) INFO:     Application startup complete.\n"
    log += "(APIServer pid=1) INFO 07-17 18:24:44 [launcher.py:110] Shutting down FastAPI HTTP server.\n"
    assert names(of(log)) == ["server-terminated"]
    assert names(of(f"{log}{last}\n")) == []
