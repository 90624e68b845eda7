"""Record what `medley plan` answers: two dozen whole outputs, and a table with one line for every case.

python -m tools.plan_outputs   write all of them again; then review: git diff tests/planner/outputs
"""

import io
import json
import os
import shlex
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley import config
from medley.cli.plan import PlanVerb
from medley.errors import Problem

FOLDER = Path(__file__).parents[1] / "tests" / "planner" / "outputs"
TABLE = FOLDER / "table.txt"
CLUSTERS = (
    *("spark:1", "spark:2", "spark:2,thor:2", "thor:2", "orin:1", "orin:2", "orin-r39:2", "spark:2,orin:1"),
    *("spark:1,orin-r39:1", "spark:1,rtx:1", "rtx-5090:1", "cpu:4"),
)
HOME = {
    "HOME": "/home/you",
    "MEDLEY_STATE": "/home/you/.local/state/medley",
    "MEDLEY_CACHE": "/home/you/.cache/medley",
    "HF_HOME": "/home/you/.cache/huggingface",
}


@dataclass(frozen=True)
class Case:
    cluster: str
    model: str
    options: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        return (self.model, "--hosts", self.cluster, *shlex.split(self.options))

    def __str__(self) -> str:
        return " ".join(self.words)


WHOLE = {
    "cpu-refused": Case("cpu:4", "deepseek-v3"),
    "cpu-tp": Case("cpu:4", "gpt-oss-20b", "--why --commands"),
    "cpu-expert-parallel": Case("cpu:4", "qwen3-30b-a3b-thinking-2507-fp8", "--tp 4"),
    "orin-container": Case("orin:1", "gpt-oss-20b", "--why --commands"),
    "orin-image": Case("orin:1", "qwen3-8b", "--image vllm-ray:mine"),
    "orin-too-old": Case("orin:1", "nemotron-3-super-120b-a12b-nvfp4"),
    "orin-pp": Case("orin:2", "gpt-oss-120b", "--why --commands"),
    "orin-tp": Case("orin:2", "qwen3-32b"),
    "orin-refused": Case("orin:2", "qwen2.5-72b-instruct"),
    "orin-r39": Case("orin-r39:2", "qwen3-8b"),
    "rtx-alone": Case("rtx-5090:1", "qwen3-4b-instruct-2507", "--why --commands"),
    "rtx-refused": Case("rtx-5090:1", "llama-3.3-70b-instruct"),
    "spark-alone": Case("spark:1", "qwen3-32b"),
    "spark-smaller-sibling": Case("spark:1", "glm-4.5-air"),
    "spark-tp": Case("spark:2", "gpt-oss-120b"),
    "spark-tp-all": Case("spark:2", "gpt-oss-120b", "--why --commands"),
    "spark-extra-files": Case("spark:2", "nemotron-3-super-120b-a12b-nvfp4", "--why --commands"),
    "spark-forced": Case("spark:2", "qwen2.5-72b-instruct", "--pp 2 --why --commands"),
    "spark-forced-refused": Case("spark:2", "glm-4.5-air", "--dp 2"),
    "spark-replicas": Case("spark:2", "qwen3-8b", "--for throughput --why --commands"),
    "spark-orin-incompatible": Case("spark:2,orin:1", "qwen2.5-72b-instruct"),
    "spark-rtx-pp": Case("spark:1,rtx:1", "qwen2.5-72b-instruct"),
    "spark-thor-pp": Case("spark:2,thor:2", "qwen3.5-122b-a10b", "--why --commands"),
    "thor": Case("thor:2", "gpt-oss-120b"),
}
# Layouts of published guides (README.md beside the table), and each switch that changes a plan.
FORCED = (
    # Not whole: over Ray SGLang is started by a file of ours, whose path is this clone's.
    Case("spark:2", "gpt-oss-20b", "--engine sglang --kv-type fp8 --context 32768"),
    Case("orin:2", "gpt-oss-20b", "--tp 2"),
    Case("orin:2", "gpt-oss-120b", "--tp 2"),
    Case("orin:2", "glm-4.5-air-awq-fp16mix", "--tp 2"),
    Case("orin:2", "qwen3-4b-instruct-2507-fp8", "--tp 2"),
    Case("spark:1,rtx:1", "qwen3-30b-a3b-thinking-2507", "--concurrency 20"),
    Case("spark:1,rtx:1", "qwen3-30b-a3b-thinking-2507", "--concurrency 20 --tp 2"),
    Case("spark:1,rtx:1", "qwen3-30b-a3b-thinking-2507-fp8", "--concurrency 20"),
    Case("spark:1,rtx:1", "qwen3-30b-a3b-thinking-2507-fp8", "--concurrency 20 --tp 2"),
    Case("spark:1,rtx:1", "qwen2.5-72b-instruct", "--tp 2"),
    Case("spark:2", "nemotron-3-super-120b-a12b-nvfp4", "--pp 2"),
    Case("spark:2,thor:2", "nemotron-3-super-120b-a12b-nvfp4", "--pp 4"),
    Case("spark:2,thor:2", "qwen3.5-122b-a10b-fp8", "--pp 4"),
    *(
        Case("spark:2,thor:2", "gpt-oss-120b", options)
        for options in (
            *("--for throughput", "--for context", "--concurrency 64", "--context 131072", "--kv-type fp8"),
            *("--transport tcp", "--eplb", "--engine sglang", "--dp 2 --tp 2", "--pp 3"),
        )
    ),
    Case("cpu:4", "qwen3-4b-instruct-2507", "--tp 1"),
    Case("spark:2", "qwen3-235b-a22b-instruct-2507", "--context 1024 --kv-type fp8"),
)


