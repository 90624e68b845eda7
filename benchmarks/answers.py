"""Whether served answers are those of transformers in float32, for both engines, launchers and options.

    sudo .venv/bin/python -m benchmarks.answers [WORDS] [--cache FILE] [--write]      # 27 servers, one by one

Three hosts made of namespaces share this machine's processors. Each server answers the first 6 conversations
of pysrc/medley/serving/answers.json without sampling, at most 16 tokens each; a cache of prefixes is asked
twice. They are compared token by token, with the log-probability of each token of the reference up to the
first difference.

equal       answers with all tokens equal
logprob     the largest error of a log-probability, in nats
verdict     equal; `close`: the first difference is where the reference's best two logits are closer than the
            number format can tell (0.25 in bfloat16 between 16 and 32), with the reason; or FAULT
ready       from the first word typed to the first answer
s/token     of an answer, its prompt included
GiB         resident memory of the head's processes, weights and cache included

WORDS choose rows by name. A row in the cache file is not run again, so a run that was cut off goes on; a row
that failed for another reason than the known one is not kept. Hosts share two busy cores: compare no times.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from medley.environment import engine_source
from medley.host.facts import read_facts
from medley.host.kind import load_answers
from medley.schema import TITLES
from tests.rack.answers import CASES, HOSTS, Case, Row, keep, kept, rows
from tests.rack.rack import up
from tests.rack.spec import Spec

RESULT = Path(__file__).parent / "results" / "answers.txt"
CONVERSATIONS = 6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("words", nargs="*", help="parts of the names of rows [default: all]")
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "answers.jsonl")
    parser.add_argument("--write", action="store_true", help=f"write {RESULT.name} among the results")
    asked = parser.parse_args()
    cases = [case for case in CASES if all(word in case.name for word in asked.words)]
    due = [case for case in cases if case.name not in kept(asked.cache)]
    if due:
        with up(Spec(HOSTS, name="answers")) as rack:
            for case, row in zip(due, rows(rack, due, CONVERSATIONS), strict=True):
                print(row, flush=True)
                if not row.why_not or (case.refusal and case.refusal in row.why_not):
                    keep(asked.cache, row)
    found = kept(asked.cache)
    text = "\n".join((*conditions(), *table(cases, found)))
    print(text)
    if asked.write:
        RESULT.write_text(text + "\n", encoding="utf-8")
    return int(any(row.faults for row in found.values()))


def conditions() -> Iterator[str]:
    known, cpu = engine_source.read_locked_versions(), read_facts(load_answers()).cpu
    engines = ", ".join(f"{TITLES[each]} {known[f'{each}-cpu'][each]}" for each in TITLES)
    yield "$ sudo .venv/bin/python -m benchmarks.answers --write"
    yield f"{engines}, SmolLM2 135M Instruct; {cpu.threads} threads of {cpu.model} ({', '.join(cpu.flags)})"
    yield "Each server reads the model's 16-bit weights; the reference is transformers 5.19.0 in float32."
    yield ""


def table(cases: list[Case], found: dict[str, Row]) -> Iterator[str]:
    yield f"{'row':<38}{'equal':<10}{'logprob':<10}{'ready':>7}{'s/token':>9}{'GiB':>6}  verdict"
    for case in cases:
        row = found.get(case.name)
        if row is None:
            yield f"{case.name:<38}not run yet"
        elif row.why_not:
            yield f"{case.name:<38}cannot run: {row.why_not}"
        else:
            counts = f"{row.equal} of {row.answers}"
            numbers = f"{row.ready_s:>5.0f} s{row.token_s:>9.2f}{row.memory_gib:>6.1f}"
            yield f"{case.name:<38}{counts:<10}{row.logprob_error:<10.5f}{numbers}  {verdict(case, row)}"
            yield from (f"{'':<40}{each}" for each in (*row.differences, *row.faults))


def verdict(case: Case, row: Row) -> str:
    if row.faults:
        return "FAULT"
    if row.equal == row.answers:
        return f"equal; {case.option.metric} {row.counted:.0f}" if row.counted else "equal"
    return f"close: {case.option.why or case.option.dtype}"


if __name__ == "__main__":
    sys.exit(main())
