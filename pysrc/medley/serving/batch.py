"""Batch files: requests in, answers out, resumable."""

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import json_shape, storage
from medley.errors import Problem

_NEEDED = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input"}
_LONGEST_ID = 512


@dataclass(frozen=True)
class Request:
    number: int
    custom_id: str
    url: str
    body: dict[str, Any]


@dataclass(frozen=True)
class Bad:
    number: int
    custom_id: str | None
    why: str


def lines(texts: Iterable[str]) -> Iterator[Request | Bad]:
    """Yield each line that is not blank; a repeated custom_id is an error, as it names the answer."""
    seen: dict[str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        found = _line(number, text)
        if isinstance(found, Request):
            first = seen.setdefault(found.custom_id, number)
            if first != number:
                found = Bad(number, found.custom_id, f"line {first} has the same custom_id")
        yield found


def _line(number: int, text: str) -> Request | Bad:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        return Bad(number, None, f"it is not valid JSON: {error}")
    if not isinstance(table, dict):
        return Bad(number, None, "it is not a JSON object")
    given = table.get("custom_id")
    custom_id = given if isinstance(given, str) and 0 < len(given) <= _LONGEST_ID else None
    why = next(_wrong(table, custom_id), None)
    if why is not None or custom_id is None:
        return Bad(number, custom_id, why or "")
    return Request(number, custom_id, table["url"], table["body"])


def _wrong(table: dict[str, Any], custom_id: str | None) -> Iterator[str]:
    if custom_id is None:
        yield f"custom_id must be text of 1 to {_LONGEST_ID} characters"
    if table.get("method", "POST") != "POST":
        yield f"method {table['method']!r}: only POST is supported"
    needed = _NEEDED.get(str(table.get("url")))
    if needed is None:
        yield f"url {table.get('url')!r}: supported are {', '.join(_NEEDED)}"
    body = table.get("body")
    if not isinstance(body, dict):
        yield "body must be an object"
        return
    if body.get("stream"):
        yield "body.stream: a batch does not stream answers"
    if needed and needed not in body:
        yield f"body has no {needed}"


_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass
class Book:
    """The open files of one run; `done` are the custom_ids that need no further answer."""

    answers: Path
    errors: Path
    done: set[str]
    refused: int
    handles: dict[Path, int] = field(default_factory=dict)

    def answer(self, request: Request, body: Any, request_id: str) -> None:  # noqa: ANN401 - as the server gave it
        response = {"status_code": 200, "request_id": request_id, "body": body}
        self._append(self.answers, {**_entry(request), "response": response})

    def refuse(self, request: Request, status: int, said: str) -> None:
        """Record that the server refuses it for good."""
        self._append(self.errors, _error_entry(request, str(status), said))

    def _append(self, path: Path, table: dict[str, Any]) -> None:
        # One write for a line and its end, so that an interrupted write leaves a last line without an end.
        left = _as_line(table).encode()
        with storage.explain_errors(path, "written"):
            while left:
                left = left[os.write(self.handles[path], left) :]
        self.done.add(table["custom_id"])


@contextlib.contextmanager
def opened(answers: Path, source: bytes, model: str, bad: Iterable[Bad]) -> Iterator[Book]:
    """Open the files of these answers; resume if they are of the same requests and model."""
    errors, mark = answers.with_name(f"{answers.name}.errors"), answers.with_name(f".{answers.name}.batch")
    storage.make(answers.parent)
    with storage.lock(answers.with_name(f".{answers.name}.lock")) as held:
        if not held:
            raise Problem(
                f"another medley batch writes {answers}", cause="it holds the file's lock", fix="wait for it"
            )
        _require_same(mark, answers, {"requests": hashlib.sha256(source).hexdigest(), "model": model})
        done = {table["custom_id"] for table in kept(answers)}
        refused = [table for table in kept(errors) if not _is_bad_line(table)]
        tables = (*(_error_entry(each, "bad_line", each.why) for each in bad), *refused)
        storage.write(errors, "".join(map(_as_line, tables)))
        done |= {table["custom_id"] for table in refused}
        book = Book(answers, errors, done, len(refused))
        try:
            for path in (answers, errors):
                with storage.explain_errors(path, "written"):
                    book.handles[path] = os.open(path, _APPEND, 0o644)
            yield book
        finally:
            for path, handle in book.handles.items():
                with storage.explain_errors(path, "written"):
                    os.fsync(handle)
                os.close(handle)


def kept(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a file, and truncate an incomplete one."""
    whole, end, torn = (storage.read_bytes(path) or b"").rpartition(b"\n")
    if torn:
        with storage.explain_errors(path, "written"):
            os.truncate(path, len(whole) + len(end))
    kept = []
    for number, line in enumerate(whole.split(b"\n"), 1):
        if line.strip():
            table = json_shape.table(line)
            if table is None or not isinstance(table.get("custom_id", 0), str | None):
                raise Problem(
                    f"{path} is not a file of batch answers",
                    cause=f"line {number} is not a JSON object with a custom_id",
                    fix="name another file for the answers: medley batch MODEL IN.jsonl OUT.jsonl",
                )
            kept.append(table)
    return kept


def _require_same(mark: Path, answers: Path, now: dict[str, str]) -> None:
    if storage.exists(mark):
        before = storage.read_table(mark) or {}
        changed = [name for name, value in now.items() if before.get(name) != value]
        if changed:
            raise Problem(
                f"{answers} has the answers of another batch",
                cause=f"the {' and the '.join(changed)} changed since it started",
                fix=f"name another file, or start again: rm {answers} {mark}",
            )
    elif storage.read_bytes(answers):
        raise Problem(
            f"{answers} is not empty and not of medley batch",
            cause=f"there is no {mark.name} next to it",
            fix="name another file for the answers: medley batch MODEL IN.jsonl OUT.jsonl",
        )
    storage.write(mark, json.dumps(now))


def _is_bad_line(table: dict[str, Any]) -> bool:
    error = table.get("error")
    return isinstance(error, dict) and error.get("code") == "bad_line"


def _as_line(table: dict[str, Any]) -> str:
    return json.dumps(table, ensure_ascii=False) + "\n"


def _entry(line: Request | Bad) -> dict[str, Any]:
    return {"id": f"batch_req_{line.number}", "custom_id": line.custom_id, "response": None, "error": None}


def _error_entry(line: Request | Bad, code: str, message: str) -> dict[str, Any]:
    return {**_entry(line), "error": {"code": code, "message": message}, "line": line.number}
