"""A log that breaks off: where it was in a start, and not where it had ended or said why."""

import pytest

from tests.test_explain import names, of

LOADS = (
    "(EngineCore pid=9) INFO 11-22 08:01:33 [core.py:10] Initializing\n"
    "(EngineCore pid=9) Loading safetensors checkpoint shards:  43% Completed | 21/49 [02:17<02:51]\n"
)
LEFT = (
    "UserWarning: resource_tracker: There appear to be 1 leaked semaphore objects to clean up at shutdown\n"
)
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param([LOADS], ["ended-silently"], id="while it loads"),
        pytest.param([LOADS + LEFT], ["ended-silently"], id="and Python counts what is left"),
        pytest.param([LOADS.replace("\n", "") + "\r 50%" + LEFT], ["ended-silently"], id="in one line"),
        pytest.param(["INFO 11-22 08:01:33 [x.py:1] Compiling a graph\n"], ["ended-silently"], id="compiles"),
        pytest.param([LOADS + READY], [], id="ready"),
        pytest.param([LOADS, READY], [], id="another rank is ready"),
        pytest.param([LOADS + "KeyboardInterrupt\n" + LOADS], [], id="told to end"),
        pytest.param([LOADS + "INFO 11-22 08:01:33 [x.py:1] waiting\n"], [], id="it went on"),
        pytest.param([LOADS + '{"prompt": "The", "text": " wire"}\n'], [], id="it answered"),
        pytest.param([LOADS + "FooError: odd\n"], ["unknown-error"], id="it says why"),
        pytest.param(["[17962, 17963]\n"], [], id="no start"),
    ],
)
def test_an_end(texts: list[str], expected: list[str]) -> None:
    assert names(of(*texts)) == expected


def test_the_last_words_are_told() -> None:
    (found,) = of(LOADS + LEFT).problems
    assert "Loading safetensors checkpoint shards:  43% Completed" in found.problem().cause
    assert found.hit.number == 2
