"""Read config.json and weights' headers from the hub, and keep each commit's in CACHE/checkpoints."""

import contextlib
import itertools
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medley import storage
from medley.model import hub
from medley.model.checkpoint import (
    CONFIG,
    INDEX,
    QUANTIZATION,
    SINGLE,
    Checkpoint,
    Tensor,
    names_quantization,
    parsed,
    read_checkpoint,
    read_config,
    weight_files,
    with_quantization,
)
from medley.progress import SILENT, Progress
from medley.unusable_file import optional

if TYPE_CHECKING:  # half a second to import, and seldom needed
    from huggingface_hub import HfApi

_AT_ONCE = 8
_EXPERT = re.compile(r"(?<=\.experts\.)\d+(?=\.)")


@dataclass(frozen=True)
class Look:
    """A repository as it was at a commit."""

    repository: str
    commit: str | None
    """None if unknown; then the look is not kept."""
    date: str
    """When the hub was asked, as 2026-11-24."""
    license: str | None
    files: tuple[str, ...]
    """Those with the headers."""
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...], int]]
    """By name: dtype, shape and bytes; experts that are alike are one tensor."""

    @property
    def checkpoint(self) -> Checkpoint:
        found = {
            name: Tensor(dtype, tuple(shape), size) for name, (dtype, shape, size) in self.tensors.items()
        }
        return Checkpoint(self.repository, self.config, found)

    @property
    def named(self) -> str:
        return f"commit {self.commit[:12] if self.commit else 'unknown'}, read on {self.date}"


def checkpoint(repository: str, watch: Progress = SILENT) -> Checkpoint:
    """Read the tensors from the hub's cache or the hub; else config.json in the cache, to estimate bytes."""
    folder = hub.snapshot(repository)
    if folder is not None:
        return read_checkpoint(folder)
    try:
        return look(repository, watch).checkpoint
    except hub.Unreachable as problem:
        if (folder := hub.configured(repository)) is None:
            small = f"put its {CONFIG} and {INDEX} into a folder"
            problem.fix += f"\nor {small}, which is enough for a plan: medley plan ./FOLDER"
            raise
        date = datetime.fromtimestamp((folder / CONFIG).stat().st_mtime, UTC).date()
        watch.note(f"{problem.reason}: using {folder / CONFIG}, fetched on {date}")
        return read_config(folder)


def look(repository: str, watch: Progress = SILENT) -> Look:
    """Ask the hub for the headers; use the last kept ones if it does not answer, or raise Unreachable."""
    try:
        about = hub.about(repository)
    except hub.Unreachable as problem:
        if found := kept(repository) or _fetched(repository):
            watch.note(f"{problem.reason}: using {repository} at {found.named}")
            return found
        raise
    if found := kept(repository, about.commit):
        return found
    found = hub.answered(repository, lambda api: _asked(api, repository, about, watch))
    if found.commit:
        with optional():
            storage.write(_file(repository, found.commit), json.dumps(asdict(found)))
    return found


def small_file(repository: str, name: str) -> str | None:
    """Read a text file of a repository from the hub's cache or the hub; None where it has none."""
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    for folder in filter(None, (hub.snapshot(repository), hub.configured(repository))):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8", errors="replace")
    if hub.snapshot(repository) is not None or hub.offline():
        return None

    def asked(api: "HfApi") -> bytes | None:
        with contextlib.suppress(EntryNotFoundError):
            return hub.file(api, repository, name)
        return None

    found = hub.answered(repository, asked)
    return None if found is None else found.decode("utf-8", "replace")


def _fetched(repository: str) -> Look | None:
    """Look at a model whose weights are in the hub's cache."""
    if (folder := hub.snapshot(repository)) is None:
        return None
    found = read_checkpoint(folder)
    date = datetime.fromtimestamp((folder / CONFIG).stat().st_mtime, UTC).date().isoformat()
    names = tuple(sorted(path.name for path in folder.glob("*.safetensors")))
    return Look(repository, folder.name, date, None, names, found.config, merged(found.tensors))


def kept(repository: str, commit: str | None = None) -> Look | None:
    """Read the kept look of this commit, else the newest."""
    found = []
    with optional():
        folder = _file(repository, "").parent
        for path in [_file(repository, commit)] if commit else storage.listed(folder, "*.json"):
            with optional():
                found.append(storage.record(path, Look))
    return max((each for each in found if each), key=lambda each: each.date, default=None)


def _file(repository: str, commit: str) -> Path:
    return storage.cache() / "checkpoints" / repository.replace("/", "--") / f"{commit}.json"


def _asked(api: "HfApi", repository: str, about: hub.About, watch: Progress) -> Look:
    """Read the headers of all files, by a range request each."""
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    at = about.commit
    config = parsed(hub.file(api, repository, CONFIG, at), f"{repository}/{CONFIG}")
    if not names_quantization(config):
        with contextlib.suppress(EntryNotFoundError):
            told = parsed(hub.file(api, repository, QUANTIZATION, at), f"{repository}/{QUANTIZATION}")
            config = with_quantization(config, told)
    names: tuple[str, ...] = (SINGLE,)
    with contextlib.suppress(EntryNotFoundError):
        index = hub.file(api, repository, INDEX, at)
        names = weight_files(parsed(index, f"{repository}/{INDEX}"), f"{repository}/{INDEX}")
    done = itertools.count(1)

    def header(name: str) -> dict[str, Tensor]:
        told = api.parse_safetensors_file_metadata(repository, name, revision=at)
        watch.line(f"headers of {next(done)} of {len(names)} files")
        return {
            each: Tensor(info.dtype, tuple(info.shape), info.data_offsets[1] - info.data_offsets[0])
            for each, info in told.tensors.items()
        }

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        headers = list(pool.map(header, names))
    found = {name: tensor for each in headers for name, tensor in each.items()}
    today = datetime.now(UTC).date().isoformat()
    return Look(repository, at, today, about.license, names, config, merged(found))


def merged(tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Merge a layer's equal experts into one tensor: 90,000 tensors then take less than 1 MB."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[tuple[str, Tensor]]] = {}
    for name, each in tensors.items():
        key = (_EXPERT.sub("*", name), each.dtype, each.shape)
        groups.setdefault(key, []).append((name, each))
    found: dict[str, tuple[str, tuple[int, ...], int]] = {}
    for (name, dtype, shape), alike in groups.items():
        one = len(alike) == 1
        size = sum(each.size_bytes for _, each in alike)
        # Where experts of a layer differ, each sort keeps the name of its first.
        whole = alike[0][0] if one or name in found else name
        found[whole] = (dtype, shape if one else (len(alike), *shape), size)
    return found
