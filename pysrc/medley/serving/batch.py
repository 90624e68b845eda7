"""Read a batch file of requests, and write the files of its answers and errors, which can be resumed."""

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from medley import json_shape, storage
from medley.errors import Problem
from medley.values import Value

_REQUIRED_KEYS = {"/v1/chat/completions": "messages", "/v1/completions": "prompt", "/v1/embeddings": "input"}
_MAX_ID_CHARS = 512


class Request(Value):
    """A request of a batch, in the format of OpenAI's batch files."""

    line_number: int
    custom_id: str
    url: str
    body: dict[str, Any]


class RefusedLine(Value):
    """A line of a batch file that is not a valid request."""

    line_number: int
    custom_id: str | None
    reason: str


def parse_lines(texts: Iterable[str]) -> Iterator[Request | RefusedLine]:
    """Yield each line that is not blank; a repeated custom_id is an error, because it names the answer."""
    first_numbers: dict[str, int] = {}
    for number, text in enumerate(texts, 1):
        if not text.strip():
            continue
        line = _parse_line(number, text)
        if isinstance(line, Request):
            first = first_numbers.setdefault(line.custom_id, number)
            if first != number:
                line = RefusedLine(number, line.custom_id, f"line {first} has the same custom_id")
        yield line


def _parse_line(number: int, text: str) -> Request | RefusedLine:
    try:
        table = json.loads(text)
    except (ValueError, RecursionError) as error:
        return RefusedLine(number, None, f"it is not valid JSON: {error}")
    if not isinstance(table, dict):
        return RefusedLine(number, None, "it is not a JSON object")
    id_value = table.get("custom_id")
    custom_id = id_value if isinstance(id_value, str) and 0 < len(id_value) <= _MAX_ID_CHARS else None
    reason = next(_list_errors(table, custom_id), None)
    if reason is not None or custom_id is None:
        return RefusedLine(number, custom_id, reason or "")
    return Request(number, custom_id, table["url"], table["body"])


def _list_errors(table: dict[str, Any], custom_id: str | None) -> Iterator[str]:
    if custom_id is None:
        yield f"custom_id must be text of 1 to {_MAX_ID_CHARS} characters"
    if table.get("method", "POST") != "POST":
        yield f"method {table['method']!r}: only POST is supported"
    required_key = _REQUIRED_KEYS.get(str(table.get("url")))
    if required_key is None:
        yield f"url {table.get('url')!r}: supported are {', '.join(_REQUIRED_KEYS)}"
    body = table.get("body")
    if not isinstance(body, dict):
        yield "body must be an object"
        return
    if body.get("stream"):
        yield "body.stream: a batch does not stream answers"
    if required_key and required_key not in body:
        yield f"body has no {required_key}"


_APPEND_FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC


@dataclass
class BatchFiles:
    """The open files of one run."""

    answers: Path
    errors: Path
    done_ids: set[str]
    """The custom_ids that need no further answer."""
    refused_count: int
    """The number of requests that the server refused in earlier runs."""
    descriptors: dict[Path, int] = field(default_factory=dict)

    def write_answer(self, request: Request, body: Any, request_id: str) -> None:  # noqa: ANN401 - the server's JSON
        response = {"status_code": 200, "request_id": request_id, "body": body}
        self._append(self.answers, {**_build_entry(request), "response": response})

    def write_refusal(self, request: Request, status: int, reason: str) -> None:
        """Write that the server refuses the request, which a retry would not change."""
        self._append(self.errors, _build_error_entry(request, str(status), reason))

    def _append(self, path: Path, table: dict[str, Any]) -> None:
        # One write for a line and its end, so that an interrupted write leaves a last line without an end.
        unwritten = _format_line(table).encode()
        with storage.explain_errors(path, "written"):
            while unwritten:
                unwritten = unwritten[os.write(self.descriptors[path], unwritten) :]
        self.done_ids.add(table["custom_id"])


