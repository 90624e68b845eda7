"""Download a repository of the model hub to hosts of a Ray cluster; run in an engine's Python.

    python ray_download.py HOST:PORT OWN ORG/NAME REVISION PATTERNS ADDRESS…

REVISION is a commit, branch or tag, or empty. PATTERNS is a JSON list of files that are not wanted.
While it runs it prints {"progress": {HOST: [done, total]}} in bytes, for hosts that have begun; at the end
{"failed": {HOST: why}}. A host that has the files sends the hub no request.
"""

import fnmatch
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

PROGRESS_INTERVAL_S = 2.0
# Variables of this process that each download needs: the user's token, and the hub's address.
CARRIED_VARIABLES = ("HF_TOKEN", "HF_ENDPOINT")
WEIGHT_SUFFIXES = {".safetensors", ".bin", ".gguf", ".pt"}


def main(
    address: str, own_address: str, repository: str, revision: str, patterns: str, *addresses: str
) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parent))  # not there with PYTHONSAFEPATH
    import ray_state as cluster

    try:
        nodes = cluster.list_nodes(cluster.GcsClient(address=address), address)
        chosen_nodes = {
            node["address"]: node for node in nodes if node["alive"] and node["address"] in addresses
        }
        cluster.connect_ray(address, own_address)
        return {
            "failed": download_on_hosts(
                cluster, chosen_nodes, repository, revision or None, json.loads(patterns)
            )
        }
    except Exception as error:  # noqa: BLE001 - medley turns any error into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def download_on_hosts(
    cluster: Any,  # noqa: ANN401 - ray_state
    nodes: dict[str, Any],
    repository: str,
    revision: str | None,
    patterns: list[str],
) -> dict[str, str]:
    ray = cluster.ray
    env = {name: os.environ[name] for name in CARRIED_VARIABLES if name in os.environ}
    names = {address: f"{node['name']} ({address})" for address, node in nodes.items()}
    tasks = {
        address: cluster.pin_task(node, download).remote(repository, revision, patterns, env)
        for address, node in nodes.items()
    }
    running = list(tasks.values())
    while running:
        _, running = ray.wait(running, num_returns=len(running), timeout=PROGRESS_INTERVAL_S)
        progress_tasks = (
            [cluster.pin_task(node, read_progress).remote(repository) for node in nodes.values()]
            if running
            else []
        )
        done, _ = (
            ray.wait(progress_tasks, num_returns=len(progress_tasks), timeout=PROGRESS_INTERVAL_S)
            if progress_tasks
            else ([], [])
        )
        progress = {
            names[address]: ray.get(task)
            for address, task in zip(nodes, progress_tasks, strict=False)
            if task in done
        }
        print(
            json.dumps({"progress": {name: numbers for name, numbers in progress.items() if numbers}}),
            flush=True,
        )
    errors = {names[address]: ray.get(task) for address, task in tasks.items()}
    return {name: why for name, why in errors.items() if why}


def get_folder(repository: str) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def download(repository: str, revision: str | None, patterns: list[str], env: dict[str, str]) -> str | None:
    """Download the repository; return the error or None. A file there has the total bytes meanwhile."""
    if is_downloaded(repository, revision):
        return None
    os.environ.update(env)
    from huggingface_hub import HfApi, snapshot_download

    total_file = get_folder(repository) / ".medley-total"
    try:
        model_info = HfApi().model_info(repository, revision=revision, files_metadata=True)
        sizes = [
            file.size or 0
            for file in model_info.siblings or ()
            if not any(fnmatch.fnmatch(file.rfilename, pattern) for pattern in patterns)
        ]
        total_file.parent.mkdir(parents=True, exist_ok=True)
        total_file.write_text(str(sum(sizes)))
        return remove_damaged(
            repository, Path(snapshot_download(repository, revision=revision, ignore_patterns=patterns))
        )
    except Exception as error:  # noqa: BLE001 - medley turns any error into a Problem
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        total_file.unlink(missing_ok=True)


def remove_damaged(repository: str, snapshot: Path) -> str | None:
    """Remove files whose checksums differ from the hub's; return a sentence for each and a fix, or None."""
    from huggingface_hub import HfApi

    damaged = HfApi().verify_repo_checksums(repository, revision=snapshot.name).mismatches
    for path in filter(Path.is_file, snapshot.rglob("*")):
        with path.open("rb") as file:  # on unified memory the GPU cannot use what the page cache holds
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for entry in damaged:
        (snapshot / entry["path"]).unlink()
    lines = [
        f"{format_path(entry['path'])} has {entry['algorithm']} {entry['actual']}, "
        f"the hub's has {entry['expected']}"
        for entry in damaged
    ]
    # A path is its repository's author's, and the command is to be pasted.
    words = (*(entry["path"] for entry in damaged), "--revision", snapshot.name)
    fix = f"on that host: hf download {repository} {shlex.join(words)} --force-download"
    return "\n".join([*lines, fix]) if damaged else None


def format_path(path: str) -> str:
    """Return a path as one line without control characters."""
    return "".join(letter for letter in path if letter.isprintable())


def is_downloaded(repository: str, revision: str | None) -> bool:
    """Return whether this host has the files; by the rule of is_cached in medley/model/hub.py."""
    folder_path = get_folder(repository)
    if revision is None:
        return any(map(is_complete, folder_path.glob("snapshots/*/")))
    revision_file = folder_path / "refs" / revision
    return is_complete(
        folder_path
        / "snapshots"
        / (revision_file.read_text().strip() if revision_file.is_file() else revision)
    )


def is_complete(snapshot: Path) -> bool:
    """Return whether a snapshot has all its weights, by the rule of is_complete in medley/model/hub.py."""
    index = snapshot / "model.safetensors.index.json"
    if not (snapshot / "config.json").is_file():
        return False
    if not index.is_file():
        return any(path.suffix in WEIGHT_SUFFIXES for path in snapshot.iterdir())
    try:
        names = list(json.loads(index.read_bytes())["weight_map"].values())
        are_plain = all(name not in {"", ".", ".."} and not {"/", "\0"} & set(name) for name in names)
        return bool(names) and are_plain and all((snapshot / name).is_file() for name in names)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def read_progress(repository: str) -> list[int] | None:
    """Return downloaded and total bytes; None if no download runs."""
    folder_path = get_folder(repository)
    try:
        total = int((folder_path / ".medley-total").read_text())
        sizes = [blob.stat() for blob in (folder_path / "blobs").glob("*")]
    except (OSError, ValueError):
        return None
    return [min(total, sum(min(size.st_size, size.st_blocks * 512) for size in sizes)), total]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
