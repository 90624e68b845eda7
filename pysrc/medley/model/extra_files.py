"""Fetch the chat templates, parser plugins and encodings that a model needs."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from medley import config, storage
from medley.command import Flag, Variable
from medley.errors import Problem, describe_error
from medley.host_schema import ENGINE_TABLES
from medley.model import hub
from medley.model.remote_code import Code
from medley.progress import Progress
from medley.schema import (
    DEFAULT_ENGINE,
    TITLES,
    EngineName,
    ExtraFile,
    Model,
)
from medley.values import Value

CODE_FOLDER_VARIABLE = "HF_MODULES_CACHE"
"""The variable of the folder to which transformers copies the code of a model, to import it from there."""
NO_CODE_FOLDER = "/dev/null/untrusted-code"
"""A folder that nobody can make, not even root."""
ENCODINGS_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
FLAG_BY_KIND: Mapping[str, str] = {
    "chat-template": "--chat-template",
    "reasoning-parser-plugin": "--reasoning-parser-plugin",
}
MAX_FILE_BYTES = 16 << 20
_CONNECT_S, _READ_S, _FETCH_LIMIT_S = 8.0, 20.0, 300.0


def list_extras(model: Model | None, environ: Mapping[str, str]) -> tuple[ExtraFile, ...]:
    """List a model's extra files, except those that the user's environment replaces."""
    if model is None:
        return ()
    return tuple(
        extra for extra in model.needs if extra.kind != "tiktoken" or not environ.get(ENCODINGS_VARIABLE)
    )


def find_extras_folder(extra: ExtraFile, extras: Iterable[ExtraFile]) -> Path:
    """Return the folder of all files of one kind, which is named by their hash."""
    checksums = {other.name: other.sha256 for other in extras if other.kind == extra.kind}
    return storage.find_cache_folder() / "needs" / storage.hash_checksums(checksums)[:16]


def list_extra_paths(extras: tuple[ExtraFile, ...]) -> Iterator[tuple[ExtraFile, Path]]:
    """Return each file with its path on this host."""
    return ((extra, find_extras_folder(extra, extras) / extra.name) for extra in extras)


def fetch_extras(
    extras: tuple[ExtraFile, ...], progress: Progress, *, limit_s: float = _FETCH_LIMIT_S
) -> None:
    """Fetch each file and verify its hash; the Problem shows how to copy it by hand."""
    for extra, path in list_extra_paths(extras):
        with storage.lock_file(
            path.parent / ".lock", on_wait=lambda: progress.note("another medley fetches it; waiting")
        ):
            if storage.exists(path) and storage.hash_file(path) == extra.sha256:
                continue
            with (
                progress.stage(f"fetch {extra.name}: {extra.what}"),
                storage.explain_errors(path, "written"),
            ):
                _Fetcher(extra, path, progress, time.monotonic() + limit_s).fetch()


class _Fetcher(Value):
    extra: ExtraFile
    path: Path
    progress: Progress
    deadline: float

    @property
    def url(self) -> str:
        extra = self.extra
        return extra.url or f"{hub.find_endpoint()}/{extra.repository}/resolve/{extra.commit}/{extra.name}"

    def fetch(self) -> None:
        """Fetch into a part file, which a later run continues; start again once if its hash is wrong."""
        part_path = self.path.with_name(f".{self.extra.name}.part")
        for _ in range(2 if part_path.is_file() else 1):
            self._download(part_path)
            sha256 = storage.hash_file(part_path)
            if sha256 == self.extra.sha256:
                part_path.replace(self.path)
                return
            part_path.unlink()
        raise Problem(
            f"{self.extra.name} is not the file that the model's table knows",
            cause=f"{self.url} has SHA-256 {sha256}; the table has {self.extra.sha256}",
            fix=f"do not use it before you know why; the right one can be put here: {self.path}",
        )

    def _download(self, part_path: Path) -> None:
        from httpx import HTTPError  # noqa: PLC0415 - a fifth of the time that a plan takes, and seldom needed

        from medley.network import http_client  # noqa: PLC0415 - as above

        if self.extra.repository and (name := hub.find_offline_variable()):
            raise self._problem(f"{name} is set")
        part_bytes = part_path.stat().st_size if part_path.is_file() else 0
        headers = {"Range": f"bytes={part_bytes}-"} if part_bytes else {}
        # Only the hub gets the hub's token.
        headers |= hub.build_headers() if self.extra.repository else {}
        try:
            with http_client.stream_download(
                self.url, limit_s=_READ_S, headers=headers, connect_s=_CONNECT_S
            ) as answer:
                if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return  # all of it is there
                if answer.status_code not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
                    raise self._problem(f"{self.url} answered {answer.status_code}")
                is_continued = answer.status_code == HTTPStatus.PARTIAL_CONTENT
                with part_path.open("ab" if is_continued else "wb") as file:
                    self._write(answer.iter_bytes(), file)
        except HTTPError as error:
            raise self._problem(f"{self.url}: {describe_error(error)}") from error

    def _write(self, chunks: Iterable[bytes], file: IO[bytes]) -> None:
        for chunk in chunks:
            file.write(chunk)
            self.progress.line(f"{file.tell() / (1 << 20):.1f} MiB")
            if file.tell() > MAX_FILE_BYTES:
                raise self._problem(f"{self.url} is larger than {MAX_FILE_BYTES >> 20} MiB")
            if time.monotonic() > self.deadline:
                raise self._problem(
                    f"{self.url} is too slow; what has come is kept, and the next try goes on"
                )
        file.flush()
        os.fsync(file.fileno())

    def _problem(self, cause: str) -> Problem:
        variable_hint = f"\nor, if you have it: export {ENCODINGS_VARIABLE}=FOLDER"
        return Problem(
            f"{self.extra.name} cannot be fetched, which this model needs: {self.extra.what}",
            cause=cause,
            fix=f"try again, or fetch {self.url} on a host that can, and put it here: {self.path}\n"
            f"its SHA-256 is {self.extra.sha256}{variable_hint if self.extra.kind == 'tiktoken' else ''}",
        )


class ModelExtras(Value):
    """The code and the extra files that a model's engine gets."""

    code: Code | None = None
    """The code that the user trusts, pinned by its commit or fingerprint."""
    files: tuple[tuple[ExtraFile, Path], ...] = ()
    encodings_folder: str | None = None
    """The user's own folder of encodings, from TIKTOKEN_ENCODINGS_BASE."""
    is_code_refused: bool = False
    """Whether the user gave --no-remote-code."""
    warnings: tuple[str, ...] = ()

    def list_reasons(self) -> Iterator[str]:
        yield from self.warnings
        if self.code:
            yield f"trusted code: {self.code.description}"
        for extra, path in self.files:
            yield f"{extra.name} ({extra.what}), SHA-256 {extra.sha256}: {path}"

    def build_table(self) -> dict[str, Any]:
        """Return the table for a host that joins this model, which reads it with `read_extras`."""
        return {
            "cache": str(storage.find_cache_folder()),
            "needs": [extra.to_table() for extra, _ in self.files],
            "code": self.code.to_table() if self.code else None,
        }

    def list_options(self) -> Iterator[str]:
        """Yield the flags that repeat this choice."""
        if self.code:
            yield from ("--trust-remote-code", "--code-revision", self.code.pin)
        elif self.is_code_refused:
            yield "--no-remote-code"

    def list_flags(self, engine: EngineName) -> Iterator[Flag]:
        if self.code:
            yield Flag(("--trust-remote-code",), None, f"as you chose: {self.code.description}")
        if self.code and self.code.commit:
            why = "the commit whose code you trust, and no newer one"
            yield Flag(("--revision",), self.code.commit, why)
            for name in ENGINE_TABLES[engine].code_revision_flags:
                yield Flag((name,), self.code.commit, why)
        for extra, path in self.files:
            if extra.kind in FLAG_BY_KIND:
                yield Flag((FLAG_BY_KIND[extra.kind],), str(path), f"{extra.what}; SHA-256 {extra.sha256}")

    def list_variables(self) -> Iterator[Variable]:
        """Yield the variables of the engine; one of them keeps it from any code that is not trusted.

        SGLang 0.5.23 runs code without --trust-remote-code, for a model whose architecture it does not know.
        """
        if self.code is None:
            why = "no code of a model can be imported, whatever the engine's flags say"
            yield Variable(CODE_FOLDER_VARIABLE, NO_CODE_FOLDER, why)
        encodings = next((path.parent for extra, path in self.files if extra.kind == "tiktoken"), None)
        if self.encodings_folder:
            yield Variable(ENCODINGS_VARIABLE, self.encodings_folder, "your own: nothing is fetched")
        elif encodings:
            yield Variable(
                ENCODINGS_VARIABLE, str(encodings), "else the engine fetches these encodings when it starts"
            )