def cases() -> Iterator[Case]:
    """Yield every known model on every cluster, then the forced layouts."""
    models = [name for name, model in config.load_models().items() if model.shape]
    yield from (Case(cluster, model) for cluster in CLUSTERS for model in models)
    yield from FORCED


def printed(case: Case) -> str:
    """Run the verb and return what it prints, or the Problem that it raises."""
    with redirect_stdout(io.StringIO()) as out:
        try:
            PlanVerb.run(["medley plan", *case.words], exit=False)
        except Problem as problem:
            print(problem)
    return out.getvalue()


def line(case: Case) -> str:
    """Return the layout and numbers of one case; for a refusal, what is short and which commands help."""
    with redirect_stdout(io.StringIO()) as out:
        try:
            PlanVerb.run(["medley plan", *case.words, "--json"], exit=False)
        except Problem as problem:
            fixes = (each.partition("  # ")[0].removesuffix(" --json") for each in problem.fix.splitlines())
            return " | ".join((str(case), problem.what, problem.cause.splitlines()[0], *fixes))
    return " | ".join((str(case), *_columns(json.loads(out.getvalue()))))


def _columns(plan: dict[str, Any]) -> Iterator[str]:
    fit, told, why = plan["fit"], plan["prediction"], plan["why"]
    yield why[0].partition(": ")[0]
    if told["fitted"]:
        yield f"{told['tokens_per_s']:.1f} tokens/s ({told['low']:.1f} to {told['high']:.1f})"
        yield f"{told['per_stream']:.1f} a stream, first after {told['ttft_s']:.2f} s"
    yield f"{fit['context']} tokens, {fit['concurrency']} streams, {fit['utilization']} of memory"
    yield next(each for each in why if each.startswith("tightest: ")).partition(": ")[2]
    yield f"then {next((each.partition(': ')[2] for each in why if each.startswith('next: ')), 'nothing')}"


def main() -> None:
    os.environ |= HOME
    FOLDER.mkdir(exist_ok=True)
    for name, case in WHOLE.items():
        (FOLDER / f"{name}.txt").write_text(f"$ medley plan {case}\n{printed(case)}")
    TABLE.write_text("".join(f"{line(case)}\n" for case in cases()))


if __name__ == "__main__":
    main()
