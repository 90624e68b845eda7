import json
from pathlib import Path

import pytest

from medley import carry


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        pytest.param("HF_TOKEN", False, id="the hub's token: every rank loads weights"),
        pytest.param("HF_HUB_OFFLINE", False, id="so does this"),
        pytest.param("VLLM_PP_LAYER_PARTITION", False, id="how the layers are cut"),
        pytest.param("NCCL_IB_DISABLE", False, id="one transport for all"),
        pytest.param("TORCHDYNAMO_DISABLE", False, id="the same code on all"),
        pytest.param("NCCL_IB_HCA", True, id="devices have other names elsewhere"),
        pytest.param("NCCL_SOCKET_IFNAME", True, id="so have interfaces"),
        pytest.param("GLOO_SOCKET_IFNAME", True, id="Gloo's, too"),
        pytest.param("TRITON_PTXAS_PATH", True, id="another host's compiler"),
        pytest.param("TORCH_CUDA_ARCH_LIST", True, id="another GPU"),
        pytest.param("CUDA_VISIBLE_DEVICES", True, id="which GPUs"),
        pytest.param("RAY_ADDRESS", True, id="Ray's own"),
        pytest.param("TMPDIR", True, id="a folder that may not be there"),
        pytest.param("AWS_SECRET_ACCESS_KEY", True, id="a secret of the shell"),
        pytest.param("PATH", True, id="programs"),
    ],
)
def test_stays(name: str, stays: bool) -> None:  # noqa: FBT001 - a table's cell
    assert carry.stays([name]) == [name] * stays


def test_the_list_is_where_vllm_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    carry.write(["TMPDIR", "HF_TOKEN", "PATH"])
    file = Path(carry.variable("vllm").value) / "ray_non_carry_over_env_vars.json"
    assert json.loads(file.read_text()) == ["PATH", "TMPDIR"]
