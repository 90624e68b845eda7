"""Needs are files that an engine wants beside a model's weights: fetched once, each known by its hash."""

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import IO

from medley import fingerprint, hub, store
from medley.problem import Problem, in_words
from medley.tables import Model, Need
from medley.watch import Watch

BASE = "TIKTOKEN_ENCODINGS_BASE"
LARGEST_BYTES = 16 << 20
_CONNECT_S, _READ_S, _ALL_S = 8.0, 20.0, 300.0


def wanted(model: Model | None, environ: Mapping[str, str]) -> tuple[Need, ...]:
    """Those of a model, less those for which the user's own environment has a place."""
    return tuple(
        need for need in (model.needs if model else ()) if need.kind != "tiktoken" or not environ.get(BASE)
    )


def folder(need: Need, needs: Iterable[Need]) -> Path:
    """Where it lies: all of one kind in one folder, which is named by what is in it."""
    kind = {each.name: each.sha256 for each in needs if each.kind == need.kind}
    return store.cache() / "needs" / fingerprint.of_all(kind)[:16]


def paths(needs: tuple[Need, ...]) -> Iterator[tuple[Need, Path]]:
    return ((need, folder(need, needs) / need.name) for need in needs)


def fetch(needs: tuple[Need, ...], watch: Watch, *, limit_s: float = _ALL_S) -> None:
    """See that each is there, and is what its table says; a Problem says how to bring it by hand."""
    for need, path in paths(needs):
        with store.lock(
            path.parent / ".lock", waits=lambda: watch.note("another medley fetches it; waiting")
        ):
            if path.is_file() and fingerprint.of_file(path) == need.sha256:
                continue
            with watch.stage(f"fetch {need.name}: {need.what}"):
                _Fetching(need, path, watch, time.monotonic() + limit_s).fetch()


@dataclass(frozen=True)
class _Fetching:
    need: Need
    path: Path
    watch: Watch
    deadline: float

    @property
    def url(self) -> str:
        need = self.need
        return need.url or f"{hub.endpoint()}/{need.repository}/resolve/{need.commit}/{need.name}"

    def fetch(self) -> None:
        """Into a part beside it, with which a later run goes on; one that went wrong is begun anew, once."""
        part = self.path.with_name(f".{self.need.name}.part")
        again = part.is_file()
        self._load(part)
        if again and fingerprint.of_file(part) != self.need.sha256:
            part.unlink()
            self._load(part)
        found = fingerprint.of_file(part)
        if found != self.need.sha256:
            part.unlink()
            raise Problem(
                f"{self.need.name} is not the file that the model's table knows",
                cause=f"{self.url} has SHA-256 {found}; the table has {self.need.sha256}",
                fix=f"do not use it before you know why; the right one can be put here: {self.path}",
            )
        part.replace(self.path)

    def _load(self, part: Path) -> None:
        # A fifth of the time that a plan takes, for what most models never need.
        from httpx import HTTPError  # noqa: PLC0415 - see above

        from medley import http_client  # noqa: PLC0415 - see above

        if self.need.repository and hub.offline():
            raise self._problem("HF_HUB_OFFLINE is set")
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
        own = f"\nor, if you have it: export {BASE}=FOLDER" if self.need.kind == "tiktoken" else ""
        return Problem(
            f"{self.need.name} cannot be fetched, which this model needs: {self.need.what}",
            cause=cause,
            fix=f"try again, or fetch {self.url} on a host that can, and put it here: {self.path}\n"
            f"its SHA-256 is {self.need.sha256}{own}",
        )
