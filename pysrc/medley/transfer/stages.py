"""The files of a stage are those that a host reads which has some of a model's layers: not all weights.

An index says in which file each tensor is. What a tensor's name does not settle goes to every stage.
"""

import re
from collections.abc import Collection, Mapping
from typing import Any

from medley import safetensors, stored
from medley.checkpoint import INDEX
from medley.transfer.manifest import Manifest

_EMBEDDING = re.compile(r"(?:^|\.)(?:embed_tokens|embed_in|wte|word_embeddings|tok_embeddings)\.")


def files(
    index: Mapping[str, Any], layers: int, own: range, *, first: bool, last: bool, where: str = INDEX
) -> tuple[str, ...]:
    """The files with weights for a stage that has `own` of so many layers.

    The first stage has the embedding and what sees or hears, the last one the head and the draft layers.
    Where the head is the embedding, both have that.
    """
    safetensors.files(index, where)
    names: Mapping[str, str] = index["weight_map"]
    tied = not any(stored.part_of(name, layers)[0] == "head" for name in names)

    def wanted(name: str) -> bool:
        part, layer = stored.part_of(name, layers)
        if part == "layer":
            return layer in own
        if part in {"head", "draft"}:
            return last
        if stored.beside(name):
            return first
        if _EMBEDDING.search(name):
            return first or (last and tied)
        return True

    return tuple(sorted({file for name, file in names.items() if wanted(name)}))


def only(manifest: Manifest, index: Mapping[str, Any], wanted: Collection[str]) -> Manifest:
    """A model without the weights that are not `wanted`; whatever else it has stays."""
    unwanted = set(index["weight_map"].values()) - set(wanted)

    def kept(path: str) -> bool:
        return _name(path) not in unwanted

    links = tuple(link for link in manifest.links if kept(link.path))
    # In the hub's cache the bytes are blobs, and a blob that no link of ours leads to is not needed.
    blobs = {_name(link.target) for link in manifest.links} - {_name(link.target) for link in links}
    kept_files = (file for file in manifest.files if kept(file.path) and _name(file.path) not in blobs)
    return Manifest(tuple(kept_files), links, manifest.piece_bytes)


def _name(path: str) -> str:
    return path.rpartition("/")[2]
