"""Serve smollm2 out of an engine environment, and compare its answers with those of transformers."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from medley import process
from medley.cluster.self_command import own_command
from medley.command import Command
from medley.errors import Problem
from medley.progress import Progress
from medley.serving import answers
from medley.serving.answers import Comparison, Reference

_LIMIT_S = 1800
_CONTEXT = "512"


def compare_answers(name: str, count: int | None, watch: Progress) -> tuple[Comparison, ...]:
    """Return the first answers of the environment `name` in float32 on this host; None: all of them."""
    references = answers.references(count)
    with (
        tempfile.TemporaryDirectory(prefix="medley-answers-") as scratch,
        watch.stage(f"serve {answers.MODEL} with {name}"),
    ):
        source, target = Path(scratch) / "in.jsonl", Path(scratch) / "out.jsonl"
        source.write_text("".join(_lines(references)), encoding="utf-8")
        words = ("batch", answers.MODEL, str(source), str(target), "--hosts", "1", "--env", name)
        sizes = ("--context", _CONTEXT, "--at-once", str(len(references)))
        command = Command((*own_command(), *words, *sizes, "--", "--dtype=float32"))
        finished = process.run(command, limit_s=_LIMIT_S, on_line=watch.line)
        lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
    found = {entry["custom_id"]: entry["response"]["body"]["choices"][0] for entry in map(json.loads, lines)}
    if finished.status or len(found) != len(references):
        raise Problem(
            f"{name} does not serve {answers.MODEL}",
            cause="\n".join(finished.lines[-6:]) or f"it exited with {finished.status}",
            fix=f"medley serve {answers.MODEL} --env {name}",
        )
    return tuple(
        answers.compare(each, found[str(number)], "float32") for number, each in enumerate(references)
    )


def require_right(found: Sequence[Comparison], what: str, fix: str) -> None:
    """Raise a Problem for answers that float32 does not explain; `what` did not change, or does not work."""
    if wrong := answers.faults(found):
        raise Problem(
            what,
            cause=f"{len(wrong)} of {len(found)} answers of {answers.MODEL} are not those of transformers in "
            "float32:\n" + "\n".join(wrong[:4]),
            fix=fix,
        )


def rows(found: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each answer, as people read them."""
    for each in found:
        state = "equal" if each.is_equal else f"{each.equal} equal"
        tokens = (
            f"{state} of {len(each.reference.steps)} tokens, log-probabilities {each.logprob_error:.1e} off"
        )
        yield "answer", f"{each.reference.question!r}: {tokens}: {each.fault or 'right'}"


def _lines(references: Sequence[Reference]) -> Iterator[str]:
    for number, each in enumerate(references):
        entry = {"custom_id": str(number), "url": "/v1/chat/completions", "body": answers.request(each)}
        yield json.dumps(entry) + "\n"
