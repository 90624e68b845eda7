"""Download a repository's weights, tables and code into the hub's cache, and report the bytes."""

import fnmatch
import threading
from collections.abc import Callable
from pathlib import Path

from medley.errors import in_words
from medley.model import hub

OnProgress = Callable[[int, int], None]
"""Bytes done, bytes in all."""
# The same weights in other forms, which no engine of ours reads beside safetensors.
NOT_NEEDED = ("*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*", "metal/*")
_LOOK_EVERY_S = 1.0


def download(repository: str, on_progress: OnProgress | None = None, *, revision: str | None = None) -> Path:
    """Fetch what is missing of it, and return the folder of its snapshot; raise a Problem where it fails.

    `revision`: a commit, branch or tag; `main` without it.
    """
    # Half a second to import, and seldom needed.
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - see above

    try:
        with _Watched(repository, on_progress, revision):
            found = snapshot_download(
                repository,
                revision=revision,
                cache_dir=hub.cache(),
                endpoint=hub.endpoint(),
                ignore_patterns=list(NOT_NEEDED),
            )
    except Exception as error:
        raise hub.unreachable(repository, f"{type(error).__name__}: {in_words(error)[:200]}") from error
    return Path(found)


def size_bytes(repository: str, revision: str | None = None) -> int | None:
    """Return the size of the files that `download` fetches, as the hub says it; None where it does not."""
    from huggingface_hub import HfApi  # noqa: PLC0415 - as in download

    try:
        about = HfApi(endpoint=hub.endpoint(), library_name="medley").model_info(
            repository, revision=revision, files_metadata=True, timeout=hub.LIMIT_S
        )
    except Exception:  # noqa: BLE001 - the download itself says what is wrong
        return None
    wanted = (each for each in about.siblings or () if not _skipped(each.rfilename))
    return sum(each.size or 0 for each in wanted)


def _skipped(name: str) -> bool:
    return any(fnmatch.fnmatch(name, pattern) for pattern in NOT_NEEDED)


class _Watched:
    """Report the bytes of a repository in the hub's cache while the body downloads it."""

    def __init__(self, repository: str, on_progress: OnProgress | None, revision: str | None) -> None:
        self._blobs = hub.folder_of(repository) / "blobs"
        self._on_progress = on_progress
        self._total = size_bytes(repository, revision) if on_progress else None
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> None:
        if self._total:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._done.set()

    def _watch(self) -> None:
        total = self._total or 0
        while not self._done.wait(_LOOK_EVERY_S):
            if self._on_progress:
                self._on_progress(min(total, _blob_bytes(self._blobs)), total)


def _blob_bytes(blobs: Path) -> int:
    """Count what lies on the disk; an unfinished file may have its final size before it has its bytes."""
    found = 0
    for path in blobs.glob("*"):
        try:
            about = path.stat()
        except FileNotFoundError:  # it got its final name meanwhile
            continue
        found += min(about.st_size, about.st_blocks * 512)
    return found
