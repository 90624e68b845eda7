"""A proof as the probe prints it, and what it comes to."""

from pathlib import Path
from typing import Any

import pytest

from medley.environment import payload, verify
from medley.environment.payload.probe import is_built_for
from medley.environment.toolkit import Toolkit
from medley.environment.virtualenv import Environment
from medley.errors import Problem

RIGHT = {"ok": True, "error_share": 6e-7, "seconds": 0.1}
WRONG = {"ok": False, "error_share": 0.7, "seconds": 0.1}
PACKAGES = {name: {"version": "1", "seconds": 1.0} for name in ("torch", "ray", "vllm")}
CPU = {"name": "CPU", "threads": 2, "matmul": RIGHT, "silu_and_mul": RIGHT}
THOR = {**CPU, "name": "NVIDIA Thor", "capability": "11.0", "built_for_it": True, "arch_list": ["sm_110"]}


def proof(device: str = "cpu", **changes: Any) -> dict[str, Any]:
    devices = [CPU if device == "cpu" else THOR]
    base = {"python": "3.11.7", "libc": "glibc 2.36", "device": device, "engine": "vllm"}
    return {**base, "packages": PACKAGES, "platform": device, "devices": devices, **changes}


@pytest.mark.parametrize(
    ("found", "says"),
    [
        pytest.param(proof(), [], id="cpu"),
        pytest.param(proof("cuda"), [], id="gpu"),
        pytest.param(
            {**proof(), "packages": {**PACKAGES, "ray": {"error": "ImportError: x", "seconds": 0.1}}},
            ["import ray: ImportError: x"],
            id="an import",
        ),
        pytest.param(proof("cuda", devices=[]), ["torch sees no GPU"], id="no GPU"),
        pytest.param(proof("cuda", platform="cpu"), ["vLLM takes this host's device for cpu"], id="platform"),
        pytest.param(
            proof("cuda", platform="cpu", engine="sglang"),
            ["SGLang takes this host's device for cpu"],
            id="SGLang's platform",
        ),
        pytest.param(
            proof("cuda", platform={"error": "RuntimeError: y"}), ["RuntimeError: y"], id="no platform"
        ),
        pytest.param(
            proof("cuda", devices={"error": "CUDA error: z"}), ["CUDA error: z"], id="a driver that fails"
        ),
        pytest.param(
            proof(devices=[{**CPU, "matmul": WRONG}]), ["matmul on CPU: WRONG"], id="a wrong number"
        ),
        pytest.param(
            proof(devices=[{**CPU, "silu_and_mul": {"error": "no kernel image"}}]),
            ["silu_and_mul on CPU: no kernel image"],
            id="a kernel that fails",
        ),
        pytest.param(
            proof("cuda", devices=[{**THOR, "built_for_it": False}]),
            ["capability 11.0"],
            id="another GPU's code",
        ),
    ],
)
def test_failures(found: dict[str, Any], says: list[str]) -> None:
    failures = list(verify.list_failures(found))
    assert len(failures) == len(says), failures
    assert all(word in line for word, line in zip(says, failures, strict=True))
    problem = verify.find_problem(found, "vllm-x")
    assert (problem is None) == (not says)
    assert list(verify.list_rows(found))


def test_wheels_without_code_for_the_gpu_are_no_fault_of_its_driver() -> None:
    said = "AcceleratorError: CUDA error: no kernel image is available for execution on the device"
    orin = {**THOR, "name": "Orin", "capability": "8.7", "matmul": {"error": said}}
    found = verify.find_problem(proof("cuda", devices=[orin]), "vllm-cuda")
    assert found
    assert "docs/how-to/jetson-orin.md" in found.fix
    assert "nvidia-smi" not in found.fix


def test_the_fix_fits() -> None:
    no_gpu = verify.find_problem(proof("cuda", devices=[]), "vllm-cuda")
    broken = verify.find_problem(proof(devices=[{**CPU, "matmul": WRONG}]), "vllm-cpu")
    assert isinstance(no_gpu, Problem)
    assert isinstance(broken, Problem)
    assert "nvidia-smi" in no_gpu.fix
    assert "medley env build vllm-cpu" in broken.fix


@pytest.mark.parametrize(
    ("capability", "arches", "built"),
    [
        ((11, 0), ["sm_80", "sm_110"], True),
        ((12, 1), ["sm_120"], True),
        ((12, 0), ["sm_121"], False),
        ((8, 7), ["sm_80", "sm_90"], True),
        ((11, 0), ["sm_100", "sm_120"], False),
        ((11, 0), ["sm_90a", "compute_90"], True),
        ((12, 1), ["sm_120a"], True),
        ((8, 7), [], False),
    ],
    ids=str,
)
def test_built_for(capability: tuple[int, int], arches: list[str], *, built: bool) -> None:
    assert is_built_for(capability, arches) is built


def test_the_command_has_the_toolkits_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = Environment("vllm-cuda", "0", Path("/envs/vllm-cuda-0"), {}, "")
    toolkit = Toolkit(
        kind="thor", variables={"CC": "/n/gcc"}, path=("/n/bin",), preload=(), pythons={}, uv="/n/uv"
    )
    monkeypatch.setenv("PATH", "/usr/bin")
    command = verify.build_script_command(environment, toolkit, "probe.py", "cuda", "vllm")
    assert command.argv == ("/envs/vllm-cuda-0/bin/python", str(payload.FOLDER / "probe.py"), "cuda", "vllm")
    assert command.env == {"CC": "/n/gcc", "PATH": "/envs/vllm-cuda-0/bin:/n/bin:/usr/bin"}
