import json
import os
from pathlib import Path

import pytest

from medley import carry
from medley.reasoned import Reasoned
from medley.variables import Variable


@pytest.mark.parametrize(
    ("name", "stays"),
    [
        pytest.param("HF_TOKEN", False, id="the hub's token: every rank loads weights"),
        pytest.param("HF_HUB_OFFLINE", False, id="so does this"),
        pytest.param("VLLM_PP_LAYER_PARTITION", False, id="how the layers are cut"),
        pytest.param("NCCL_IB_DISABLE", False, id="one transport for all"),
        pytest.param("TORCHDYNAMO_DISABLE", False, id="the same code on all"),
        pytest.param("MAX_JOBS", False, id="compilers at once, the fewest that any host bears"),
        pytest.param("FLASHINFER_WORKSPACE_BASE", True, id="a folder of compiled kernels"),
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
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    own = Variable("NCCL_SOCKET_IFNAME", "=eth0", "of this host")
    hca = Variable("NCCL_IB_HCA", "=a:1,b:1", "of all hosts", everywhere=True)
    carry.write(Reasoned(("vllm",), (), (own, hca, Variable("HF_TOKEN", "hf_x", "the hub's"))))
    file = Path(carry.variable("vllm").value) / "ray_non_carry_over_env_vars.json"
    assert json.loads(file.read_text()) == ["MEDLEY_STATE", "NCCL_SOCKET_IFNAME", "TMPDIR"]
