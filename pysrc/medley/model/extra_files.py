"""Fetch the chat templates, parser plugins and encodings that a model needs."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO, Any

from medley import config, storage
from medley.command import Flag, Variable
from medley.errors import Problem, in_words
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

ENCODINGS_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
FLAGS: Mapping[str, str] = {
    "chat-template": "--chat-template",
    "reasoning-parser-plugin": "--reasoning-parser-plugin",
}
LARGEST_BYTES = 16 << 20
_CONNECT_S, _READ_S, _ALL_S = 8.0, 20.0, 300.0


def wanted_extras(model: Model | None, environ: Mapping[str, str]) -> tuple[ExtraFile, ...]:
    """List a model's extra files, except those that the user's environment replaces."""
    return tuple(
        need
        for need in (model.needs if model else ())
        if need.kind != "tiktoken" or not environ.get(ENCODINGS_VARIABLE)
    )


def folder(need: ExtraFile, needs: Iterable[ExtraFile]) -> Path:
    """The folder that holds all files of one kind, named by the hash of them."""
    kind = {each.name: each.sha256 for each in needs if each.kind == need.kind}
    return storage.cache() / "needs" / storage.hash_all(kind)[:16]


def extra_files(needs: tuple[ExtraFile, ...]) -> Iterator[tuple[ExtraFile, Path]]:
    return ((need, folder(need, needs) / need.name) for need in needs)


def fetch_extras(needs: tuple[ExtraFile, ...], watch: Progress, *, limit_s: float = _ALL_S) -> None:
    """Fetch each file and verify its hash; the Problem shows how to copy it by hand."""
    for need, path in extra_files(needs):
        with storage.lock(
            path.parent / ".lock", waits=lambda: watch.note("another medley fetches it; waiting")
        ):
            if storage.exists(path) and storage.hash_file(path) == need.sha256:
                continue
            with (
                watch.stage(f"fetch {need.name}: {need.what}"),
                storage.explained(path, "written"),
            ):
                _Fetching(need, path, watch, time.monotonic() + limit_s).fetch()


@dataclass(frozen=True)
class _Fetching:
    need: ExtraFile
    path: Path
    watch: Progress
    deadline: float

    @property
    def url(self) -> str:
        need = self.need
        return need.url or f"{hub.endpoint()}/{need.repository}/resolve/{need.commit}/{need.name}"

    def fetch(self) -> None:
        """Fetch into a part file, which a later run continues; start again once if its hash is wrong."""
        part = self.path.with_name(f".{self.need.name}.part")
        for _ in range(2 if part.is_file() else 1):
            self._load(part)
            found = storage.hash_file(part)
            if found == self.need.sha256:
                part.replace(self.path)
                return
            part.unlink()
        raise Problem(
            f"{self.need.name} is not the file that the model's table knows",
            cause=f"{self.url} has SHA-256 {found}; the table has {self.need.sha256}",
            fix=f"do not use it before you know why; the right one can be put here: {self.path}",
        )

    def _load(self, part: Path) -> None:
        from httpx import HTTPError  # noqa: PLC0415 - a fifth of the time that a plan takes, and seldom needed

        from medley.network import http_client  # noqa: PLC0415 - as above

        if self.need.repository and (name := hub.offline()):
            raise self._problem(f"{name} is set")
        have = part.stat().st_size if part.is_file() else 0
        headers = {"Range": f"bytes={have}-"} if have else {}
        # The hub's token is for the hub alone.
        headers |= hub.headers() if self.need.repository else {}
        try:
            with http_client.download(
                self.url, limit_s=_READ_S, headers=headers, connect_s=_CONNECT_S
            ) as answer:
                if answer.status_code == HTTPStatus.REQUESTED_RANGE_NOT_SATISFIABLE:
                    return  # all of it is there
                if answer.status_code not in {HTTPStatus.OK, HTTPStatus.PARTIAL_CONTENT}:
                    raise self._problem(f"{self.url} answered {answer.status_code}")
                goes_on = answer.status_code == HTTPStatus.PARTIAL_CONTENT
                with part.open("ab" if goes_on else "wb") as file:
                    self._write(answer.iter_bytes(), file)
        except HTTPError as error:
            raise self._problem(f"{self.url}: {in_words(error)}") from error

    def _write(self, chunks: Iterable[bytes], file: IO[bytes]) -> None:
        for chunk in chunks:
            file.write(chunk)
            self.watch.line(f"{file.tell() / (1 << 20):.1f} MiB")
            if file.tell() > LARGEST_BYTES:
                raise self._problem(f"{self.url} is larger than {LARGEST_BYTES >> 20} MiB")
            if time.monotonic() > self.deadline:
                raise self._problem(
                    f"{self.url} is too slow; what has come is kept, and the next try goes on"
                )
        file.flush()
        os.fsync(file.fileno())

    def _problem(self, cause: str) -> Problem:
        own = f"\nor, if you have it: export {ENCODINGS_VARIABLE}=FOLDER"
        return Problem(
            f"{self.need.name} cannot be fetched, which this model needs: {self.need.what}",
            cause=cause,
            fix=f"try again, or fetch {self.url} on a host that can, and put it here: {self.path}\n"
            f"its SHA-256 is {self.need.sha256}{own if self.need.kind == 'tiktoken' else ''}",
        )


@dataclass(frozen=True)
class ModelExtras:
    code: Code | None = None
    """The code that the user trusts, pinned by its commit or fingerprint."""
    files: tuple[tuple[ExtraFile, Path], ...] = ()
    base: str | None = None
    without_code: bool = False
    warnings: tuple[str, ...] = ()

    def why(self) -> Iterator[str]:
        yield from self.warnings
        if self.code:
            yield f"trusted code: {self.code.named}"
        for need, path in self.files:
            yield f"{need.name} ({need.what}), SHA-256 {need.sha256}: {path}"

    def table(self) -> dict[str, Any]:
        """For a host that joins this model; `extras_from_table` reads it there."""
        return {
            "cache": str(storage.cache()),
            "needs": [need.model_dump() for need, _ in self.files],
            "code": asdict(self.code) if self.code else None,
        }

    def typed(self) -> Iterator[str]:
        """Yield the flags that repeat this choice."""
        if self.code:
            yield from ("--trust-remote-code", "--code-revision", self.code.pin)
        elif self.without_code:
            yield "--no-remote-code"

    def flags(self, engine: EngineName) -> Iterator[Flag]:
        if self.code:
            yield Flag(("--trust-remote-code",), None, f"as you chose: {self.code.named}")
        if self.code and self.code.commit:
            why = "the commit whose code you trust, and no newer one"
            yield Flag(("--revision",), self.code.commit, why)
            for name in ENGINE_TABLES[engine].code_revision_flags:
                yield Flag((name,), self.code.commit, why)
        for need, path in self.files:
            if need.kind in FLAGS:
                yield Flag((FLAGS[need.kind],), str(path), f"{need.what}; SHA-256 {need.sha256}")

    def variables(self) -> Iterator[Variable]:
        found = next((path.parent for need, path in self.files if need.kind == "tiktoken"), None)
        if self.base:
            yield Variable(ENCODINGS_VARIABLE, self.base, "your own: nothing is fetched")
        elif found:
            yield Variable(
                ENCODINGS_VARIABLE, str(found), "else the engine fetches these encodings when it starts"
            )


NOTHING = ModelExtras()


def extra_paths(
    found: tuple[ExtraFile, ...], engine: EngineName, *, trusted: bool
) -> tuple[tuple[ExtraFile, Path], ...]:
    """List the paths for an engine; a parser is code and must be trusted."""
    for need in found:
        if need.kind != "reasoning-parser-plugin":
            continue
        if not ENGINE_TABLES[engine].has_parser_plugins:
            raise Problem(
                f"{need.name} is a parser for {TITLES[DEFAULT_ENGINE]}, and {engine} takes none",
                cause=f"the model's table needs it: {need.what}",
                fix=f"--engine {DEFAULT_ENGINE}",
            )
        if not trusted:
            raise Problem(
                f"this model needs {need.name}, which is code, and it is not trusted",
                cause=f"{need.what}; {need.url or need.repository}, SHA-256 {need.sha256}",
                fix="read it, then: --trust-remote-code",
            )
    return tuple(extra_files(found))


def extras_from_table(table: Mapping[str, Any]) -> ModelExtras:
    """Read a head's table; the paths are this host's."""
    found = tuple(config.build(each, ExtraFile, "what the head's model needs") for each in table["needs"])
    return ModelExtras(Code(**table["code"]) if table["code"] else None, tuple(extra_files(found)))
