"""An engine's lines, as it printed them, become steps of medley's progress."""

from pathlib import Path

import pytest

from medley.progress import SilentProgress
from medley.serving.start_steps import StartSteps, find_step

HEALTHY = Path(__file__).parents[1] / "logs" / "healthy"
LOADED = ["load weights: 0 of 1 files, 0 %", "load weights: 1 of 1 files, 100 %"]
IMPORTS, READS = "import", "read the settings and the model's files"
RANKS, DONE = "start the ranks, which import the engine again", "weights are loaded; prepare the KV cache"


class Shown(SilentProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def moved(self, text: str) -> None:
        self.texts.append(text)


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_whole_start_is_a_few_steps(engine: str) -> None:
    watch = Shown()
    steps = StartSteps(watch)
    for line in (HEALTHY / f"{engine}.txt").read_text().splitlines():
        steps.show_line(line)
    shown = list(dict.fromkeys(watch.texts))
    assert shown == [IMPORTS, READS, RANKS, "load weights", *LOADED, DONE, "wait for the first answer"]


@pytest.mark.parametrize(
    ("line", "step"),
    [
        pytest.param(
            "(Worker pid=9) Loading safetensors checkpoint shards:  43% Completed | 21/49 [02:17<02:51]",
            "load weights: 21 of 49 files, 43 %",
            id="weights",
        ),
        pytest.param(
            "Capturing CUDA graphs (mixed prefill-decode, PIECEWISE):  57%|█████▋    | 29/51 [00:02<00:01]",
            "capture CUDA graphs: 57 %",
            id="graphs",
        ),
        pytest.param("INFO 11-24 08:00:00 [x.py:1] torch.compile takes 4.1 s", "compile", id="compile"),
        pytest.param("Triton not available, using fallback", None, id="a warning"),
        pytest.param('INFO: 127.0.0.1:4 - "GET / HTTP/1.1" 401 Unauthorized', None, id="a request"),
    ],
)
def test_a_line_of_an_engine(line: str, step: str | None) -> None:
    assert find_step(line) == step


def test_a_slow_start_names_the_engines_own_lines_once_and_nothing_follows_its_end() -> None:
    watch = Shown()
    steps = StartSteps(watch, hint_at_s=0)
    steps.check()
    steps.check()
    steps.is_over = True
    steps.show_line("(APIServer pid=1) INFO 11-22 14:01:01 [api_utils.py:286] non-default args: {}")
    assert watch.texts == [IMPORTS, f"{IMPORTS}; its own lines: medley logs -f"]
