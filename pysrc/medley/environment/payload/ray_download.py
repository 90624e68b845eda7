"""Download a repository of the model hub to hosts of a Ray cluster; run in an engine's Python.

    python ray_download.py HOST:PORT OWN ORG/NAME REVISION PATTERNS ADDRESS…

REVISION is a commit, branch or tag, or empty. PATTERNS is a JSON list of files that are not wanted.
While it runs it prints {"progress": {HOST: [done, total]}} in bytes, for hosts that have begun; at the end
{"failed": {HOST: why}}. A host that has the files asks the hub nothing.
"""

import fnmatch
import json
import os
import sys
from pathlib import Path
from typing import Any

EVERY_S = 2.0
# Of the driver: who may read it, and where the hub is.
CARRIED = ("HF_TOKEN", "HF_ENDPOINT")
WEIGHTS = {".safetensors", ".bin", ".gguf", ".pt"}


def main(
    address: str, own: str, repository: str, revision: str, patterns: str, *wanted: str
) -> dict[str, Any]:
    import ray_state as cluster

    try:
        found = cluster.nodes(cluster.GcsClient(address=address), address)
        asked = {node["address"]: node for node in found if node["alive"] and node["address"] in wanted}
        cluster.connect(address, own)
        return {"failed": downloads(cluster, asked, repository, revision or None, json.loads(patterns))}
    except Exception as error:  # noqa: BLE001 - whatever it is, our side turns it into a Problem
        return {"error": type(error).__name__, "said": str(error)[:400]}


def downloads(
    cluster: Any,  # noqa: ANN401 - ray_state
    asked: dict[str, Any],
    repository: str,
    revision: str | None,
    patterns: list[str],
) -> dict[str, str]:
    ray = cluster.ray
    env = {name: os.environ[name] for name in CARRIED if name in os.environ}
    names = {address: f"{node['name']} ({address})" for address, node in asked.items()}
    tasks = {
        address: cluster.on(node, download).remote(repository, revision, patterns, env)
        for address, node in asked.items()
    }
    left = list(tasks.values())
    while left:
        _, left = ray.wait(left, num_returns=len(left), timeout=EVERY_S)
        looks = [cluster.on(node, here).remote(repository) for node in asked.values()] if left else []
        done, _ = ray.wait(looks, num_returns=len(looks), timeout=EVERY_S) if looks else ([], [])
        told = {names[a]: ray.get(look) for a, look in zip(asked, looks, strict=False) if look in done}
        print(json.dumps({"progress": {name: said for name, said in told.items() if said}}), flush=True)
    answers = {names[address]: ray.get(task) for address, task in tasks.items()}
    return {name: why for name, why in answers.items() if why}


def folder(repository: str) -> Path:
    from huggingface_hub.constants import HF_HUB_CACHE

    return Path(HF_HUB_CACHE) / f"models--{repository.replace('/', '--')}"


def download(repository: str, revision: str | None, patterns: list[str], env: dict[str, str]) -> str | None:
    """Download it; return the error or None. A file next to it has the total meanwhile."""
    if has(repository, revision):
        return None
    os.environ.update(env)
    from huggingface_hub import HfApi, snapshot_download

    total = folder(repository) / ".medley-total"
    try:
        about = HfApi().model_info(repository, revision=revision, files_metadata=True)
        sizes = [
            each.size or 0
            for each in about.siblings or ()
            if not any(fnmatch.fnmatch(each.rfilename, pattern) for pattern in patterns)
        ]
        total.parent.mkdir(parents=True, exist_ok=True)
        total.write_text(str(sum(sizes)))
        return damage(
            repository, Path(snapshot_download(repository, revision=revision, ignore_patterns=patterns))
        )
    except Exception as error:  # noqa: BLE001 - the same
        return f"{type(error).__name__}: {str(error)[:300]}"
    finally:
        total.unlink(missing_ok=True)


def damage(repository: str, snapshot: Path) -> str | None:
    """Compare the files with the hub; those that differ leave the snapshot, so that no engine loads them."""
    from huggingface_hub import HfApi

    wrong = HfApi().verify_repo_checksums(repository, revision=snapshot.name).mismatches
    for path in filter(Path.is_file, snapshot.rglob("*")):
        with path.open("rb") as file:  # on unified memory the GPU cannot use what the page cache holds
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    for each in wrong:
        (snapshot / each["path"]).unlink()
    lines = [f"{e['path']} has {e['algorithm']} {e['actual']}, the hub's has {e['expected']}" for e in wrong]
    names = " ".join(each["path"] for each in wrong)
    fix = f"on that host: hf download {repository} {names} --revision {snapshot.name} --force-download"
    return "\n".join([*lines, fix]) if wrong else None


def has(repository: str, revision: str | None) -> bool:
    """Whether the files are here; the same rule as `has` in medley/model/hub.py."""
    place = folder(repository)
    if revision is None:
        return any(map(whole, place.glob("snapshots/*/")))
    ref = place / "refs" / revision
    return whole(place / "snapshots" / (ref.read_text().strip() if ref.is_file() else revision))


def whole(snapshot: Path) -> bool:
    """Whether a snapshot has all its weights; the same rule as `whole` in medley/model/hub.py."""
    index = snapshot / "model.safetensors.index.json"
    if not (snapshot / "config.json").is_file():
        return False
    if not index.is_file():
        return any(path.suffix in WEIGHTS for path in snapshot.iterdir())
    try:
        names = list(json.loads(index.read_bytes())["weight_map"].values())
        plain = all(name not in {"", ".", ".."} and not {"/", "\0"} & set(name) for name in names)
        return bool(names) and plain and all((snapshot / name).is_file() for name in names)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return False


def here(repository: str) -> list[int] | None:
    """Return bytes done and in all; None if no download runs."""
    place = folder(repository)
    try:
        total = int((place / ".medley-total").read_text())
        sizes = [about.stat() for about in (place / "blobs").glob("*")]
    except (OSError, ValueError):
        return None
    return [min(total, sum(min(each.st_size, each.st_blocks * 512) for each in sizes)), total]


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
