import json
import os
from pathlib import Path

import pytest

from medley import config
from medley.command import AnnotatedCommand, Variable
from medley.engine import hidden_variables
from medley.engine.shared_flags import list_common_variables
from medley.environment.toolkit import list_toolkit_variables
from medley.planner.plan import Plan


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
        pytest.param("VLLM_S3_SECRET", True, id="a secret of the engine"),
        pytest.param("SGLANG_ADMIN_API_KEY", True, id="a key of the engine"),
        pytest.param("HF_TOKEN", False, id="the hub's token, which ranks need"),
        pytest.param("PATH", True, id="programs"),
    ],
)
def test_stays(name: str, stays: bool) -> None:  # noqa: FBT001 - a table's cell
    assert hidden_variables.list_hidden_names([name]) == [name] * stays


def test_the_list_is_where_vllm_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    for name in os.environ:
        monkeypatch.delenv(name)
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path))
    monkeypatch.setenv("TMPDIR", "/tmp")
    own = Variable("NCCL_SOCKET_IFNAME", "=eth0", "of this host")
    hca = Variable("NCCL_IB_HCA", "=a:1,b:1", "of all hosts", everywhere=True)
    table = Variable("NCCL_DEBUG", "INFO", "of cluster.toml", local=True)
    found = (own, hca, table, Variable("HF_TOKEN", "hf_x", "the hub's"))
    hidden_variables.write_hidden_names(AnnotatedCommand(("vllm",), (), found))
    file = (
        Path(hidden_variables.build_hidden_names_variable("vllm").value) / "ray_non_carry_over_env_vars.json"
    )
    assert json.loads(file.read_text()) == [
        *("MEDLEY_STATE", "NCCL_DEBUG", "NCCL_SOCKET_IFNAME", "PYTHONSAFEPATH", "TMPDIR")
    ]


HOSTS = config.load_hosts()


def test_gpus_are_counted_as_nvidia_smi_does() -> None:
    plan = Plan(gpus=(2, 0))
    found = {each.name: each.value for each in list_common_variables(plan, HOSTS["rtx"], {}, is_local=False)}
    assert (found["CUDA_DEVICE_ORDER"], found["CUDA_VISIBLE_DEVICES"]) == ("PCI_BUS_ID", "2,0")
    assert "HF_HUB_OFFLINE" not in found


def test_a_cpu_has_no_cuda() -> None:
    found = {each.name for each in list_common_variables(Plan(), HOSTS["cpu"], {}, is_local=True)}
    assert not [name for name in found if name.startswith("CUDA")]
    assert "HF_HUB_OFFLINE" in found


def test_the_toolkits_programs_come_first() -> None:
    found = {
        each.name: each.value
        for each in list_toolkit_variables({"CUDA_HOME": "/c"}, ["/e/bin", "/c/bin"], "/usr/bin")
    }
    assert found == {"CUDA_HOME": "/c", "PATH": "/e/bin:/c/bin:/usr/bin"}


def test_every_variable_has_its_reason_and_none_is_the_libraries_path() -> None:
    found = [
        *list_common_variables(Plan(), HOSTS["rtx"], {}, is_local=True),
        *list_toolkit_variables({"A": "1"}, ["/x"], "/y"),
    ]
    assert all(each.why for each in found)
    assert "LD_LIBRARY_PATH" not in {each.name for each in found}


def test_compilers_are_bounded_and_the_user_may_say_otherwise() -> None:
    plan = Plan(compile_jobs=3)
    ours = {each.name: each for each in list_common_variables(plan, HOSTS["spark"], {}, is_local=False)}
    assert (ours["MAX_JOBS"].value, ours["FLASHINFER_NVCC_THREADS"].value) == ("3", "1")
    theirs = {
        each.name: each
        for each in list_common_variables(plan, HOSTS["spark"], {"MAX_JOBS": "9"}, is_local=False)
    }
    assert theirs["MAX_JOBS"].value == "9"
    assert theirs["MAX_JOBS"].why.startswith("set by you; medley's value is 3")
    assert "MAX_JOBS" not in {
        each.name for each in list_common_variables(plan, HOSTS["cpu"], {}, is_local=False)
    }
