"""Read config.json and weights' headers from the hub, and keep each commit's in CACHE/checkpoints."""

import contextlib
import itertools
import json
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medley import storage
from medley.model import hub
from medley.model.checkpoint import (
    CONFIG_FILE,
    INDEX_FILE,
    QUANTIZATION_FILE,
    WEIGHTS_FILE,
    Checkpoint,
    Tensor,
    add_quantization,
    has_quantization,
    list_weight_files,
    parse_table,
    read_checkpoint,
    read_config,
)
from medley.progress import SILENT, Progress
from medley.unusable_file import skip_unusable_file
from medley.values import Value

if TYPE_CHECKING:  # half a second to import, and seldom needed
    from huggingface_hub import HfApi

_MAX_REQUESTS = 8
_EXPERT_PATTERN = re.compile(r"(?<=\.experts\.)\d+(?=\.)")


class HubRecord(Value):
    """The headers of a repository at a commit, as CACHE/checkpoints keeps them in JSON."""

    repository: str
    commit: str | None
    """The commit; None if it is unknown, and then the record is not kept."""
    date: str
    """The day when the hub was asked, as 2026-11-24."""
    license: str | None
    files: tuple[str, ...]
    """The names of the files with the headers."""
    config: Mapping[str, Any]
    tensors: Mapping[str, tuple[str, tuple[int, ...], int]]
    """The dtype, shape and bytes of each tensor by name; experts that are alike are one tensor."""

    @property
    def checkpoint(self) -> Checkpoint:
        """The headers as those of a checkpoint on disk."""
        tensors = {
            name: Tensor(dtype, tuple(shape), size) for name, (dtype, shape, size) in self.tensors.items()
        }
        return Checkpoint(self.repository, self.config, tensors)

    @property
    def description(self) -> str:
        return f"commit {self.commit[:12] if self.commit else 'unknown'}, read on {self.date}"


def fetch_checkpoint(repository: str, progress: Progress = SILENT) -> Checkpoint:
    """Read the tensors from the hub's cache or the hub; else config.json in the cache, to estimate bytes."""
    folder = hub.find_snapshot(repository)
    if folder is not None:
        return read_checkpoint(folder)
    try:
        return fetch_record(repository, progress).checkpoint
    except hub.HubUnreachable as problem:
        if (folder := hub.find_configured_snapshot(repository)) is None:
            alternative = f"put its {CONFIG_FILE} and {INDEX_FILE} into a folder"
            problem.fix += f"\nor {alternative}, which is enough for a plan: medley plan ./FOLDER"
            raise
        date = datetime.fromtimestamp((folder / CONFIG_FILE).stat().st_mtime, UTC).date()
        progress.note(f"{problem.reason}: using {folder / CONFIG_FILE}, fetched on {date}")
        return read_config(folder)


def fetch_record(repository: str, progress: Progress = SILENT) -> HubRecord:
    """Ask the hub for the headers; use the last kept ones if it does not answer, or raise Unreachable."""
    try:
        about = hub.fetch_info(repository)
    except hub.HubUnreachable as problem:
        if record := load_record(repository) or _read_snapshot(repository):
            progress.note(f"{problem.reason}: using {repository} at {record.description}")
            return record
        raise
    if record := load_record(repository, about.commit):
        return record
    record = hub.run_query(repository, lambda api: _fetch_headers(api, repository, about, progress))
    if record.commit:
        with skip_unusable_file():
            storage.write_text(_find_record_path(repository, record.commit), json.dumps(record.to_table()))
    return record


def read_small_file(repository: str, name: str) -> str | None:
    """Read a text file of a repository from the hub's cache or the hub; None where it has none."""
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    for folder in filter(None, (hub.find_snapshot(repository), hub.find_configured_snapshot(repository))):
        if (folder / name).is_file():
            return (folder / name).read_text(encoding="utf-8", errors="replace")
    if hub.find_snapshot(repository) is not None or hub.find_offline_variable():
        return None

    def read_from_hub(api: "HfApi") -> bytes | None:
        with contextlib.suppress(EntryNotFoundError):
            return hub.read_file(api, repository, name)
        return None

    content = hub.run_query(repository, read_from_hub)
    return None if content is None else content.decode("utf-8", "replace")


