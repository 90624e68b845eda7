"""Compare a model's weights with the SHA-256 that the hub has of them.

Nothing else does: the library compares sizes, and hf_xet 1.8.0 takes any content for a hash (seen with the
hub of the tests).
"""

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from medley.errors import Problem
from medley.model import hub
from medley.model.transfer.inventory import HASH_THREADS, OnProgress, build_counter, hash_whole_file
from medley.values import Value

if TYPE_CHECKING:
    from huggingface_hub import HfApi


class ChecksumDifference(Value):
    name: str
    sha256: str
    hub_sha256: str

    def __str__(self) -> str:
        return f"{self.name} has SHA-256 {self.sha256}, the hub's has {self.hub_sha256}"


class SnapshotComparison(Value):
    repository: str
    commit: str
    files: int = 0
    """The number of compared files: weights and other large files, of which the hub has a SHA-256."""
    differences: tuple[ChecksumDifference, ...] = ()
    reason: str | None = None
    """The reason why nothing was compared; None if files were."""

    def __str__(self) -> str:
        if self.reason:
            return f"not compared with the hub: {self.reason}"
        equal_files = self.files - len(self.differences)
        return (
            f"{equal_files} of {self.files} large files have the hub's SHA-256, of commit {self.commit[:12]}"
        )

    @property
    def fix(self) -> str:
        """The command that downloads the files that differ, also where another model shares them."""
        names = (difference.name for difference in self.differences)
        return shlex.join(
            ("hf", "download", self.repository, *names, "--revision", self.commit, "--force-download")
        )


def compare_snapshot(
    repository: str, snapshot: Path, on_progress: OnProgress | None = None
) -> SnapshotComparison:
    """Compare the large files of a snapshot with the SHA-256 that the hub has of them."""
    try:
        # One request first: the library's own (2.4) repeats a refused connection for 23 s.
        hub.fetch_info(repository)
        checksums = hub.run_query(
            repository, lambda api: dict(_list_checksums(api, repository, snapshot.name))
        )
    except Problem as problem:
        reason = problem.reason if isinstance(problem, hub.HubUnreachable) else problem.what
        return SnapshotComparison(repository, snapshot.name, reason=reason)
    # The hub's own names may lead out of the folder, and what differs is removed.
    files = {path.relative_to(snapshot).as_posix() for path in snapshot.rglob("*") if path.is_file()}
    names = [name for name in checksums if name in files]
    count = build_counter(sum((snapshot / name).stat().st_size for name in names), on_progress)
    with ThreadPoolExecutor(HASH_THREADS) as pool:
        results = pool.map(
            lambda name: ChecksumDifference(name, hash_whole_file(snapshot / name, count), checksums[name]),
            names,
        )
    differences = tuple(difference for difference in results if difference.sha256 != difference.hub_sha256)
    return SnapshotComparison(repository, snapshot.name, len(names), differences)


def _list_checksums(api: "HfApi", repository: str, commit: str) -> Iterator[tuple[str, str]]:
    for entry in api.list_repo_tree(repository, revision=commit, recursive=True):
        if lfs := getattr(entry, "lfs", None):
            yield entry.path, lfs.sha256
