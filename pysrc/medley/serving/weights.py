"""Fetch a model's weights to every host that lacks them, before the engine's clock starts."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from medley import json_shape, process
from medley.cluster.cluster_file import build_local_cluster
from medley.cluster.fleet import Fleet
from medley.cluster.membership import Membership
from medley.cluster.model_files import ModelPull
from medley.engine.launch import LaunchOrder
from medley.errors import Problem
from medley.model import hub
from medley.model.hub_download import IGNORED_PATTERNS
from medley.progress import PROGRESS, Progress
from medley.values import Value

# With one of these flags the engine does not read the repository's files in the hub's cache.
_OTHER_SOURCE_FLAGS = frozenset({"--download-dir", "--model-loader-extra-config"})
# The values of --load-format, of both engines, that read those files; a plugin of vLLM's may add others.
_CACHE_LOAD_FORMATS = frozenset(
    {"auto", "safetensors", "fastsafetensors", "instanttensor", "pt", "npcache", "mistral", "bitsandbytes"}
)
_MAX_LAST_LINES = 4


@dataclass
class DownloadProgress:
    """Prints the progress of a download: bytes done, bytes/s, minutes left."""

    progress: Progress
    host: str = ""
    first_report: tuple[float, int] | None = None
    """The time and the bytes of the first report."""
    last_bytes: int = 0

    def report(self, done: int, total: int) -> None:
        """Print how many bytes of the total are done."""
        now = time.monotonic()
        # The comparison with the hub's hashes reads all files again, so the count starts again.
        if self.first_report is None or done < self.last_bytes:
            self.first_report = (now, done)
        self.last_bytes = done
        rate = (done - self.first_report[1]) / max(now - self.first_report[0], 1)
        left = f", {(total - done) / rate / 60:.0f} min left" if rate else ""
        text = f"{done / 1e9:.1f} of {total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s{left}"
        self.progress.moved(f"{self.host}{text}")


class HubFiles(Value):
    """The files of the hub that an engine will read."""

    repository: str
    revision: str | None = None
    """A commit, branch or tag; None is `main`."""


def find_hub_files(order: LaunchOrder) -> HubFiles | None:
    """Return the files that the engine would fetch from the hub; None if it reads others."""
    model_files, engine = order.weights, order.engine
    if model_files.is_local:
        return None
    # In the order of the command: the model's table, the code that the user trusts, the user's own flags.
    words = [*(model_files.model.args.get(engine, ()) if model_files.model else ())]
    for flag in order.model_extras.list_flags(engine):
        words += (*flag.names, flag.value or "")
    words += order.engine_flags
    reads_elsewhere = _OTHER_SOURCE_FLAGS.intersection(word.partition("=")[0] for word in words)
    loader = _find_flag_value(words, "--load-format") or "auto"
    if reads_elsewhere or loader.lower() not in _CACHE_LOAD_FORMATS:
        return None
    return HubFiles(model_files.target, _find_flag_value(words, "--revision") or None)


def _find_flag_value(words: Sequence[str], flag: str) -> str | None:
    """Return the last value of a flag, written as one word or two; None without it."""
    last_value = None
    for word, next_word in pairwise((*words, "")):
        name, equals, value = word.partition("=")
        if name == flag:
            last_value = value if equals else next_word
    return last_value


def _needs_no_download(hub_files: HubFiles) -> bool:
    """Return whether all files are cached, or the hub must not be used."""
    return bool(hub.find_offline_variable() or hub.is_cached(hub_files.repository, hub_files.revision))


@contextmanager
def fetch_in_background(hub_files: HubFiles | None, progress: Progress) -> Iterator[Future[None]]:
    """Download a model that this host lacks, in a process that ends with the body; yield the future."""
    if hub_files is None or _needs_no_download(hub_files):
        done: Future[None] = Future()
        done.set_result(None)
        yield done
        return
    rate = DownloadProgress(progress)

    def on_note(_: str, text: str) -> None:
        if text.startswith(PROGRESS):
            rate.report(*map(int, text.removeprefix(PROGRESS).split()))
        else:
            progress.note(text)

    # The connection is cut first, so that the thread ends too.
    with ThreadPoolExecutor(1) as pool, Fleet(build_local_cluster(), progress, on_note) as fleet:
        yield pool.submit(
            ModelPull(fleet, hub_files.repository, {}, revision=hub_files.revision).download_model
        )


def fetch_weights(name: str, hub_files: HubFiles | None, progress: Progress) -> None:
    """Download a model to this host if it lacks it."""
    if hub_files is None or _needs_no_download(hub_files):
        return
    with progress.stage(f"weights of {name}"), fetch_in_background(hub_files, progress) as download:
        download.result()


def fetch_on_all_hosts(
    cluster: Membership, hosts: Iterable[str], name: str, hub_files: HubFiles | None, progress: Progress
) -> None:
    """Download a model to these hosts of a Ray cluster, at the same time, if they lack it."""
    if hub_files is None or hub.find_offline_variable():
        return
    repository, revision = hub_files.repository, hub_files.revision or ""
    rates: dict[str, DownloadProgress] = {}
    lines: list[str] = []

    def on_line(line: str) -> None:
        message = json_shape.parse_object(line) or {}
        for host, (done_bytes, total_bytes) in message.get("progress", {}).items():
            rates.setdefault(host, DownloadProgress(progress, f"{host}: ")).report(done_bytes, total_bytes)
        if "progress" not in message:
            # A warning may come after the answer, because stderr is in these lines too.
            lines.append(line)

    command = cluster.build_command(
        "ray_download.py",
        cluster.head,
        cluster.address,
        repository,
        revision,
        json.dumps(IGNORED_PATTERNS),
        *hosts,
    )
    with progress.stage(f"weights of {name} on every host"):
        process.run(command, on_line=on_line)
    last_lines = "\n".join(lines[-_MAX_LAST_LINES:])
    answer = json_shape.parse_last_object(lines) or {"error": "it ended", "said": last_lines}
    failures = answer.get("failed")
    if not failures and "error" in answer:
        failures = {"Ray": answer["said"]}
    if failures:
        host, reason = next(iter(failures.items()))
        raise _download_problem(host, repository, reason)


def _download_problem(host: str, target: str, why: str) -> Problem:
    return Problem(
        f"{host} could not download {target}",
        cause=why,
        fix=f"medley pull {target}  # downloads it once, and sends it to the others",
    )
