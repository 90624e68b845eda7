"""Compare a model's weights with the SHA-256 that the hub has of them.

Nothing else does: the library compares sizes, and hf_xet 1.8.0 takes any content for a hash (seen with the
hub of the tests).
"""

import shlex
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from medley.errors import Problem
from medley.model import hub
from medley.model.transfer.inventory import AT_ONCE, OnProgress, counter, file_sha256

if TYPE_CHECKING:
    from huggingface_hub import HfApi


@dataclass(frozen=True)
class Difference:
    name: str
    sha256: str
    hub_sha256: str

    def __str__(self) -> str:
        return f"{self.name} has SHA-256 {self.sha256}, the hub's has {self.hub_sha256}"


@dataclass(frozen=True)
class Comparison:
    repository: str
    commit: str
    files: int = 0
    """Those that the hub has a SHA-256 of: weights and other large files."""
    differences: tuple[Difference, ...] = ()
    reason: str | None = None
    """Why nothing was compared."""

    def __str__(self) -> str:
        if self.reason:
            return f"not compared with the hub: {self.reason}"
        same = self.files - len(self.differences)
        return f"{same} of {self.files} large files have the hub's SHA-256, of commit {self.commit[:12]}"

    @property
    def fix(self) -> str:
        """The command that downloads the files that differ, also where another model shares them."""
        names = shlex.join(each.name for each in self.differences)
        return f"hf download {self.repository} {names} --revision {self.commit} --force-download"


def compare(repository: str, snapshot: Path, on_progress: OnProgress | None = None) -> Comparison:
    """Read the files of a snapshot that the hub has a SHA-256 of."""
    try:
        # One request first: the library's own (2.4) repeats a refused connection for 23 s.
        hub.about(repository)
        known = hub.answered(repository, lambda api: dict(_checksums(api, repository, snapshot.name)))
    except Problem as problem:
        reason = problem.reason if isinstance(problem, hub.Unreachable) else problem.what
        return Comparison(repository, snapshot.name, reason=reason)
    names = [name for name in known if (snapshot / name).is_file()]
    count = counter(sum((snapshot / name).stat().st_size for name in names), on_progress)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        read = pool.map(
            lambda name: Difference(name, file_sha256(snapshot / name, count), known[name]), names
        )
    differences = tuple(each for each in read if each.sha256 != each.hub_sha256)
    return Comparison(repository, snapshot.name, len(names), differences)


def _checksums(api: "HfApi", repository: str, commit: str) -> Iterator[tuple[str, str]]:
    for entry in api.list_repo_tree(repository, revision=commit, recursive=True):
        if lfs := getattr(entry, "lfs", None):
            yield entry.path, lfs.sha256
