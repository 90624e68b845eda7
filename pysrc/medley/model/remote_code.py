"""Find the Python files that come with a model."""

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from medley import storage
from medley.command import quote_path, quote_word
from medley.errors import Problem
from medley.model import hub
from medley.model.checkpoint import parse_json, raise_read_problem
from medley.values import Value

if TYPE_CHECKING:  # half a second to import, and seldom needed
    from huggingface_hub import HfApi

MAX_FILES = 200
"""The most Python files, or tables, that a model may have."""
_MAX_CODE_BYTES = 8 << 20
_MAX_TABLE_BYTES = 64 << 20
"""The limit of one table; the largest in use, a tokenizer's, has some 20 MiB."""
_DATA_FILES = {
    *("tokenizer.json", "vocab.json", "model.safetensors.index.json", "pytorch_model.bin.index.json"),
    *("consolidated.safetensors.index.json", "diffusion_pytorch_model.safetensors.index.json"),
}
"""The whole names of large files that hold only data, from which no class is made.

Not by their ending: a config.json may name config.4+vocab.json, which transformers 5.19.0 then reads instead.
"""
_CODE_KEY = "auto_map"
_VERIFIER_KEY = "speculators_config"


def _build_key_pattern(key: str) -> re.Pattern[bytes]:
    """Return the pattern of a key as JSON may write it: any letter may be an escape of four digits."""
    letters = (rb"(?:%s|\\u00%x)" % (re.escape(char.encode()), ord(char)) for char in key)
    return re.compile(b"".join(letters), re.IGNORECASE)


CODE_KEY_PATTERN = _build_key_pattern(_CODE_KEY)
_VERIFIER_KEY_PATTERN = _build_key_pattern(_VERIFIER_KEY)
_REFERENCE_PATTERN = re.compile(r"[\w-]+(?:[./][\w-]+)*\.\w+")


class Code(Value):
    """Every Python file of a model: one may import the others."""

    where: str
    files: Mapping[str, str]
    """The SHA-256 of each file by path."""
    commit: str | None = None
    """The commit of a repository; None for a folder."""

    @property
    def fingerprint(self) -> str:
        return storage.hash_checksums(self.files)

    @property
    def pin(self) -> str:
        """The value of --code-revision for this very code."""
        return self.commit or self.fingerprint

    @property
    def description(self) -> str:
        commit_text = f" at commit {self.commit}" if self.commit else ""
        files = "1 Python file" if len(self.files) == 1 else f"{len(self.files)} Python files"
        return f"{files} of {self.where}{commit_text}, SHA-256 {self.fingerprint}"


def read_folder_code(folder: Path) -> Code | None:
    """Return the code in a model's folder; None if its configs name none."""
    if not list_code_modules(read_model_configs(folder), str(folder)):
        return None
    return Code(str(folder), compute_fingerprints(folder))


def read_hub_code(repository: str, commit: str | None = None) -> Code | None:
    """Read the code at that commit, else the newest, into the hub's cache, where an engine reads it."""
    for folder in hub.list_snapshots(repository):
        if commit in {None, folder.name}:
            modules = list_code_modules(read_model_configs(folder), repository)
            if not modules:
                return None
            if all((folder / name).is_file() for name in modules):
                return Code(repository, compute_fingerprints(folder), folder.name)
            commit = folder.name
    hub.require_model(repository)
    hub.require_online(repository)
    return hub.run_query(repository, lambda api: _query_code(api, repository, commit))


def _query_code(api: "HfApi", repository: str, commit: str | None) -> Code | None:
    from huggingface_hub.errors import RevisionNotFoundError  # noqa: PLC0415 - half a second, and seldom needed

    try:
        info = api.model_info(repository, revision=commit, timeout=hub.REQUEST_LIMIT_S)
    except RevisionNotFoundError as error:
        raise Problem(
            f"{repository} has no commit {commit}",
            cause="the hub knows the repository, and not this",
            fix="look it up there; without --code-revision the newest is taken, and pinned",
        ) from error
    if info.sha is None or not hub.COMMIT_PATTERN.fullmatch(info.sha):
        raise Problem(
            f"the hub does not say which commit of {repository} it has",
            cause="its answer has none" if info.sha is None else f"it says {info.sha[:80]!r}",
            fix="name one: --code-revision COMMIT",
        )
    commit, names = info.sha, [sibling.rfilename for sibling in info.siblings or ()]

    def list_files(suffix: str, what: str) -> Iterator[tuple[str, bytes]]:
        matching = [
            name for name in names if name.endswith(suffix) and name.rpartition("/")[2] not in _DATA_FILES
        ]
        if len(matching) > MAX_FILES:
            raise Problem(
                f"{repository} holds more {what} than any model has",
                cause=f"{len(matching)} files; the limit is {MAX_FILES}",
                fix="name another repository",
            )
        return ((name, hub.read_file(api, repository, name, commit)) for name in matching)

    configs = {
        name: parse_code_config(text, f"{repository}/{name}") for name, text in list_files(".json", "tables")
    }
    if not list_code_modules(configs, repository):
        return None
    code = {name: storage.hash_bytes(text) for name, text in list_files(".py", "Python files")}
    return Code(repository, code, commit)


