"""The helper that waits returns what it waited for, and says what did not come."""

import threading

import pytest

from tests.waiting import STATE_CHARACTERS, becomes_true, wait_for


def test_the_first_true_result_is_returned() -> None:
    results = iter([None, "", "there", "later"])
    assert wait_for("a word is there", lambda: next(results)) == "there"
    assert next(results) == "later", "it does not look again"


def test_it_waits_for_another_thread() -> None:
    event = threading.Event()
    threading.Timer(0.05, event.set).start()
    assert wait_for("the timer fires", event.is_set)


def test_the_message_names_event_limit_and_state() -> None:
    with pytest.raises(AssertionError) as caught:
        wait_for("host2 is back", lambda: False, 0.02, state=lambda: ["first", "last"])
    assert str(caught.value) == "did not become true within 0.02 s: host2 is back; state: first\nlast"
    with pytest.raises(AssertionError, match=r"within 0 s: host2 is back$"):
        wait_for("host2 is back", lambda: False, 0)


@pytest.mark.parametrize(
    ("state", "shown"),
    [
        pytest.param("x" * 9000 + "end", "…" + "x" * (STATE_CHARACTERS - 3) + "end", id="long"),
        pytest.param(["a", "b"], "a\nb", id="lines"),
        pytest.param((1, None), "[1, None]", id="a tuple"),
        pytest.param([], "[]", id="no lines"),
        pytest.param({"host1": "up"}, "{'host1': 'up'}", id="a dictionary"),
        pytest.param(None, "None", id="nothing"),
    ],
)
def test_the_state_is_shown_shortened(state: object, shown: str) -> None:
    with pytest.raises(AssertionError) as caught:
        wait_for("it is so", lambda: False, 0, state=lambda: state)
    assert str(caught.value).partition("; state: ")[2] == shown


def test_a_state_that_cannot_be_shown_hides_no_message() -> None:
    def gone() -> object:
        raise OSError("no such host")

    with pytest.raises(AssertionError, match="it is so; state: unknown, because of OSError"):
        wait_for("it is so", lambda: False, 0, state=gone)


def test_an_error_of_the_condition_is_not_hidden() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_for("it is so", lambda: 1 / 0)


def test_it_rests_as_long_as_a_look_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    now, rests = [0.0], list[float]()

    def look() -> bool:
        now[0] += 3
        return False

    def sleep(seconds: float) -> None:
        rests.append(seconds)
        now[0] += seconds

    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", sleep)
    assert not becomes_true(look, 10)
    assert rests == [3, 3], "looks began at 0, 6 and 12 s: the last one after the limit"


def test_without_a_limit_it_looks_once() -> None:
    looks = iter([False, True])
    assert not becomes_true(lambda: next(looks), 0)
    assert becomes_true(lambda: next(looks), 0)
