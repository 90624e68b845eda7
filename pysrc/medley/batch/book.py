"""A book is what a batch has written so far: answers, and beside them what was wrong or refused."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import shaped, store
from medley.batch.lines import Bad, Request
from medley.problem import Problem

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass
class Book:
    """Open for one run; `done` are the custom_ids that need no answer any more."""

    answers: Path
    errors: Path
    done: set[str]
    refused: int
    handles: dict[Path, int] = field(default_factory=dict)

    def answer(self, request: Request, body: Any, request_id: str) -> None:  # noqa: ANN401 - as the server gave it
        response = {"status_code": 200, "request_id": request_id, "body": body}
        self._append(self.answers, _entry(request, response=response))

    def refuse(self, request: Request, status: int, said: str) -> None:
        """The server will not answer it, however often it is asked."""
        error = {"code": str(status), "message": said}
        self._append(self.errors, {**_entry(request, error=error), "line": request.number})

    def _append(self, path: Path, table: dict[str, Any]) -> None:
        # One write for a line and its end: what is cut off in between is a last line without an end.
        text = json.dumps(table, ensure_ascii=False) + "\n"
        left = text.encode()
        while left:
            left = left[os.write(self.handles[path], left) :]
        self.done.add(table["custom_id"])


@contextlib.contextmanager
def opened(answers: Path, source: bytes, model: str, bad: Iterable[Bad]) -> Iterator[Book]:
    """The book of these answers, gone on with if it is of the same requests and model."""
    errors, mark = answers.with_name(f"{answers.name}.errors"), answers.with_name(f".{answers.name}.batch")
    store.make(answers.parent)
    with store.lock(answers.with_name(f".{answers.name}.lock")) as held:
        if not held:
            raise Problem(
                f"another medley batch writes {answers}", cause="it holds the file's lock", fix="wait for it"
            )
        _require_same(mark, answers, {"requests": hashlib.sha256(source).hexdigest(), "model": model})
        done = {table["custom_id"] for table in kept(answers)}
        refused = [table for table in kept(errors) if not _is_bad(table)]
        _rewrite(errors, (*(_bad(each) for each in bad), *refused))
        done |= {table["custom_id"] for table in refused}
        book = Book(answers, errors, done, len(refused))
        try:
            for path in (answers, errors):
                book.handles[path] = os.open(path, _APPEND, 0o644)
            yield book
        finally:
            for handle in book.handles.values():
                os.fsync(handle)
                os.close(handle)


def _is_bad(table: dict[str, Any]) -> bool:
    match table:
        case {"error": {"code": "bad_line"}}:
            return True
        case _:
            return False


def kept(path: Path) -> list[dict[str, Any]]:
    """The whole lines of a file; one that was cut off is cut away."""
    if not path.exists():
        return []
    whole, end, torn = path.read_bytes().rpartition(b"\n")
    if torn:
        os.truncate(path, len(whole) + len(end))
    kept = []
    for number, line in enumerate(whole.split(b"\n"), 1):
        if line.strip():
            table = shaped.table(line)
            if table is None or not isinstance(table.get("custom_id", 0), str | None):
                raise Problem(
                    f"{path} holds something else than answers of a batch",
                    cause=f"line {number} is no JSON object with a custom_id",
                    fix="name another file for the answers",
                )
            kept.append(table)
    return kept


def _require_same(mark: Path, answers: Path, now: dict[str, str]) -> None:
    """The mark beside the answers says of what they are."""
    if mark.exists():
        before = store.table(mark) or {}
        changed = [name for name, value in now.items() if before.get(name) != value]
        if changed:
            raise Problem(
                f"{answers} has the answers of another batch",
                cause=f"the {' and the '.join(changed)} changed since it was begun",
                fix=f"name another file, or begin anew: rm {answers} {mark}",
            )
    elif answers.exists() and answers.stat().st_size:
        raise Problem(
            f"{answers} is not empty, and no batch of ours",
            cause=f"there is no {mark.name} beside it",
            fix="name another file for the answers",
        )
    store.write(mark, json.dumps(now))


def _rewrite(path: Path, tables: Iterable[dict[str, Any]]) -> None:
    text = "".join(json.dumps(table, ensure_ascii=False) + "\n" for table in tables)
    store.write(path, text)


def _entry(request: Request, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - a response or an error
    return {
        "id": f"batch_req_{request.number}",
        "custom_id": request.custom_id,
        "response": None,
        "error": None,
        **more,
    }


def _bad(bad: Bad) -> dict[str, Any]:
    error = {"code": "bad_line", "message": bad.why}
    return {
        "id": f"batch_req_{bad.number}",
        "custom_id": bad.custom_id,
        "response": None,
        "error": error,
        "line": bad.number,
    }