NO_EXTRAS = ModelExtras()


def require_usable_extras(
    extras: tuple[ExtraFile, ...], engine: EngineName, *, trusted: bool
) -> tuple[tuple[ExtraFile, Path], ...]:
    """Return the paths for an engine.

    Raise a Problem for a parser that the engine cannot load, or that is not trusted, because it is code.
    """
    for extra in extras:
        if extra.kind != "reasoning-parser-plugin":
            continue
        if not ENGINE_TABLES[engine].has_parser_plugins:
            raise Problem(
                f"{extra.name} is a parser for {TITLES[DEFAULT_ENGINE]}, and {engine} takes none",
                cause=f"the model's table needs it: {extra.what}",
                fix=f"--engine {DEFAULT_ENGINE}",
            )
        if not trusted:
            raise Problem(
                f"this model needs {extra.name}, which is code, and it is not trusted",
                cause=f"{extra.what}; {extra.url or extra.repository}, SHA-256 {extra.sha256}",
                fix="read it, then: --trust-remote-code",
            )
    return tuple(list_extra_paths(extras))


def read_extras(table: Mapping[str, Any]) -> ModelExtras:
    """Read a head's table; the paths are this host's."""
    extras = tuple(
        config.build_table(entry, ExtraFile, "what the head's model needs") for entry in table["needs"]
    )
    return ModelExtras(Code(**table["code"]) if table["code"] else None, tuple(list_extra_paths(extras)))
