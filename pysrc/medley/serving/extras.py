"""Find the extra files and the extra code that a model needs."""

import os

from medley.model import extra_files
from medley.model.extra_files import ModelExtras
from medley.model.resolve import Weights
from medley.model.trust import Trust, list_warnings, refuse_engine_flags, require_trusted_code
from medley.progress import SILENT, Progress
from medley.schema import EngineName


def find_extras(
    weights: Weights,
    trust: Trust,
    flags: tuple[str, ...],
    engine: EngineName,
    *,
    starts: bool,
    refuses: bool = True,
    watch: Progress = SILENT,
) -> ModelExtras:
    """Return the extra files and code of these weights; `refuses`: raise a Problem for untrusted code."""
    refuse_engine_flags(trust, flags)
    refuses = refuses or trust.is_given
    code = require_trusted_code(weights, trust, starts=starts) if refuses else None
    extras = extra_files.list_extras(weights.model, os.environ)
    files = extra_files.require_usable_extras(extras, engine, trusted=trust.is_given or not refuses)
    if starts:
        extra_files.fetch_extras(extras, watch)
    uses_base = any(need.kind == "tiktoken" for need in (weights.model.needs if weights.model else ()))
    base = (os.environ.get(extra_files.ENCODINGS_VARIABLE) or None) if uses_base else None
    return ModelExtras(
        code, files, base, trust.is_refused, () if refuses else tuple(list_warnings(weights, trust))
    )
