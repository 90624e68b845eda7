"""Each engine's own benchmark: how it is started, and what it wrote here."""

import re
from pathlib import Path

import pytest

from medley.measurement.bench.clients import CLIENTS, KEY_VARIABLE, OfflineMode, ServedModel
from medley.measurement.bench.figures import read_result
from medley.measurement.bench.load import BenchRun
from medley.schema import EngineName
from tests.measurement.bench.benches import FILES

RUN = BenchRun(4, 8, 32, 16, 7, 1)
TARGET = ServedModel("http://127.0.0.1:8311", "/v1", "demo", "/models/demo", variables={"DO_NOT_TRACK": "1"})
ENGINES: tuple[EngineName, ...] = ("vllm", "sglang")


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    text = " ".join(argv)
    return dict(re.findall(r"(--[\w-]+) ([^-]\S*)", text))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_load_is_what_is_asked(engine: EngineName) -> None:
    command = CLIENTS[engine].build_command(Path("/env/bin"), TARGET, RUN, Path("/tmp/out/result.json"))
    arguments = flags(command.argv)
    assert arguments["--max-concurrency"] == "4"
    assert arguments["--num-prompts"] == "8"
    assert arguments["--random-input-len"] == "32"
    assert arguments["--random-output-len"] == "16"
    assert arguments["--seed"] == "7"
    assert arguments["--base-url"] == "http://127.0.0.1:8311"
    assert command.argv[0].startswith("/env/bin/")
    assert command.env == {"DO_NOT_TRACK": "1"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_key_is_in_no_argument_and_not_in_the_text(engine: EngineName, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very-secret")
    aimed = ServedModel(TARGET.base_url, "/v1", "demo", "/models/demo", key_file=str(key))
    command = CLIENTS[engine].build_command(Path("/env/bin"), aimed, RUN, Path("result.json"))
    assert command.secrets == {KEY_VARIABLE: str(key)}
    assert "sk-very-secret" not in f"{command} {command.argv} {command.env}"


@pytest.mark.parametrize(
    ("engine", "output", "total", "ttft", "tpot"),
    [("vllm", 387.02, 1161.07, 49.81, 7.41), ("sglang", 238.01, 714.03, 98.28, 10.32)],
)
def test_what_it_wrote_is_read_as_it_printed_it(
    engine: EngineName, output: float, total: float, ttft: float, tpot: float
) -> None:
    figures = CLIENTS[engine].read_figures(read_result(FILES[engine].read_text()), RUN)
    assert figures
    values = (figures.output_tokens_per_s, figures.total_tokens_per_s, figures.ttft_ms, figures.tpot_ms)
    assert values == pytest.approx((output, total, ttft, tpot), abs=0.01)
    assert (figures.completed, figures.failed) == (8, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_file_is_no_result(engine: EngineName) -> None:
    assert CLIENTS[engine].read_figures({}, RUN) is None
    assert CLIENTS[engine].read_figures({"error": "x"}, RUN) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_where_a_server_listens_is_of_no_use_offline(engine: EngineName) -> None:
    assert "--port" in CLIENTS[engine].SERVER_FLAGS
    assert "--dtype" not in CLIENTS[engine].SERVER_FLAGS


@pytest.mark.parametrize(
    ("engine", "mode", "expected"),
    [
        pytest.param("vllm", "latency", (3, 2, 111.1, 288.0), id="vllm latency"),
        pytest.param("vllm", "throughput", (1, 8, 4546.0, 28.16), id="vllm throughput"),
        pytest.param("sglang", "latency", (3, 1, 288.8, 55.39), id="sglang latency"),
    ],
)
def test_what_it_wrote_without_a_server(
    engine: EngineName, mode: OfflineMode, expected: tuple[int, int, float, float]
) -> None:
    """Compare the number of results, and requests, latency and rate of the first."""
    (file,) = FILES[engine].parent.glob(f"{engine}-{mode}.*")
    run = BenchRun(2, 3, 32, 16, 7, 1)
    figures = CLIENTS[engine].read_offline_figures(file.read_text(), mode, run)
    first = figures[0]
    assert (len(figures), first.completed) == expected[:2]
    assert first.latency_ms == pytest.approx(expected[2], abs=0.1)
    assert first.output_tokens_per_s == pytest.approx(expected[3], abs=0.1)
    assert first.total_tokens_per_s == pytest.approx(3 * expected[3], abs=0.2)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("text", ["", "{}", "not JSON", '{"a": 1}\n{"b"'])
def test_what_is_no_result_without_a_server(engine: EngineName, text: str) -> None:
    assert CLIENTS[engine].read_offline_figures(text, "latency", RUN) == ()
    assert CLIENTS[engine].read_offline_figures(text, "throughput", RUN) == ()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("mode", ["latency", "throughput"])
def test_without_a_server_the_model_is_loaded(engine: EngineName, mode: OfflineMode) -> None:
    argv = CLIENTS[engine].build_offline_argv(
        Path("/env/bin"), "/models/demo", mode, RUN, Path("/tmp/result.json")
    )
    assert "/models/demo" in argv
    assert "/tmp/result.json" in argv
    assert "--input-len" not in argv or mode == "latency"  # vLLM's throughput mode passes over it
    assert "random" not in argv or engine == "vllm"  # for SGLang's a data set would be fetched


def test_a_small_vocabulary_is_not_measured_by_vllms_latency_mode() -> None:
    assert "9999" in str(CLIENTS["vllm"].find_obstacle("latency", 324))
    assert CLIENTS["vllm"].find_obstacle("latency", 10_240) is None
    assert CLIENTS["vllm"].find_obstacle("throughput", 324) is None
    assert CLIENTS["sglang"].find_obstacle("latency", 324) is None
