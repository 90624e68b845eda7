"""Ask the Hugging Face hub for a model; find it in the hub's cache."""

import logging
import os
import re
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path
from queue import Empty, Queue
from threading import Thread
from typing import TYPE_CHECKING, Any, TypeVar

# The library reads its variables once, when this module of it is imported, which takes 1 ms.
from huggingface_hub import constants

from medley import json_shape, storage
from medley.errors import Problem, describe_error
from medley.model.checkpoint import (
    CONFIG_FILE,
    INDEX_FILE,
    WEIGHTS_FILE,
    has_weights,
    list_weight_files,
    read_table,
)
from medley.values import Value

if TYPE_CHECKING:
    from collections.abc import Callable

    from huggingface_hub import HfApi

_T = TypeVar("_T")

REQUEST_LIMIT_S = 8
_QUERY_LIMIT_S = 45
"""The time limit of all requests of one question: a model of 160 files is 160 small answers."""
COMMIT_PATTERN = re.compile(r"[0-9a-f]{40}")


class RepositoryInfo(Value):
    """The state of a repository on the hub."""

    commit: str | None
    """The commit of `main`."""
    license: str | None


class HubUnreachable(Problem):
    """The hub cannot be asked, or does not answer; it did not refuse the repository."""

    @property
    def reason(self) -> str:
        """The reason why the hub was not asked, without its consequence for the model."""
        return self.cause.partition(",")[0]


def require_model(repository: str) -> None:
    """Raise a Problem unless the repository is in the hub's cache here, or on the hub."""
    if not list_snapshots(repository):
        fetch_info(repository)


def fetch_info(repository: str) -> RepositoryInfo:
    """Ask the hub for the newest commit; raise Unreachable without an answer, a Problem if it refuses."""
    require_online(repository)
    # A fifth of the time that a plan takes, for what most plans never ask.
    from httpx import HTTPError  # noqa: PLC0415 - see above

    from medley.network import http_client  # noqa: PLC0415 - see above

    url = f"{find_endpoint()}/api/models/{repository}"
    try:
        answer = http_client.send_request(
            "GET", url, limit_s=REQUEST_LIMIT_S, headers=build_headers(), redirects=True
        )
    except HTTPError as error:
        raise build_unreachable_problem(repository, describe_error(error)) from error
    if answer.status != HTTPStatus.OK:
        raise _build_refused_problem(repository, answer.status)
    return _parse_info(json_shape.parse_object(answer.text) or {})


def _parse_info(answer: Mapping[str, Any]) -> RepositoryInfo:
    """Read `sha` and `cardData`, as huggingface_hub's own ModelInfo does."""
    card = answer.get("cardData")
    card = card if isinstance(card, dict) else {}
    license_name = card.get("license_name") if card.get("license") == "other" else card.get("license")
    commit = answer.get("sha")
    return RepositoryInfo(
        commit if isinstance(commit, str) and COMMIT_PATTERN.fullmatch(commit) else None,
        license_name if isinstance(license_name, str) else None,
    )


def run_query(repository: str, query: "Callable[[HfApi], _T]") -> _T:
    """Ask with huggingface_hub's client within a time limit; raise a Problem for any failure."""
    answers: Queue[_T | Problem] = Queue()
    # A thread that may be left behind: not every step of the library's takes a time limit.
    Thread(target=lambda: answers.put(_run_query(repository, query)), daemon=True).start()
    try:
        answer = answers.get(timeout=_QUERY_LIMIT_S)
    except Empty:
        raise build_unreachable_problem(repository, f"no answer in {_QUERY_LIMIT_S} s") from None
    if isinstance(answer, Problem):
        raise answer
    return answer


def _run_query(repository: str, query: "Callable[[HfApi], _T]") -> _T | Problem:
    # Half a second to import, and seldom needed.
    from huggingface_hub import HfApi, errors  # noqa: PLC0415 - see above

    silence_library()
    try:
        return query(HfApi(library_name="medley"))
    except Problem as problem:
        return problem
    except errors.HfHubHTTPError as error:
        if isinstance(error, errors.EntryNotFoundError):
            return Problem(
                f"{repository} holds no model that medley can measure",
                cause=f"it lacks {CONFIG_FILE}, or {INDEX_FILE} and {WEIGHTS_FILE}",
                fix="name a repository with safetensors, "
                "or write its [shape] down: docs/reference/tables.md, models/NAME.toml",
            )
        return _build_refused_problem(repository, error.response.status_code)
    except errors.SafetensorsParsingError as error:
        what = f"the weights of {repository} are not safetensors"
        return Problem(what, cause=str(error), fix="name another repository")
    except (errors.HTTPError, OSError, ValueError) as error:  # type: ignore[attr-defined]
        return build_unreachable_problem(repository, type(error).__name__)


