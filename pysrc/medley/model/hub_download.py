"""Download a repository's weights, tables and code into the hub's cache, and report the bytes."""

import contextlib
import fnmatch
import threading
from collections.abc import Iterator
from pathlib import Path

from medley.errors import in_words
from medley.model import hub
from medley.model.transfer.inventory import OnProgress

# The same weights in other forms, which no engine of ours reads beside safetensors.
NOT_NEEDED = ("*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*", "metal/*")
_LOOK_EVERY_S = 1.0


def download(repository: str, on_progress: OnProgress | None = None, *, revision: str | None = None) -> Path:
    """Fetch missing files of this commit, branch or tag (main without); return the snapshot's folder."""
    # Half a second to import, and seldom needed.
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - see above

    try:
        with _watched(repository, on_progress, revision):
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
    """Return the size of the files that `download` fetches; None if unknown."""
    from huggingface_hub import HfApi  # noqa: PLC0415 - as in download

    try:
        about = HfApi(endpoint=hub.endpoint(), library_name="medley").model_info(
            repository, revision=revision, files_metadata=True, timeout=hub.LIMIT_S
        )
    except Exception:  # noqa: BLE001 - the download itself says what is wrong
        return None
    return sum(
        each.size or 0
        for each in about.siblings or ()
        if not any(fnmatch.fnmatch(each.rfilename, pattern) for pattern in NOT_NEEDED)
    )


@contextlib.contextmanager
def _watched(repository: str, on_progress: OnProgress | None, revision: str | None) -> Iterator[None]:
    """Report the bytes of a repository in the hub's cache while the body downloads it."""
    done = threading.Event()

    def watch(report: OnProgress, total: int) -> None:
        while not done.wait(_LOOK_EVERY_S):
            report(min(total, _blob_bytes(hub.repository_folder(repository) / "blobs")), total)

    if on_progress and (total := size_bytes(repository, revision)):
        threading.Thread(target=watch, args=(on_progress, total), daemon=True).start()
    try:
        yield
    finally:
        done.set()


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
