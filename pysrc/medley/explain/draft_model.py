"""Find whether the draft model of speculative decoding is the model itself."""

import re

from medley.explain.lines import SGLANG

_VALUE = r"""['"]([^'"]+)['"]"""
_DRAFT_FLAG, _ALGORITHM_FLAG = "--speculative-draft-model-path", "--speculative-algorithm"
# Algorithms whose draft is a model of its own; MTP and NEXTN have theirs in the model.
_SEPARATE_DRAFT = re.compile(r"(?i)eagle|dflash|medusa|standalone|draft_model|dspark")


def find_own_draft(arguments: str, engine: str | None) -> str | None:
    """Return in words that the draft is the model itself, or None."""
    return _find_in_sglang_arguments(arguments) if engine == SGLANG else _find_in_vllm_arguments(arguments)


def _find_in_sglang_arguments(arguments: str) -> str | None:
    algorithm = _find_first(arguments, r"speculative_algorithm=" + _VALUE, _ALGORITHM_FLAG + r"[ =](\S+)")
    if algorithm is None or not _SEPARATE_DRAFT.search(algorithm):
        return None
    model = _find_first(arguments, r"(?<![\w-])model_path=" + _VALUE, r"(?<!\S)--model(?:-path)?[ =](\S+)")
    draft = _find_first(
        arguments,
        r"speculative_draft_model_path=" + _VALUE,
        r"(?<!\S)--speculative-draft-model(?:-path)?[ =](\S+)",
    )
    if draft is None:
        return f"{_ALGORITHM_FLAG} {algorithm} is set without {_DRAFT_FLAG}, so the draft is the model itself"
    if draft == model:
        return f"{_DRAFT_FLAG} is the model itself, {model}"
    return None


def _find_in_vllm_arguments(arguments: str) -> str | None:
    config = _find_first(arguments, r"speculative[_-]config['\"]?[:= ]+'?(\{.*?\})")
    if config is None:
        return None
    method = _find_first(config, r"['\"]method['\"]: ?" + _VALUE)
    draft = _find_first(config, r"['\"]model['\"]: ?" + _VALUE)
    model = _find_first(
        arguments.replace(config, ""),
        r"['\"]model(?:_tag)?['\"]: ?" + _VALUE,
        r"\bvllm serve (?!-)(\S+)",
        r"(?<!\S)--model[ =](\S+)",
    )
    if draft is None or draft != model or (method and not _SEPARATE_DRAFT.search(method)):
        return None
    return f"the draft of --speculative-config is the model itself, {model}"


def _find_first(text: str, *patterns: str) -> str | None:
    return next((match[1] for pattern in patterns if (match := re.search(pattern, text))), None)
