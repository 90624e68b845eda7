"""A real model's answers by each engine, launcher and option, compared with those of transformers."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import psutil

from medley.process_identity import list_descendants
from medley.schema import EngineName
from medley.serving import answers
from medley.serving.answers import Comparison, Dtype, Reference
from tests.rack.matrix import Cell, Matrix
from tests.rack.rack import Rack

URL = "http://127.0.0.1:8000"
LIMIT_S = 600
# So much cache for one stream of 512 tokens, and no more: other work shares the machine.
_CACHE: dict[EngineName, tuple[str, ...]] = {
    "vllm": ("--kv-cache-memory-bytes=134217728",),
    "sglang": ("--max-total-tokens=2048",),
}
_NGRAM = '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, "prompt_lookup_min": 1}'


@dataclass(frozen=True)
class Option:
    """A way to serve: what is typed, and by how much its answers may differ."""

    name: str
    flags: tuple[str, ...] = ()
    words: tuple[str, ...] = ()
    dtype: Dtype = "float32"
    logprob_limit: float | None = None
    """In place of the number format's own."""
    why: str = ""
    """Why its answers may differ, besides the number format."""
    refusal: str = ""
    """Words of the reason why a CPU cannot serve it; empty: it can."""
    metric: str = ""
    """The engine's counter that shows that the option did something."""
    times: int = 1
    """How often each conversation is asked: a cache of prefixes serves what it has seen."""

    @property
    def may_differ(self) -> bool:
        return self.dtype != "float32" or self.logprob_limit is not None


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    cell: Cell
    option: Option
    refusal: str = ""
    """Words of the reason why it cannot be served; empty: it can."""

    @property
    def name(self) -> str:
        return f"{self.cell.name} {self.option.name}"


@dataclass(frozen=True)
class Row:
    """What came of a case; `why_not`: why it did not run."""

    name: str
    equal: int = 0
    answers: int = 0
    tokens: int = 0
    differences: tuple[str, ...] = ()
    """The first difference of each answer that has one."""
    faults: tuple[str, ...] = ()
    logprob_error: float = 0.0
    ready_s: float = 0.0
    token_s: float = 0.0
    """Seconds of a token, the prompt among them."""
    counted: float = 0.0
    """The option's counter; 0 without one."""
    memory_gib: float = 0.0
    """Resident memory of all processes of the head."""
    why_not: str = ""


# An fp8 number has 3 bits of fraction, where float32 has 23: keys and values are off by up to 6 %.
_FP8_LIMIT = 1.0
_FP8 = "keys and values in 8 bits, off by up to 6 %"
_OPTIONS: dict[EngineName, tuple[Option, ...]] = {
    "vllm": (
        Option("float32"),
        Option("bfloat16", ("--dtype=bfloat16",), dtype="bfloat16"),
        Option("compiled", ("--no-enforce-eager",)),
        Option("chunked prefill of 16", ("--max-num-batched-tokens=16", "--max-num-seqs=4")),
        Option(
            "prefix cache",
            ("--enable-prefix-caching", "--block-size=32"),
            metric="vllm:prefix_cache_hits_total",
            times=2,
        ),
        Option("no prefix cache", ("--no-enable-prefix-caching",)),
        Option(
            "n-gram speculation",
            (f"--speculative-config={_NGRAM}",),
            metric="vllm:spec_decode_num_draft_tokens_total",
        ),
        Option("fp8 KV", words=("--kv-type", "fp8"), logprob_limit=_FP8_LIMIT, why=_FP8),
        Option("int8 KV", ("--kv-cache-dtype=int8_per_token_head",), refusal="answers nonsense"),
    ),
    "sglang": (
        # Its cache of prefixes is on, and has blocks of one token.
        Option("float32", metric="sglang:cached_tokens_total", times=2),
        Option("bfloat16", ("--dtype=bfloat16",), dtype="bfloat16"),
        Option("chunked prefill of 16", ("--chunked-prefill-size=16",)),
        Option("no prefix cache", ("--disable-radix-cache",)),
        # The CPU kernels of speculation are in no package of PyPI.
        Option(
            "n-gram speculation",
            ("--speculative-algorithm=NGRAM", "--speculative-num-draft-tokens=3"),
            refusal="sgl_kernel.speculative",
        ),
        Option("fp8 KV", words=("--kv-type", "fp8"), refusal="AMX"),
    ),
}
# 9 heads and 3 KV heads: tensor parallel 3 divides both, and 2 neither.
_LAUNCHES: tuple[tuple[tuple[str, str], int, dict[EngineName, str]], ...] = (
    (("--pp", "2"), 2, {"sglang": "SGLang cannot split this model into stages"}),
    (("--tp", "3"), 3, {}),
    (("--tp", "2"), 2, dict.fromkeys(_OPTIONS, "9 attention heads are not a multiple of 2")),
)


