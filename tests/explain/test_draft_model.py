"""A draft model that is the model itself is found in the arguments of both engines."""

import pytest

from medley.explain.draft_model import find_own_draft
from medley.explain.lines import SGLANG, VLLM

CONFIG = 'vllm serve {} --speculative-config \'{{"method": "{}", "model": "{}"}}\''
ARGS = "server_args=ServerArgs(model_path='a/b', speculative_algorithm={}, speculative_draft_model_path={})"


@pytest.mark.parametrize(
    ("arguments", "engine", "words"),
    [
        (
            CONFIG.format("a/b", "eagle3", "a/b"),
            VLLM,
            "the draft of --speculative-config is the model itself",
        ),
        (
            "non-default args: {'model': 'a/b', 'speculative_config': {'method': 'dflash', 'model': 'a/b'}}",
            VLLM,
            "a/b",
        ),
        (ARGS.format("'EAGLE3'", "'a/b'"), SGLANG, "--speculative-draft-model-path is the model itself, a/b"),
        (ARGS.format("'EAGLE3'", "None"), SGLANG, "without --speculative-draft-model-path"),
        (
            "sglang serve --model-path a/b --speculative-algorithm EAGLE --speculative-draft-model-path a/b",
            SGLANG,
            "a/b",
        ),
    ],
)
def test_it_is_found(arguments: str, engine: str, words: str) -> None:
    assert words in (find_own_draft(arguments, engine) or "")


@pytest.mark.parametrize(
    ("arguments", "engine"),
    [
        (CONFIG.format("a/b", "mtp", "a/b"), VLLM),
        (CONFIG.format("a/b", "eagle3", "a/b-eagle3"), VLLM),
        ("vllm serve a/b", VLLM),
        (ARGS.format("'NEXTN'", "'a/b'"), SGLANG),
        (ARGS.format("'EAGLE3'", "'a/draft'"), SGLANG),
        (ARGS.format("None", "None"), SGLANG),
    ],
)
def test_other_drafts_are_not(arguments: str, engine: str) -> None:
    assert find_own_draft(arguments, engine) is None
