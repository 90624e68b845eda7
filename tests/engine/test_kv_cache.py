"""The KV cache that medley plans is the one that vLLM's own layers ask for (`get_kv_cache_spec`)."""

from pathlib import Path

import pytest

from tests.engine import kv_configs, kv_table

pytestmark = pytest.mark.engine

# One for each way in which a layer keeps something.
DOZEN = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "FalconH1ForCausalLM",
    "Gemma3nForCausalLM",
    "Gemma4ForCausalLM",
    "GptOssForCausalLM",
    "JambaForCausalLM",
    "Lfm2ForCausalLM",
    "Mamba2ForCausalLM",
    "MiMoV2FlashForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3ForCausalLM",
    "Step3p5ForCausalLM",
)


def test_a_dozen_architectures(tmp_path: Path) -> None:
    tiny, out = tmp_path / "tiny", tmp_path / "all"
    kv_table.tiny_models(tiny, [name for name in DOZEN if name not in kv_configs.WRITTEN])
    folders = [each for each in kv_configs.write(out, tiny) if each.name in DOZEN]
    found = list(kv_table.rows(out, folders))
    assert {each.architecture for each in found} == set(DOZEN)
    assert [each for each in found if not each.equal] == []


@pytest.mark.slow
def test_all_that_vllm_constructs(tmp_path: Path) -> None:
    tiny, out = tmp_path / "tiny", tmp_path / "all"
    kv_table.tiny_models(tiny)
    compared = [row for row in kv_table.rows(out, kv_configs.write(out, tiny)) if row.engine is not None]
    assert [row for row in compared if not row.equal] == []
    recorded = kv_table.TABLE.read_text().count("| equal\n")
    assert len(compared) >= recorded > 0
