"""Choose the warning of a log that names the remedy of a later error in the same package."""

import re
from collections.abc import Iterable, Sequence

from medley.explain.lines import cut_at_blank

_LONGEST = 300
# Packages with kernels or models of their own, which an engine uses beside its own code.
_PACKAGE = re.compile(
    r"(?<![a-z])(xformers|flash[-_]?attn|flash[-_]attention|flashinfer|flash[-_]?mla|deep[-_]?gemm|deep[-_]?ep|sgl[-_]kernel|"
    r"bitsandbytes|aiter|mamba[-_]ssm|causal[-_]conv1d|tilelang|transformers|compressed[-_]tensors|lmcache|torchao)(?![a-z])",
    re.IGNORECASE,
)


def find_remedy(error: str, calls: Iterable[str], warnings: Sequence[str]) -> str | None:
    """Return the last of the warnings that names a package of the error or of its innermost call."""
    packages = _packages(" ".join([error, *calls]))
    fitting = [each for each in warnings if packages & _packages(each)]
    return cut_at_blank(fitting[-1], _LONGEST) if fitting else None


def _packages(text: str) -> set[str]:
    names = (re.sub("[-_]", "", each.lower()) for each in _PACKAGE.findall(text))
    return {name.replace("attention", "attn") for name in names}
