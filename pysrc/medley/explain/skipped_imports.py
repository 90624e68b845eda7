"""Find the import that an engine skipped at its start, and that a later error follows from."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from medley.explain.lines import cut_at_blank

_MIN_TOKEN_CHARS = 4
_MIN_SAME_KIND = 3
_MAX_REASON_CHARS = 200
_LETTERS = re.compile(r"[a-z]+")
# A list of what there is, and the way that remains: they do not name what failed.
_LIST = re.compile(
    r"(?i)\b(?:supported|registered|available|known) (?:architectures|models|names)\b|and the Transformers"
)
_KERNELS = re.compile(r"'_OpNamespace' '(?P<name>\w+)'")
_OPTIONAL_FOLDERS = frozenset({"models"})
"""Folders of which each start skips some modules."""
# A package with compiled code, which does not fit the GPU, its CUDA or PyTorch.
_COMPILED = re.compile(
    r"(?i)sgl_kernel|\bFA[234]\b|flash_?attn|flash_?mla|deep_?gemm|undefined symbol|\.so\b|_OpNamespace|_C\b|"
    r"DLL load|no kernel image|flashinfer|vllm_flash"
)
_ABSENT = re.compile(r"No module named '?(?P<module>[\w.]+)")
_OTHER_RELEASE = re.compile(
    r"cannot import name '?\w+'? from '?(?P<package>\w+)|module '(?P<top>\w+)[\w.]*' has no"
)


class SkippedImport(NamedTuple):
    """A module that was not loaded, and the reason in the engine's words."""

    module: str
    reason: str


class SkippedPart(NamedTuple):
    """What was skipped, in words, and how to mend it."""

    skipped: str | None = None
    skipped_fix: str | None = None


def find_skipped_part(error: str, imports: Sequence[SkippedImport]) -> SkippedPart:
    """Return the skipped import that an error names, or one of a kind that was skipped as a whole."""
    letters = "".join(_LETTERS.findall(_LIST.split(error, 1)[0].lower()))
    matching = [each for each in imports if (name := _join_letters(each.module)) and name in letters]
    kernels = _KERNELS.search(error)
    own = (each for each in imports if kernels and each.module.rpartition(".")[2] == kernels["name"])
    best = next(own, None) or max(
        matching, key=lambda skipped: len(_join_letters(skipped.module)), default=None
    )
    best = best or _find_whole_kind(letters, imports)
    if best is None:
        return SkippedPart()
    count = sum(each.reason == best.reason for each in imports)
    others = f"; {count} modules were skipped for that reason" if count > 1 else ""
    return SkippedPart(
        f"the import of {best.module} failed at the start and was skipped: "
        f"{cut_at_blank(best.reason, _MAX_REASON_CHARS).rstrip('. ')}{others}",
        _describe_fix(best),
    )


def _join_letters(module: str) -> str:
    """Return the letters of a module's own name; empty if they are too few to compare."""
    name = "".join(_LETTERS.findall(module.rpartition(".")[2].lower()))
    return name if len(name) >= _MIN_TOKEN_CHARS else ""


def _find_whole_kind(letters: str, imports: Sequence[SkippedImport]) -> SkippedImport | None:
    """Return an import of the folder that the error names, such as processors, if many share one reason."""
    kinds = Counter((each.module.split(".")[-2:-1] or [""])[0] + "\n" + each.reason for each in imports)
    for kind, count in kinds.most_common(1):
        folder, _, reason = kind.partition("\n")
        if (
            count >= _MIN_SAME_KIND
            and folder
            and folder not in _OPTIONAL_FOLDERS
            and folder.removesuffix("s") in letters
        ):
            return next(each for each in imports if each.reason == reason)
    return None


def _describe_fix(skipped: SkippedImport) -> str:
    reason = skipped.reason
    if absent := _ABSENT.search(reason):
        return f"install what is missing, in the version that this engine requires: {absent['module']}"
    if other := _OTHER_RELEASE.search(reason):
        package = other["package"] or other["top"]
        return f"take the release of {package} that this engine requires, or a newer engine"
    if _COMPILED.search(reason):
        spark = "; on DGX Spark NVIDIA's SGLang image 26.02 or newer" if "sgl" in skipped.module else ""
        return (
            "take a newer image or environment, whose compiled package was built for this GPU and CUDA: "
            f"medley env build, or medley serve MODEL --image IMAGE{spark}"
        )
    return "fix that import, or take a newer image or environment"