@contextlib.contextmanager
def open_batch(
    answers: Path, source: bytes, model: str, bad_lines: Iterable[RefusedLine]
) -> Iterator[BatchFiles]:
    """Open the files of these answers, and resume them; raise a Problem for another batch's."""
    errors, mark_file = (
        answers.with_name(f"{answers.name}.errors"),
        answers.with_name(f".{answers.name}.batch"),
    )
    storage.make_folder(answers.parent)
    with storage.lock_file(answers.with_name(f".{answers.name}.lock")) as is_locked:
        if not is_locked:
            raise Problem(
                f"another medley batch writes {answers}", cause="it holds the file's lock", fix="wait for it"
            )
        _require_same_batch(
            mark_file, answers, {"requests": hashlib.sha256(source).hexdigest(), "model": model}
        )
        done_ids = {table["custom_id"] for table in read_complete_lines(answers)}
        refusals = [table for table in read_complete_lines(errors) if not _is_bad_line(table)]
        tables = (*(_build_error_entry(line, "bad_line", line.reason) for line in bad_lines), *refusals)
        storage.write_text(errors, "".join(map(_format_line, tables)), secret=True)
        done_ids |= {table["custom_id"] for table in refusals}
        files = BatchFiles(answers, errors, done_ids, len(refusals))
        try:
            for path in (answers, errors):
                with storage.explain_errors(path, "written"):
                    files.descriptors[path] = os.open(path, _APPEND_FLAGS, 0o600)
            yield files
        finally:
            for path, descriptor in files.descriptors.items():
                with storage.explain_errors(path, "written"):
                    os.fsync(descriptor)
                os.close(descriptor)


def read_complete_lines(path: Path) -> list[dict[str, Any]]:
    """Return the complete lines of a file, and truncate an incomplete last one."""
    complete, end, incomplete = (storage.read_bytes(path) or b"").rpartition(b"\n")
    if incomplete:
        with storage.explain_errors(path, "written"):
            os.truncate(path, len(complete) + len(end))
    tables = []
    for number, line in enumerate(complete.split(b"\n"), 1):
        if line.strip():
            table = json_shape.parse_object(line)
            if table is None or not isinstance(table.get("custom_id", 0), str | None):
                raise Problem(
                    f"{path} is not a file of batch answers",
                    cause=f"line {number} is not a JSON object with a custom_id",
                    fix="name another file for the answers: medley batch MODEL IN.jsonl OUT.jsonl",
                )
            tables.append(table)
    return tables


def _require_same_batch(mark_file: Path, answers: Path, new_values: dict[str, str]) -> None:
    if storage.exists(mark_file):
        old_values = storage.read_table(mark_file) or {}
        changed = [name for name, value in new_values.items() if old_values.get(name) != value]
        if changed:
            raise Problem(
                f"{answers} has the answers of another batch",
                cause=f"the {' and the '.join(changed)} changed since it started",
                fix=f"name another file, or start again: {shlex.join(('rm', str(answers), str(mark_file)))}",
            )
    elif storage.read_bytes(answers):
        raise Problem(
            f"{answers} is not empty and not of medley batch",
            cause=f"there is no {mark_file.name} next to it",
            fix="name another file for the answers: medley batch MODEL IN.jsonl OUT.jsonl",
        )
    storage.write_text(mark_file, json.dumps(new_values))


def _is_bad_line(table: dict[str, Any]) -> bool:
    error = table.get("error")
    return isinstance(error, dict) and error.get("code") == "bad_line"


def _format_line(table: dict[str, Any]) -> str:
    return json.dumps(table, ensure_ascii=False) + "\n"


def _build_entry(line: Request | RefusedLine) -> dict[str, Any]:
    return {
        "id": f"batch_req_{line.line_number}",
        "custom_id": line.custom_id,
        "response": None,
        "error": None,
    }


def _build_error_entry(line: Request | RefusedLine, code: str, message: str) -> dict[str, Any]:
    return {**_build_entry(line), "error": {"code": code, "message": message}, "line": line.line_number}