def silence_library() -> None:
    """Stop the library's bars and warnings: errors become Problems, and progress has medley's own form."""
    from huggingface_hub.utils.tqdm import disable_progress_bars  # noqa: PLC0415 - 60 ms, and seldom needed

    disable_progress_bars()
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)


def read_file(api: "HfApi", repository: str, name: str, commit: str | None = None) -> bytes:
    """Read a small file through the hub's cache."""
    path = api.hf_hub_download(
        repository, name, revision=commit, cache_dir=find_cache_folder(), etag_timeout=REQUEST_LIMIT_S
    )
    return Path(path).read_bytes()


def find_snapshot(repository: str) -> Path | None:
    """Find a snapshot with safetensors in the hub's cache."""
    return next((folder for folder in list_snapshots(repository) if any(folder.glob("*.safetensors"))), None)


def list_snapshots(repository: str) -> list[Path]:
    """List snapshots with weights, newest first; each folder is named by its commit."""
    return [folder for folder in _list_newest_folders(repository) if is_complete(folder)]


def is_cached(repository: str, revision: str | None = None) -> bool:
    """Return whether the hub's cache has the weights of this commit, branch or tag, or of any snapshot."""
    if revision is None:
        return bool(list_snapshots(repository))
    ref = find_repository_folder(repository) / "refs" / revision
    commit = (storage.read_text(ref) or revision).strip()
    return is_complete(find_repository_folder(repository) / "snapshots" / commit)


def find_configured_snapshot(repository: str) -> Path | None:
    """Find the newest snapshot in the hub's cache that has config.json."""
    return next(
        (folder for folder in _list_newest_folders(repository) if storage.exists(folder / CONFIG_FILE)), None
    )


def _list_newest_folders(repository: str) -> list[Path]:
    folder = find_repository_folder(repository) / "snapshots"
    folders = [path for path in storage.list_folder(folder) if path.is_dir()]
    return sorted(folders, key=storage.read_modified_s, reverse=True)


def find_repository_folder(repository: str) -> Path:
    return find_cache_folder() / f"models--{repository.replace('/', '--')}"


def is_complete(folder: Path) -> bool:
    """Return whether a folder has all weights: an interrupted download leaves only a few small files."""
    if not storage.exists(folder / CONFIG_FILE):
        return False
    if storage.exists(folder / INDEX_FILE):
        try:
            names = list_weight_files(read_table(folder / INDEX_FILE), INDEX_FILE)
        except Problem:
            return False
        return all((folder / name).is_file() for name in names)
    return has_weights(folder)


def find_cache_folder() -> Path:
    return Path(constants.HF_HUB_CACHE)


def find_endpoint() -> str:
    return constants.ENDPOINT


def build_headers() -> dict[str, str]:
    """Return the header with the token of HF_TOKEN or of `hf auth login`, as the library sends it."""
    from huggingface_hub import get_token  # noqa: PLC0415 - 80 ms, and seldom needed

    token = None if constants.HF_HUB_DISABLE_IMPLICIT_TOKEN else get_token()
    return {"Authorization": f"Bearer {token}"} if token else {}


def find_offline_variable() -> str | None:
    """Return the variable that forbids requests to the hub."""
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    return next(filter(os.environ.get, names), names[0]) if constants.HF_HUB_OFFLINE else None


def require_online(repository: str) -> None:
    if name := find_offline_variable():
        raise HubUnreachable(
            f"{repository} is not on this host",
            cause=f"{name} is set, and {find_cache_folder()} does not hold it",
            fix=f"unset {name}, or name a folder that holds the model",
        )


def build_unreachable_problem(repository: str, error: str) -> HubUnreachable:
    return HubUnreachable(
        f"{repository} cannot be fetched",
        cause=f"the hub at {find_endpoint()} does not answer ({error}), "
        f"and {find_cache_folder()} does not hold the model",
        fix="check the network, or name a folder that holds the model instead",
    )


def _build_refused_problem(repository: str, status: int) -> Problem:
    if status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}:
        # The hub answers 401 for a name that does not exist, so as not to tell which private ones do.
        return Problem(
            f"the hub has no model {repository}, or you may not read it",
            cause=f"{find_endpoint()} answered {status}",
            fix="check the name; for a gated model accept its terms on the hub, then: export HF_TOKEN=…",
        )
    return HubUnreachable(
        f"the hub cannot say whether it has {repository}",
        cause=f"{find_endpoint()} answered {status}",
        fix="try again in a minute, or name a folder that holds the model",
    )
