"""Choose and download a model's files into the hub's cache; compare its weights with the hub's SHA-256."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from medley.errors import Problem, describe_error
from medley.model import hub, hub_checksums
from medley.model.free_space import require_space
from medley.model.transfer.inventory import OnProgress

IGNORED_PATTERNS = ("*.gguf", "*.onnx", "*.h5", "*.msgpack", "original/*", "metal/*")
"""The same weights in other forms, which medley's engines do not read next to safetensors."""
OnNote = Callable[[str], None]


def download_model(
    repository: str,
    on_progress: OnProgress = lambda *_: None,
    on_note: OnNote = lambda _: None,
    *,
    revision: str | None = None,
) -> Path:
    """Fetch the missing files of this commit, branch or tag (main without), and return the snapshot's folder.

    Raise a Problem for weights that differ from the hub's, and remove them, so that no engine loads them.
    """
    # Half a second to import, and seldom needed.
    from huggingface_hub import snapshot_download  # noqa: PLC0415 - see above

    hub.silence_library()
    options: dict[str, Any] = {
        "revision": revision,
        "cache_dir": hub.find_cache_folder(),
        "ignore_patterns": list(IGNORED_PATTERNS),
        "library_name": "medley",
    }
    try:
        files = snapshot_download(repository, dry_run=True, **options)
        total = sum(file.file_size or 0 for file in files if file.will_download)
        require_space(hub.find_cache_folder(), total)
        folder = Path(
            snapshot_download(repository, tqdm_class=_build_bar_class(on_progress, total), **options)
        )
    except Problem:
        raise
    except Exception as error:
        reason = error.__cause__ or error  # a dry run wraps the reason in an error of its own
        raise hub.build_unreachable_problem(
            repository, f"{type(reason).__name__}: {describe_error(reason)[:200]}"
        ) from error
    _require_equal(repository, folder, on_progress, on_note)
    return folder


def _require_equal(repository: str, folder: Path, on_progress: OnProgress, on_note: OnNote) -> None:
    on_note(f"comparing {repository} with the hub's SHA-256 …")
    comparison = hub_checksums.compare_snapshot(repository, folder, on_progress)
    on_note(str(comparison))
    for difference in comparison.differences:
        (folder / difference.name).unlink()
    if comparison.differences:
        files = "\n".join(map(str, comparison.differences))
        raise Problem(
            f"{repository} is not here as the hub has it",
            cause=f"{files}\nmedley removed this from {folder}, so that no engine loads it",
            fix=comparison.fix,
        )


def _build_bar_class(on_progress: OnProgress, total: int) -> Any:  # noqa: ANN401 - a class, made when the library is imported
    """Return the class of bars that draw nothing and report the bytes on the disk."""
    from huggingface_hub.utils.tqdm import tqdm  # noqa: PLC0415 - as in download

    class Bar(tqdm):
        def __init__(self, *words: Any, name: str | None = None, **options: Any) -> None:  # noqa: ANN401 - the library's
            # Its three bars count files, bytes from the network, and bytes on the disk.
            self._counts = name == "huggingface_hub.snapshot_download"
            super().__init__(*words, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> None:
            with self.get_lock():
                self.n += n or 0
                if self._counts:
                    on_progress(min(int(self.n), total), total)

    return Bar
