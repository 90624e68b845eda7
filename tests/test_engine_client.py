"""Each engine's own benchmark: how it is started, and what it wrote here."""

import re
from pathlib import Path

import pytest

from medley.bench.figures import raw
from medley.bench.load import Run
from medley.engine.client import KEY, Target
from medley.engines import CLIENTS
from medley.reasoned import Flag
from medley.tables import Engine
from tests.benches import FILES

RUN = Run(4, 8, 32, 16, 7, 1)
TARGET = Target("http://127.0.0.1:8311", "/v1", "demo", "/models/demo", env={"DO_NOT_TRACK": "1"})
ENGINES: tuple[Engine, ...] = ("vllm", "sglang")


def flags(argv: tuple[str, ...]) -> dict[str, str]:
    text = " ".join(argv)
    return dict(re.findall(r"(--[\w-]+) ([^-]\S*)", text))


@pytest.mark.parametrize("engine", ENGINES)
def test_the_load_is_what_is_asked(engine: Engine) -> None:
    command = CLIENTS[engine].served(Path("/env/bin"), TARGET, RUN, Path("/tmp/out/result.json"))
    found = flags(command.argv)
    assert found["--max-concurrency"] == "4"
    assert found["--num-prompts"] == "8"
    assert found["--random-input-len"] == "32"
    assert found["--random-output-len"] == "16"
    assert found["--seed"] == "7"
    assert found["--base-url"] == "http://127.0.0.1:8311"
    assert command.argv[0].startswith("/env/bin/")
    assert command.env == {"DO_NOT_TRACK": "1"}


@pytest.mark.parametrize("engine", ENGINES)
def test_the_key_is_in_no_argument_and_not_in_the_text(engine: Engine, tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_text("sk-very-secret")
    aimed = Target(TARGET.base, "/v1", "demo", "/models/demo", key=str(key))
    command = CLIENTS[engine].served(Path("/env/bin"), aimed, RUN, Path("result.json"))
    assert command.secrets == {KEY: str(key)}
    assert "sk-very-secret" not in f"{command} {command.argv} {command.env}"


@pytest.mark.parametrize(
    ("engine", "output", "total", "ttft", "tpot"),
    [("vllm", 387.02, 1161.07, 49.81, 7.41), ("sglang", 238.01, 714.03, 98.28, 10.32)],
)
def test_what_it_wrote_is_read_as_it_printed_it(
    engine: Engine, output: float, total: float, ttft: float, tpot: float
) -> None:
    found = CLIENTS[engine].figures(raw(FILES[engine].read_text()), RUN)
    assert found
    said = (found.output_tokens_per_s, found.total_tokens_per_s, found.ttft_ms, found.tpot_ms)
    assert said == pytest.approx((output, total, ttft, tpot), abs=0.01)
    assert (found.completed, found.failed) == (8, 0)


@pytest.mark.parametrize("engine", ENGINES)
def test_another_file_is_no_result(engine: Engine) -> None:
    assert CLIENTS[engine].figures({}, RUN) is None
    assert CLIENTS[engine].figures({"error": "x"}, RUN) is None


@pytest.mark.parametrize("engine", ENGINES)
def test_where_a_server_listens_is_of_no_use_offline(engine: Engine) -> None:
    assert CLIENTS[engine].only_served(Flag(("--port",), "1", "")) is True
    assert CLIENTS[engine].only_served(Flag(("--dtype",), "auto", "")) is False