def list_code_modules(configs: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the Python files that configs name; raise a Problem for those of another repository.

    They cannot be pinned: an engine may take the newest commit of that repository.
    """
    modules: dict[str, None] = {}
    for file, config in configs.items():
        for reference in _list_references(config):
            repository, separator, module_reference = reference.rpartition("--")
            if separator:
                word = quote_word(repository)
                raise Problem(
                    f"{where} runs code of another repository, which cannot be pinned",
                    cause=f"{file} names {reference}, "
                    f"and an engine may take the newest commit of {repository}",
                    fix=f"serve it from a folder: with the Python files of {word} next to the weights, "
                    f"and in {quote_word(file)} only what follows {word}--\n"
                    "or without its code, if the engine knows this model by itself: --no-remote-code",
                )
            if not _REFERENCE_PATTERN.fullmatch(module_reference):
                raise Problem(
                    f"{where} names code that is not next to its weights",
                    cause=f"{file} names {reference[:200]!r}, but only MODULE.CLASS can be checked",
                    fix="take nothing of this model before you know why; without its code: --no-remote-code",
                )
            modules[f"{module_reference.rpartition('.')[0].replace('.', '/')}.py"] = None
    return tuple(modules)


def _list_references(value: object, *, is_named: bool = False) -> Iterator[str]:
    """Yield each `MODULE.CLASS` of every auto_map, however deep: a tokenizer's has a list, or null."""
    if isinstance(value, str) and is_named:
        yield value
    elif isinstance(value, dict):
        for key, entry in value.items():
            yield from _list_references(entry, is_named=is_named or key == _CODE_KEY)
    elif isinstance(value, list):
        for entry in value:
            yield from _list_references(entry, is_named=is_named)


def read_verifier(code: Code) -> str | None:
    """Return the model that vLLM loads instead of this one: a draft's config may name its verifier.

    Of a repository the folder in the hub's cache is read, from which `code` was.
    """
    folder = Path(code.where)
    if code.commit:
        folder = hub.find_repository_folder(code.where) / "snapshots" / code.commit
    for config in read_model_configs(folder, _VERIFIER_KEY_PATTERN).values():
        entry = config.get(_VERIFIER_KEY) if isinstance(config, dict) else None
        verifier = entry.get("verifier") if isinstance(entry, dict) else None
        name = verifier.get("name_or_path") if isinstance(verifier, dict) else None
        if name and isinstance(name, str):
            return name
    return None


def read_model_configs(folder: Path, key: re.Pattern[bytes] = CODE_KEY_PATTERN) -> dict[str, Any]:
    """Return all `*.json` of the model that may hold the key: engines differ in which they read."""
    paths = _list_files(folder, ".json", "tables")
    return {name: table for name, path in paths.items() if (table := _read_table(path, key))}


def compute_fingerprints(folder: Path) -> dict[str, str]:
    """Hash every Python file in it; refuse linked folders, from which an engine would import too."""
    for parent, folders, _ in os.walk(folder):
        for link in (Path(parent) / name for name in folders):
            if link.is_symlink():
                raise Problem(
                    f"{link} is a link to a folder, in a model that has code",
                    cause=f"it leads to {link.readlink()}, whose Python files are not checked",
                    fix=f"rm {quote_path(link)}  # or put the folder itself there",
                )
    paths = _list_files(folder, ".py", "Python files", _MAX_CODE_BYTES)
    return {name: storage.hash_file(path) for name, path in paths.items()}


def _list_files(folder: Path, suffix: str, what: str, max_bytes: int | None = None) -> dict[str, Path]:
    all_paths = (Path(parent) / name for parent, _, names in os.walk(folder) for name in names)
    paths = sorted(path for path in all_paths if path.name.endswith(suffix) and path.is_file())
    if len(paths) > MAX_FILES or (max_bytes and sum(path.stat().st_size for path in paths) > max_bytes):
        size = f" of {max_bytes >> 20} MiB" if max_bytes else ""
        raise Problem(
            f"{folder} holds more {what} than any model has",
            cause=f"{len(paths)} files; the limit is {MAX_FILES}{size}",
            fix="move the model to a folder of its own",
        )
    return {path.relative_to(folder).as_posix(): path for path in paths}


def _read_table(path: Path, key: re.Pattern[bytes]) -> Any:  # noqa: ANN401 - JSON may hold anything
    with raise_read_problem(path):
        size = path.stat().st_size
        if size > _MAX_TABLE_BYTES:
            raise Problem(
                f"{path} is too large for a model's configuration file",
                cause=f"it has {size} bytes; the limit is {_MAX_TABLE_BYTES >> 20} MiB",
                fix="see what it is, and move it out of the model's folder",
            )
        return parse_code_config(path.read_bytes(), str(path), key)


def parse_code_config(text: bytes, where: str, key: re.Pattern[bytes] = CODE_KEY_PATTERN) -> Any:  # noqa: ANN401 - JSON may hold anything
    """Return the value of a JSON text that may hold the key; None for other texts."""
    return parse_json(text, where) if key.search(text) else None
