"""A log that ends inside a start or while requests run names the last step; a finished one names nothing."""

import pytest

from medley.explain import patterns
from tests.explain.test_explain import names, of

PHASES = {each.name: each for each in patterns.load(user=False).phases}
READY = "(APIServer pid=1) INFO:     Application startup complete.\n"
LOADS = "(EngineCore pid=9) INFO 11-22 08:01:33 [gpu_model_runner.py:1] Starting to load model /m...\n"
CONFIDENCE_RANK = "(Worker pid=7) INFO 11-22 08:01:30 [x.py:1] world_size=2 rank=1 distributed_init_method=tcp://10.0.0.1:2\n"
OTHER = "(Worker pid=7) INFO 11-22 08:01:33 [x.py:1] some line that no phase has\n"
STATS = (
    "(APIServer pid=1) INFO 11-22 14:02:05 [loggers.py:273] Engine 000: Avg prompt throughput: 0.0 tokens/s, "
    "Avg generation throughput: {speed} tokens/s, Running: {running} reqs, Waiting: 0 reqs\n"
)


@pytest.mark.parametrize("name", [name for name, phase in PHASES.items() if not phase.complete])
def test_a_phase_is_named_in_its_examples(name: str) -> None:
    assert PHASES[name].examples
    for log in PHASES[name].examples:
        (found,) = of(log).problems
        assert found.match.failure.name == name
        assert found.confidence == ("medium" if name == "hang-in-capture" else "low")
        assert found.problem().cause.startswith("no error is in it. ") or name == "stuck-while-serving"
        assert "?" not in found.problem().cause
    for log in PHASES[name].look_alikes:
        assert name not in names(of(log))


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        pytest.param(
            [CONFIDENCE_RANK + OTHER * 50], ["ended-while-meeting"], id="lines that no phase has follow"
        ),
        pytest.param(
            [LOADS + "(Worker pid=7) INFO 11-22 08:01:33 [x.py:1] Padding Mamba page size by 1.02%\n"],
            ["ended-while-profiling"],
            id="while memory is divided",
        ),
        pytest.param([CONFIDENCE_RANK + LOADS], ["ended-while-loading"], id="the last of two steps"),
        pytest.param([LOADS, READY], [], id="another rank is ready"),
        pytest.param([LOADS, CONFIDENCE_RANK], ["ended-while-loading"], id="no rank is ready"),
        pytest.param([READY + OTHER + LOADS], ["ended-while-loading"], id="a second start in one log"),
        pytest.param([READY + STATS.format(speed="0.0", running=2)], ["stuck-while-serving"], id="stuck"),
        pytest.param([READY + STATS.format(speed="9.1", running=2)], [], id="it generates"),
        pytest.param([READY + STATS.format(speed="0.0", running=0)], [], id="idle"),
        pytest.param([CONFIDENCE_RANK + "INFO:     Shutting down\n"], [], id="stopped by a user"),
        pytest.param(
            [CONFIDENCE_RANK + "(Worker pid=7) ERROR 11-22 08:01:34 [x.py:1] odd\n"],
            ["unknown-error"],
            id="error",
        ),
        pytest.param(["Cloning into 'vllm'...\ndone.\n"], [], id="no engine"),
    ],
)
def test_where_a_log_ends(texts: list[str], expected: list[str]) -> None:
    assert names(of(*texts)) == expected


def test_the_silent_end_of_a_rank_is_named_before_the_connection_that_it_closed() -> None:
    lost = "RuntimeError: [../gloo/transport/tcp/pair.cc:553] Connection closed by peer [10.0.0.2]:12345.\n"
    first, then = of(lost, CONFIDENCE_RANK + LOADS).problems
    assert (first.match.failure.name, then.match.failure.name) == ("ended-while-loading", "gloo-lost")
    assert (first.follows, then.follows) == (False, True)
    assert names(of(lost, CONFIDENCE_RANK + LOADS + READY)) == ["gloo-lost"]


def test_an_end_without_a_reason_names_the_last_step() -> None:
    dead = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"
    (found,) = of(CONFIDENCE_RANK + LOADS + dead).problems
    assert found.match.failure.name == "engine-ended"
    assert "Starting to load model /m" in found.problem().cause
    assert "sudo dmesg" in found.problem().fix


def test_a_stuck_engine_names_the_last_step() -> None:
    waits = (
        "INFO 11-22 08:02:33 [x.py:1] No available shared memory broadcast block found in 60 seconds. This\n"
    )
    (found,) = of(LOADS + waits * 4).problems
    assert found.match.failure.name == "engine-stuck"
    assert "Starting to load model /m" in found.problem().cause


def test_the_step_and_its_line() -> None:
    (found,) = of(CONFIDENCE_RANK + OTHER).problems
    assert "distributed_init_method=tcp://10.0.0.1:2" in found.problem().cause
    assert found.match.number == 1


def test_a_load_that_does_not_end_names_its_loader() -> None:
    """A fast loader filled the memory of a Spark, and the log ended at its first file."""
    log = (
        "(EngineCore pid=9) INFO 04-22 10:00:00 [x.py:1] Starting to load model a/b...\n"
        "Loading safetensors using Fastsafetensor loader:   0% Completed | 0/2 [00:00<?, ?it/s]\n"
    )
    assert "without --load-format Fastsafetensor" in of(log).problems[0].problem().fix
    assert (
        "--load-format"
        not in of(log.replace("using Fastsafetensor loader", "checkpoint shards")).problems[0].problem().fix
    )
