"""Serve smollm2 out of an engine environment, and compare its answers with those of transformers."""

import json
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from medley import process
from medley.cluster.self_command import get_own_command
from medley.command import Command
from medley.errors import Problem
from medley.progress import Progress
from medley.serving import answers
from medley.serving.answers import Comparison, Reference

_BATCH_LIMIT_S = 1800
_CONTEXT_TOKENS = "512"


def compare_answers(name: str, count: int | None, progress: Progress) -> tuple[Comparison, ...]:
    """Return the comparison of the first `count` answers in float32 on this host; None: all of them."""
    references = answers.read_references(count)
    with (
        tempfile.TemporaryDirectory(prefix="medley-answers-") as scratch,
        progress.stage(f"serve {answers.MODEL} with {name}"),
    ):
        source, target = Path(scratch) / "in.jsonl", Path(scratch) / "out.jsonl"
        source.write_text("".join(_format_lines(references)), encoding="utf-8")
        words = ("batch", answers.MODEL, str(source), str(target), "--hosts", "1", "--env", name)
        sizes = ("--context", _CONTEXT_TOKENS, "--at-once", str(len(references)))
        command = Command((*get_own_command(), *words, *sizes, "--", "--dtype=float32"))
        finished = process.run(command, limit_s=_BATCH_LIMIT_S, on_line=progress.line)
        lines = target.read_text(encoding="utf-8").splitlines() if target.exists() else []
    choices = {
        entry["custom_id"]: entry["response"]["body"]["choices"][0] for entry in map(json.loads, lines)
    }
    if finished.status or len(choices) != len(references):
        raise Problem(
            f"{name} does not serve {answers.MODEL}",
            cause="\n".join(finished.lines[-6:]) or f"it exited with {finished.status}",
            fix=f"medley serve {answers.MODEL} --env {name}",
        )
    return tuple(
        answers.compare_answer(reference, choices[str(number)], "float32")
        for number, reference in enumerate(references)
    )


def require_correct_answers(comparisons: Sequence[Comparison], title: str, fix: str) -> None:
    """Raise a Problem with this title for answers that float32 does not explain."""
    if wrong := answers.list_faults(comparisons):
        raise Problem(
            title,
            cause=f"{len(wrong)} of {len(comparisons)} answers of {answers.MODEL} are not those of "
            "transformers in float32:\n" + "\n".join(wrong[:4]),
            fix=fix,
        )


def list_rows(comparisons: Sequence[Comparison]) -> Iterator[tuple[str, str]]:
    """Yield label and value of each comparison for a table."""
    for comparison in comparisons:
        state = "equal" if comparison.is_equal else f"{comparison.equal_tokens} equal"
        tokens = f"{state} of {len(comparison.reference.steps)} tokens"
        tokens += f", log-probabilities {comparison.logprob_error:.1e} off"
        yield "answer", f"{comparison.reference.question!r}: {tokens}: {comparison.fault or 'right'}"


def _format_lines(references: Sequence[Reference]) -> Iterator[str]:
    for number, reference in enumerate(references):
        entry = {
            "custom_id": str(number),
            "url": "/v1/chat/completions",
            "body": answers.build_request(reference),
        }
        yield json.dumps(entry) + "\n"
