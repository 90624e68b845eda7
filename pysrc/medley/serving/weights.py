"""Fetch a model's weights to every host that lacks them, before the engine's clock starts."""

import json
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from medley import json_shape, process
from medley.cluster import alone
from medley.cluster.fleet import Fleet
from medley.cluster.membership import Membership
from medley.cluster.model_files import ModelPull
from medley.engine.launch import Order
from medley.errors import Problem
from medley.model import hub
from medley.model.hub_download import NOT_NEEDED
from medley.progress import PROGRESS, Progress

# With one of these the engine reads something else than the repository's files in the hub's cache.
_ELSEWHERE = frozenset({"--download-dir", "--model-loader-extra-config"})
# The values of --load-format, of both engines, that read those files; a plugin of vLLM's may add others.
_FROM_CACHE = frozenset(
    {"auto", "safetensors", "fastsafetensors", "instanttensor", "pt", "npcache", "mistral", "bitsandbytes"}
)
_LAST_LINES = 4


@dataclass
class Rate:
    """The text of a download: bytes done, bytes a second, minutes left."""

    watch: Progress
    host: str = ""
    began: tuple[float, int] | None = None
    last_bytes: int = 0

    def tell(self, done: int, total: int) -> None:
        now = time.monotonic()
        if self.began is None or done < self.last_bytes:  # the comparison with the hub reads all of it again
            self.began = (now, done)
        self.last_bytes = done
        rate = (done - self.began[1]) / max(now - self.began[0], 1)
        left = f", {(total - done) / rate / 60:.0f} min left" if rate else ""
        text = f"{done / 1e9:.1f} of {total / 1e9:.1f} GB, {rate / 1e6:.0f} MB/s{left}"
        self.watch.moved(f"{self.host}{text}")


@dataclass(frozen=True)
class Wanted:
    """The files of the hub that an engine will read."""

    repository: str
    revision: str | None = None
    """A commit, branch or tag; `main` where it is None."""


def wanted(order: Order) -> Wanted | None:
    """Return the files that the engine would fetch from the hub; None where it reads something else."""
    found, engine = order.weights, order.placement.engine
    if found.local:
        return None
    # In the order of the command: the model's table, the code that the user trusts, the user's own flags.
    words = [*(found.model.args.get(engine, ()) if found.model else ())]
    for flag in order.model_extras.flags(engine):
        words += (*flag.names, flag.value or "")
    words += order.engine_flags
    elsewhere = _ELSEWHERE.intersection(word.partition("=")[0] for word in words)
    loader = _value(words, "--load-format") or "auto"
    if elsewhere or loader.lower() not in _FROM_CACHE:
        return None
    return Wanted(found.target, _value(words, "--revision") or None)


def _value(words: Sequence[str], flag: str) -> str | None:
    found = None
    for word, after in pairwise((*words, "")):
        name, given, value = word.partition("=")
        if name == flag:
            found = value if given else after
    return found


def _has_all(asked: Wanted) -> bool:
    """Whether nothing is to be downloaded, or can be."""
    return bool(hub.offline() or hub.has(asked.repository, asked.revision))


@contextmanager
def fetching(asked: Wanted | None, watch: Progress) -> Iterator[Future[None]]:
    """Download a model to this host, where it lacks it, in a process that ends with the body."""
    if asked is None or _has_all(asked):
        done: Future[None] = Future()
        done.set_result(None)
        yield done
        return
    rate = Rate(watch)

    def on_note(_: str, text: str) -> None:
        if text.startswith(PROGRESS):
            rate.tell(*map(int, text.removeprefix(PROGRESS).split()))
        else:
            watch.note(text)

    # The connection is cut first, so that the thread ends too.
    with ThreadPoolExecutor(1) as pool, Fleet(alone(), watch, on_note) as everyone:
        yield pool.submit(ModelPull(everyone, asked.repository, {}, revision=asked.revision).download)


def fetch(name: str, asked: Wanted | None, watch: Progress) -> None:
    """Download a model to this host where it lacks it."""
    if asked is None or _has_all(asked):
        return
    with watch.stage(f"weights of {name}"), fetching(asked, watch) as done:
        done.result()


def fetch_on_all(
    joined: Membership, hosts: Iterable[str], name: str, asked: Wanted | None, watch: Progress
) -> None:
    """Download a model to the hosts at these addresses of a Ray cluster, all at once, where they lack it."""
    if asked is None or hub.offline():
        return
    repository, revision = asked.repository, asked.revision or ""
    rates: dict[str, Rate] = {}
    lines: list[str] = []

    def on_line(line: str) -> None:
        told = json_shape.table(line) or {}
        for host, (done, total) in told.get("progress", {}).items():
            rates.setdefault(host, Rate(watch, f"{host}: ")).tell(done, total)
        if "progress" not in told:
            # A warning may come after the answer, because stderr is in these lines too.
            lines.append(line)

    command = joined.asked(
        "ray_download.py", joined.head, joined.address, repository, revision, json.dumps(NOT_NEEDED), *hosts
    )
    with watch.stage(f"weights of {name} on every host"):
        process.run(command, on_line=on_line)
    said = json_shape.last_table(lines) or {"error": "it ended", "said": "\n".join(lines[-_LAST_LINES:])}
    if failed := said.get("failed") or ({"Ray": said["said"]} if "error" in said else None):
        host, why = next(iter(failed.items()))
        raise _failed(host, repository, why)


def _failed(host: str, target: str, why: str) -> Problem:
    return Problem(
        f"{host} could not download {target}",
        cause=why,
        fix=f"medley pull {target}  # downloads it once, and sends it to the others",
    )