def _read_snapshot(repository: str) -> HubRecord | None:
    """Return the headers of a model whose weights are in the hub's cache; None without weights."""
    if (folder := hub.find_snapshot(repository)) is None:
        return None
    snapshot_checkpoint = read_checkpoint(folder)
    date = datetime.fromtimestamp((folder / CONFIG_FILE).stat().st_mtime, UTC).date().isoformat()
    names = tuple(sorted(path.name for path in folder.glob("*.safetensors")))
    return HubRecord(
        repository,
        folder.name,
        date,
        None,
        names,
        snapshot_checkpoint.config,
        merge_experts(snapshot_checkpoint.tensors),
    )


def load_record(repository: str, commit: str | None = None) -> HubRecord | None:
    """Return the kept record of this commit, else the newest one; None without one."""
    records = []
    with skip_unusable_file():
        folder = _find_record_path(repository, "").parent
        for path in (
            [_find_record_path(repository, commit)] if commit else storage.list_folder(folder, "*.json")
        ):
            with skip_unusable_file():
                records.append(storage.read_record(path, HubRecord))
    return max((record for record in records if record), key=lambda record: record.date, default=None)


def _find_record_path(repository: str, commit: str) -> Path:
    return storage.find_cache_folder() / "checkpoints" / repository.replace("/", "--") / f"{commit}.json"


def _fetch_headers(api: "HfApi", repository: str, about: hub.RepositoryInfo, progress: Progress) -> HubRecord:
    """Read the headers of all files with a range request for each."""
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    commit = about.commit
    config = parse_table(hub.read_file(api, repository, CONFIG_FILE, commit), f"{repository}/{CONFIG_FILE}")
    if not has_quantization(config):
        with contextlib.suppress(EntryNotFoundError):
            content = hub.read_file(api, repository, QUANTIZATION_FILE, commit)
            config = add_quantization(config, parse_table(content, f"{repository}/{QUANTIZATION_FILE}"))
    names: tuple[str, ...] = (WEIGHTS_FILE,)
    with contextlib.suppress(EntryNotFoundError):
        index = hub.read_file(api, repository, INDEX_FILE, commit)
        names = list_weight_files(
            parse_table(index, f"{repository}/{INDEX_FILE}"), f"{repository}/{INDEX_FILE}"
        )
    done = itertools.count(1)

    def read_header(name: str) -> dict[str, Tensor]:
        metadata = api.parse_safetensors_file_metadata(repository, name, revision=commit)
        progress.line(f"headers of {next(done)} of {len(names)} files")
        return {
            tensor: Tensor(info.dtype, tuple(info.shape), info.data_offsets[1] - info.data_offsets[0])
            for tensor, info in metadata.tensors.items()
        }

    tensors: dict[str, Tensor] = {}
    with ThreadPoolExecutor(_MAX_REQUESTS) as pool:
        for header in pool.map(read_header, names):
            tensors |= header
    today = datetime.now(UTC).date().isoformat()
    return HubRecord(repository, commit, today, about.license, names, config, merge_experts(tensors))


def merge_experts(tensors: Mapping[str, Tensor]) -> dict[str, tuple[str, tuple[int, ...], int]]:
    """Merge a layer's equal experts into one tensor: 90,000 tensors then take less than 1 MB."""
    groups: dict[tuple[str, str, tuple[int, ...]], list[tuple[str, Tensor]]] = {}
    for name, tensor in tensors.items():
        key = (_EXPERT_PATTERN.sub("*", name), tensor.dtype, tensor.shape)
        groups.setdefault(key, []).append((name, tensor))
    merged_tensors: dict[str, tuple[str, tuple[int, ...], int]] = {}
    for (pattern, dtype, shape), equal in groups.items():
        is_single = len(equal) == 1
        size_bytes = sum(tensor.size_bytes for _, tensor in equal)
        # Where experts of a layer differ, each sort keeps the name of its first.
        name = equal[0][0] if is_single or pattern in merged_tensors else pattern
        merged_tensors[name] = (dtype, shape if is_single else (len(equal), *shape), size_bytes)
    return merged_tensors
