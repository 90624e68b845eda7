"""The model hub, asked one question before anything is started: can this repository be had?"""

import os
from pathlib import Path

import httpx

from medley.problem import Problem

_LIMIT_S = 8


def require(repository: str) -> None:
    """Raise a Problem unless the repository is in the hub's cache here, or the hub says that it has it.

    Honours the hub's own variables: HF_ENDPOINT, HF_TOKEN, HF_HOME, HF_HUB_CACHE, HF_HUB_OFFLINE.
    """
    if cached(repository):
        return
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in {"1", "true", "yes", "on"}:
        raise Problem(
            f"{repository} is not on this host",
            cause=f"HF_HUB_OFFLINE is set, and {cache()} does not hold it",
            fix="unset HF_HUB_OFFLINE, or name a folder that holds the model",
        )
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    try:
        answer = httpx.get(
            f"{endpoint}/api/models/{repository}", headers=_headers(), timeout=_LIMIT_S, follow_redirects=True
        )
    except httpx.HTTPError as error:
        raise Problem(
            f"{repository} cannot be fetched",
            cause=f"the hub at {endpoint} does not answer ({error}), and {cache()} does not hold the model",
            fix="check the network, or name a folder that holds the model: medley serve /path/to/model",
        ) from error
    if answer.status_code != httpx.codes.OK:
        raise _refused(repository, endpoint, answer.status_code)


def cached(repository: str) -> bool:
    """Whether a whole-looking snapshot of it lies in the hub's cache on this host."""
    folder = cache() / f"models--{repository.replace('/', '--')}" / "snapshots"
    return any(folder.glob("*/config.json"))


def cache() -> Path:
    hub = os.environ.get("HF_HUB_CACHE")
    home = os.environ.get("HF_HOME")
    return Path(hub) if hub else (Path(home) if home else Path.home() / ".cache" / "huggingface") / "hub"


def _headers() -> dict[str, str]:
    token = os.environ.get("HF_TOKEN")
    return {"Authorization": f"Bearer {token}"} if token else {}


def _refused(repository: str, endpoint: str, status: int) -> Problem:
    if status in {httpx.codes.UNAUTHORIZED, httpx.codes.FORBIDDEN, httpx.codes.NOT_FOUND}:
        # The hub answers 401 for a name that does not exist, so as not to tell which private ones do.
        return Problem(
            f"the hub has no model {repository}, or you may not read it",
            cause=f"{endpoint} answered {status}",
            fix="check the name; for a gated model accept its terms on the hub, then: export HF_TOKEN=…",
        )
    return Problem(
        f"the hub cannot say whether it has {repository}",
        cause=f"{endpoint} answered {status}",
        fix="try again in a minute, or name a folder that holds the model",
    )
