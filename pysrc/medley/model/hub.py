"""Ask the Hugging Face hub for a model; find it in the hub's cache."""

import contextlib
import logging
import os
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, TypeVar

from medley.errors import Problem, in_words
from medley.model.checkpoint import (
    CONFIG,
    INDEX,
    SINGLE,
    Checkpoint,
    Tensor,
    parsed,
    read_checkpoint,
    table,
    weight_files,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from huggingface_hub import HfApi

_T = TypeVar("_T")

LIMIT_S = 8
# Of all questions together: a model of 160 files is 160 small answers.
_ALL_S = 45
_AT_ONCE = 8


def require(repository: str) -> None:
    """Raise a Problem unless the repository is in the hub's cache here, or the hub says that it has it.

    Honours the hub's own variables: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.
    """
    if snapshots(repository):
        return
    refuse_offline(repository)
    # A fifth of the time that a plan takes, for what most plans never ask.
    from httpx import HTTPError  # noqa: PLC0415 - see above

    from medley.network import http_client  # noqa: PLC0415 - see above

    url = f"{endpoint()}/api/models/{repository}"
    try:
        with http_client.download(url, limit_s=LIMIT_S, headers=headers()) as answer:
            status = answer.status_code
    except HTTPError as error:
        raise unreachable(repository, in_words(error)) from error
    if status != HTTPStatus.OK:
        raise _refused(repository, status)


def checkpoint(repository: str) -> Checkpoint:
    """Read the tensors: from the cache if the weights are there, else from a few answers of the hub."""
    folder = snapshot(repository)
    if folder is not None:
        return read_checkpoint(folder)
    # Says at once what the library says after half a minute of trying again.
    require(repository)
    return answered(repository, lambda api: _checkpoint(api, repository))


def answered(repository: str, question: "Callable[[HfApi], _T]") -> _T:
    """Ask the hub's own client, with a time limit; a Problem for every way to fail."""
    answers: Queue[_T | Problem] = Queue()
    # A thread that may be left behind: not every step of the library's takes a time limit.
    Thread(target=lambda: answers.put(_asked(repository, question)), daemon=True).start()
    try:
        answer = answers.get(timeout=_ALL_S)
    except Empty:
        raise unreachable(repository, f"no answer in {_ALL_S} s") from None
    if isinstance(answer, Problem):
        raise answer
    return answer


def _checkpoint(api: "HfApi", repository: str) -> Checkpoint:
    """The headers of its files come by a range request each."""
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415 - as in _asked

    config = parsed(file(api, repository, CONFIG), f"{repository}/{CONFIG}")
    names: tuple[str, ...] = (SINGLE,)
    with contextlib.suppress(EntryNotFoundError):
        index = file(api, repository, INDEX)
        names = weight_files(parsed(index, f"{repository}/{INDEX}"), f"{repository}/{INDEX}")
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        headers = list(pool.map(lambda name: api.parse_safetensors_file_metadata(repository, name), names))
    found = {
        name: Tensor(info.dtype, tuple(info.shape), info.data_offsets[1] - info.data_offsets[0])
        for header in headers
        for name, info in header.tensors.items()
    }
    return Checkpoint(repository, config, found)


def _asked(repository: str, question: "Callable[[HfApi], _T]") -> _T | Problem:
    # Half a second to import, and seldom needed.
    from huggingface_hub import HfApi, errors  # noqa: PLC0415 - see above
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415

    disable_progress_bars()
    # What went wrong is told as a Problem, once.
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    api = HfApi(endpoint=endpoint(), token=os.environ.get("HF_TOKEN") or None, library_name="medley")
    try:
        return question(api)
    except Problem as problem:
        return problem
    except errors.HfHubHTTPError as error:
        if isinstance(error, errors.EntryNotFoundError):
            return Problem(
                f"{repository} holds no model that medley can measure",
                cause=f"it lacks {CONFIG}, or {INDEX} and {SINGLE}",
                fix="name a repository with safetensors, "
                "or write its [shape] down: docs/tables.md, models/NAME.toml",
            )
        return _refused(repository, error.response.status_code)
    except errors.SafetensorsParsingError as error:
        what = f"the weights of {repository} are not safetensors"
        return Problem(what, cause=str(error), fix="name another repository")
    except (errors.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
        return unreachable(repository, type(error).__name__)


def file(api: "HfApi", repository: str, name: str, commit: str | None = None) -> bytes:
    """A small file, which stays in the hub's cache and is asked for again only when it has changed."""
    found = api.hf_hub_download(repository, name, revision=commit, cache_dir=cache(), etag_timeout=LIMIT_S)
    return Path(found).read_bytes()


def snapshot(repository: str) -> Path | None:
    """The folder of a snapshot in the hub's cache on this host that holds safetensors."""
    return next((each for each in snapshots(repository) if any(each.glob("*.safetensors"))), None)


def snapshots(repository: str) -> list[Path]:
    """The folders of all that have weights, newest first; each is named by its commit."""
    folder = cache() / f"models--{repository.replace('/', '--')}" / "snapshots"
    found = (each for each in folder.glob("*/") if _whole(each))
    return sorted(found, key=lambda each: each.stat().st_mtime, reverse=True)


def _whole(folder: Path) -> bool:
    """Not the few small files alone that `checkpoint` or a broken download leaves there."""
    if not (folder / CONFIG).is_file():
        return False
    if (folder / INDEX).is_file():
        try:
            names = weight_files(table(folder / INDEX), INDEX)
        except Problem:
            return False
        return all((folder / name).is_file() for name in names)
    return any(path.suffix in {".safetensors", ".bin", ".gguf", ".pt"} for path in folder.iterdir())


def cache() -> Path:
    hub = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME")
    return Path(hub) if hub else (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def endpoint() -> str:
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def headers() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def offline() -> bool:
    return os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}


def refuse_offline(repository: str) -> None:
    if offline():
        raise Problem(
            f"{repository} is not on this host",
            cause=f"HF_HUB_OFFLINE is set, and {cache()} does not hold it",
            fix="unset HF_HUB_OFFLINE, or name a folder that holds the model",
        )


def unreachable(repository: str, error: str) -> Problem:
    return Problem(
        f"{repository} cannot be fetched",
        cause=f"the hub at {endpoint()} does not answer ({error}), and {cache()} does not hold the model",
        fix="check the network, or name a folder that holds the model: medley serve /path/to/model",
    )


def _refused(repository: str, status: int) -> Problem:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
        # The hub answers 401 for a name that does not exist, so as not to tell which private ones do.
        return Problem(
            f"the hub has no model {repository}, or you may not read it",
            cause=f"{endpoint()} answered {status}",
            fix="check the name; for a gated model accept its terms on the hub, then: export HF_TOKEN=…",
        )
    return Problem(
        f"the hub cannot say whether it has {repository}",
        cause=f"{endpoint()} answered {status}",
        fix="try again in a minute, or name a folder that holds the model",
    )
