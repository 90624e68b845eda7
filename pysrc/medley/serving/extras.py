"""Find the extra files and the extra code that a model needs."""

import os

from medley.engine.launch import LaunchOrder
from medley.engine.shared_flags import list_table_flags
from medley.model import extra_files
from medley.model.extra_files import ModelExtras
from medley.model.named_models import require_named_models
from medley.model.resolve import Weights
from medley.model.trust import Trust, list_warnings, refuse_engine_flags, require_trusted_code
from medley.planner.plan import Plan
from medley.progress import SILENT, Progress
from medley.schema import EngineName


def find_extras(
    weights: Weights,
    trust: Trust,
    flags: tuple[str, ...],
    engine: EngineName,
    *,
    is_start: bool,
    refuses_untrusted: bool = True,
    progress: Progress = SILENT,
) -> ModelExtras:
    """Return the extra files and code of these weights; with `refuses_untrusted` refuse untrusted code."""
    refuse_engine_flags(trust, flags)
    refuses_untrusted = refuses_untrusted or trust.is_given
    code = require_trusted_code(weights, trust, is_start=is_start) if refuses_untrusted else None
    extras = extra_files.list_extras(weights.model, os.environ)
    files = extra_files.require_usable_extras(extras, engine, trusted=trust.is_given or not refuses_untrusted)
    if is_start:
        extra_files.fetch_extras(extras, progress)
    uses_base = any(need.kind == "tiktoken" for need in (weights.model.needs if weights.model else ()))
    base = (os.environ.get(extra_files.ENCODINGS_VARIABLE) or None) if uses_base else None
    return ModelExtras(
        code, files, base, trust.is_refused, () if refuses_untrusted else tuple(list_warnings(weights, trust))
    )


def require_shown_models(order: LaunchOrder, plan: Plan, trust: Trust, *, is_start: bool) -> None:
    """Raise a Problem for another model in the engine's command whose code the user did not review.

    Its flags are those of the kinds of hosts, of the model's table, which a recipe writes, and the user's.
    """
    table_flags = list_table_flags(order.engine, plan, order.weights.model)
    words = (*(word for flag in table_flags for word in flag.build_argv()), *order.engine_flags)
    code = order.model_extras.code
    require_named_models(words, order.weights.target, code, trust, is_start=is_start)