def _cases() -> Iterator[Case]:
    for engine, options in _OPTIONS.items():
        for option in options:
            yield Case(Cell(engine, "solo"), option, option.refusal)
        for launcher, (words, hosts, refusals) in product(("mp", "ray"), _LAUNCHES):
            yield Case(Cell(engine, launcher, words, hosts=hosts), options[0], refusals.get(engine, ""))


CASES = tuple(_cases())
HOSTS = 3


def rows(rack: Rack, cases: Sequence[Case], count: int) -> Iterator[Row]:
    """Serve each case in turn, ask the first conversations, and end it."""
    matrix = Matrix(rack, model=answers.MODEL)
    for case in cases:
        yield _row(matrix, case, answers.read_references(count))


def _row(matrix: Matrix, case: Case, references: Sequence[Reference]) -> Row:
    option, engine = case.option, case.cell.engine
    words = (*case.cell.words, "--context", "512", *option.words)
    cell = replace(case.cell, words=words, flags=(*_CACHE[engine], *option.flags))
    head = matrix.rack.hosts[0]
    try:
        with matrix.running(cell) as run, head.network():
            began = time.monotonic()
            found = [_ask(each, option) for _ in range(option.times) for each in references]
            took_s = time.monotonic() - began
            memory = _memory_gib(run.head.pid)
            counted = _counted(option.metric) if option.metric else 0.0
            row = Row(case.name, ready_s=run.ready_s, memory_gib=memory, counted=counted)
    except AssertionError as error:
        return Row(case.name, why_not=_reason(str(error)))
    tokens = sum(each.equal_tokens for each in found)
    idle = [f"{option.metric} is 0: the option did nothing"] if option.metric and not counted else []
    return replace(
        row,
        equal=sum(each.is_equal for each in found),
        answers=len(found),
        tokens=tokens,
        differences=tuple(dict.fromkeys(str(each) for each in found if not each.is_equal)),
        faults=(*dict.fromkeys(answers.list_faults(found)), *idle),
        logprob_error=max(each.logprob_error for each in found),
        token_s=took_s / max(1, sum(len(each.reference.steps) for each in found)),
    )


def _ask(reference: Reference, option: Option) -> Comparison:
    said = httpx.post(f"{URL}/v1/chat/completions", json=answers.build_request(reference), timeout=LIMIT_S)
    assert said.status_code == httpx.codes.OK, said.text
    body: dict[str, Any] = said.json()
    return answers.compare_answer(
        reference, body["choices"][0], option.dtype, logprob_limit=option.logprob_limit
    )


def _counted(metric: str) -> float:
    """Return the sum of a counter over all its labels; 0 where the engine has none."""
    lines = httpx.get(f"{URL}/metrics", timeout=LIMIT_S).text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(metric))


def _memory_gib(pid: int) -> float:
    processes = [psutil.Process(each.pid) for each in list_descendants(pid)]
    return sum(each.memory_info().rss for each in processes) / (1 << 30)


def _reason(text: str) -> str:
    """Return the line that names the fault: a Problem's, or else the engine's last error."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    causes = [line for line in lines if line.startswith("cause:")]
    errors = [line for line in lines if "Error" in line or "error:" in line]
    return (causes or errors or lines)[-1].removeprefix("cause:").strip()[:300]


def kept(cache: Path) -> dict[str, Row]:
    """Return the rows of a file, one JSON object a line, by name."""
    lines = cache.read_text(encoding="utf-8").splitlines() if cache.exists() else []
    found = (json.loads(line) for line in lines)
    return {
        each["name"]: Row(
            **{**each, "differences": tuple(each["differences"]), "faults": tuple(each["faults"])}
        )
        for each in found
    }


def keep(cache: Path, row: Row) -> None:
    with cache.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(row)) + "\n")
