from pathlib import Path

import pytest

from medley.network.fabric.variables import LEFT_UNSET, NOT_CARRIED_VARIABLES
from medley.serving.community_recipe.variables import build_variable_entry, list_variable_entries


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VLLM_MARLIN_USE_ATOMIC_ADD", "1"),
        ("NCCL_CUMEM_ENABLE", "0"),
        ("PYTORCH_CUDA_ALLOC_CONF", "expandable_segments:True"),
        ("VLLM_LOGGING_PREFIX", '{"a": {"b": "C"}}'),
    ],
)
def test_an_engine_s_variable_is_carried(name: str, value: str) -> None:
    found = build_variable_entry(name, value)
    assert (found.key, found.outcome, found.word_kind) == (f"env.{name}", "carried", "variable")
    assert found.words == (f"{name}={value}",)
    assert "Ray" not in found.why


def test_one_that_ray_does_not_carry_says_so() -> None:
    assert "set it there before ray-worker or join" in build_variable_entry("OMP_NUM_THREADS", "4").why


@pytest.mark.parametrize("name", NOT_CARRIED_VARIABLES)
def test_what_names_one_host_s_interface_is_medley_s(name: str) -> None:
    found = build_variable_entry(name, "enp1s0f1np1")
    assert (found.outcome, found.words) == ("refused", ())
    assert "medley sets per host" in found.why


@pytest.mark.parametrize("name", LEFT_UNSET)
def test_what_medley_leaves_unset_has_its_reason(name: str) -> None:
    assert LEFT_UNSET[name] in build_variable_entry(name, "1").why


@pytest.mark.parametrize(
    ("name", "value", "why"),
    [
        pytest.param("NCCL_IB_DISABLE", "1", "medley link show", id="the transport"),
        pytest.param("TORCH_CUDA_ARCH_LIST", "12.1a", "per kind of host", id="an architecture"),
        pytest.param("HF_TOKEN", "hf_x", "hold secrets", id="a token"),
        pytest.param("VLLM_API_KEY", "x", "--api-key FILE", id="a key"),
        pytest.param("VLLM_SLEEP_WHEN_IDLE", "1", "nothing replaces it", id="gone from vLLM"),
        pytest.param("VLLM_USE_B12X_MOE", "1", "does not read it", id="a fork's"),
        pytest.param("SGLANG_ROCE_ALLREDUCE", "1", "does not read it", id="the other engine's"),
        pytest.param("DSV41_SOURCE", "{launch.model_path}", "only sparkrun knows it", id="sparkrun's own"),
        pytest.param("VLLM_CACHE_ROOT", "cache", "is a path", id="a folder by its name"),
        pytest.param("VLLM_TUNED", "/tuning", "is a path", id="a folder by its value"),
        pytest.param("VLLM_SERVER_DEV_MODE", "1", "open the server", id="what opens the server"),
        pytest.param("VLLM_PLUGINS", "mine", "may run other code", id="other code"),
        pytest.param("LD_PRELOAD", "x.so", "is a path", id="a library"),
        pytest.param("VLLM_HOST", "${HOST}", "needs a shell", id="another's variable"),
        pytest.param("RAY_memory_monitor_refresh_ms", "0", "which start Ray", id="Ray's own"),
        pytest.param("GLM_MOE_LANE_ROWS", "4", "medley's engines do not read it", id="a patched engine's"),
        pytest.param("VLLM_A;id", "4", "medley's engines do not read it", id="no name"),
    ],
)
def test_what_is_refused_has_its_reason(name: str, value: str, why: str) -> None:
    found = build_variable_entry(name, value)
    assert (found.outcome, found.words) == ("refused", ())
    assert why in found.why


@pytest.mark.parametrize(
    "name",
    ["HF_HUB_OFFLINE", "CUDA_DEVICE_ORDER", "DO_NOT_TRACK", "MAX_JOBS", "VLLM_DISTRIBUTED_EXECUTOR_CONFIG"],
)
def test_what_medley_sets_itself_is_decided(name: str) -> None:
    assert build_variable_entry(name, "1").outcome == "decided"


def test_a_switch_that_ends_as_a_folder_does_is_no_path() -> None:
    assert build_variable_entry("TORCHINDUCTOR_AUTOGRAD_CACHE", "0").words == (
        "TORCHINDUCTOR_AUTOGRAD_CACHE=0",
    )


@pytest.mark.parametrize(
    ("name", "value", "flag"),
    [
        ("VLLM_USE_FLASHINFER_MOE_FP4", "0", "--moe-backend marlin"),
        ("VLLM_USE_FLASHINFER_MOE_FP4", "1", "--moe-backend flashinfer_cutlass"),
        ("VLLM_NVFP4_GEMM_BACKEND", "marlin", "--linear-backend marlin"),
        ("VLLM_NVFP4_GEMM_BACKEND", "flashinfer-cutlass", "--linear-backend flashinfer_cutlass"),
        ("VLLM_FLASHINFER_MOE_BACKEND", "latency", "--moe-backend flashinfer_trtllm"),
        ("VLLM_MXFP4_USE_MARLIN", "true", "--moe-backend marlin"),
        ("VLLM_ATTENTION_BACKEND", "FLASHINFER", "--attention-backend FLASHINFER"),
        ("VLLM_FLASH_ATTN_VERSION", "2", "--attention-config.flash_attn_version 2"),
    ],
)
def test_a_variable_that_became_a_flag_is_the_flag_of_its_value(name: str, value: str, flag: str) -> None:
    (found,) = list_variable_entries({name: value}, "vllm", ())
    assert (found.word_kind, " ".join(found.words), found.is_changed) == ("flag", flag, True)


@pytest.mark.parametrize(
    ("name", "value"),
    [("VLLM_USE_V1", "1"), ("VLLM_MXFP4_USE_MARLIN", "0"), ("VLLM_USE_FLASHINFER_MOE_FP8", "0")],
)
def test_one_whose_value_is_the_default_adds_nothing(name: str, value: str) -> None:
    (found,) = list_variable_entries({name: value}, "vllm", ())
    assert (found.outcome, found.words) == ("decided", ())


def test_the_command_counts_before_a_variable() -> None:
    (found,) = list_variable_entries({"VLLM_USE_FLASHINFER_MOE_FP4": "0"}, "vllm", ("--moe-backend",))
    assert (found.outcome, found.words) == ("decided", ())


def test_two_variables_for_one_flag_add_it_once_or_not_at_all() -> None:
    alike = {"VLLM_USE_FLASHINFER_MOE_FP4": "0", "VLLM_MXFP4_USE_MARLIN": "1"}
    assert [each.words for each in list_variable_entries(alike, "vllm", ())] == [
        ("--moe-backend", "marlin"),
        (),
    ]
    against = {"VLLM_USE_FLASHINFER_MOE_FP4": "1", "VLLM_MXFP4_USE_MARLIN": "1"}
    assert [each.outcome for each in list_variable_entries(against, "vllm", ())] == ["refused", "refused"]


def test_a_value_that_the_release_lacks_is_not_passed_on() -> None:
    (found,) = list_variable_entries({"VLLM_ATTENTION_BACKEND": "XFORMERS_OLD"}, "vllm", ())
    assert (found.outcome, found.words) == ("refused", ())


def test_what_a_fork_reads_says_so() -> None:
    assert build_variable_entry("VLLM_ENABLE_ROCE_ALLREDUCE", "1").needs_fork
    assert build_variable_entry("SGLANG_ROCE_ALLREDUCE", "1", "sglang").needs_fork
    assert not build_variable_entry("NCCL_CUMEM_ENABLE", "0").needs_fork


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_TUNER_PLUGIN", "./x.so"),
        ("NCCL_TUNER_PLUGIN", "evil"),
        ("NCCL_PROFILER_PLUGIN", "evil"),
        ("NCCL_CONF_FILE", "./x"),
        ("NCCL_ENV_PLUGIN", "evil"),
        ("FLASHINFER_NVCC", "x.sh"),
        ("FLASHINFER_EXTRA_LDFLAGS", "-lx"),
        ("TRITON_PTXAS_PATH", "x"),
        ("CUDA_INJECTION64_PATH", "x"),
        ("OMP_TOOL_LIBRARIES", "x"),
        ("DG_JIT_NVCC_COMPILER", "x"),
        ("TORCHINDUCTOR_CACHE_DIR", "x"),
        ("TORCH_LOGS", "/x"),
        ("VLLM_NIXL_SIDE_CHANNEL_PORT", "5557"),
        ("VLLM_USAGE_STATS_SERVER", "https://evil.example"),
        ("VLLM_LOGGING_PREFIX", "~/x"),
    ],
)
def test_a_variable_that_is_not_known_to_be_harmless_is_left_out(name: str, value: str) -> None:
    found = build_variable_entry(name, value)
    assert (found.outcome, found.words) == ("refused", ())


@pytest.mark.parametrize(
    "name",
    [
        "SGLANG_OPT_CACHE_DIR",
        "SGLANG_MOE_CONFIG_PATH",
        "SGLANG_EXTERNAL_MODEL_PACKAGE",
        "SGLANG_USE_PICKLE_IPC",
    ],
)
def test_a_family_has_no_folders(name: str) -> None:
    assert build_variable_entry(name, "x", "sglang").outcome == "refused"


PUBLIC = Path(__file__).with_name("public_settings.txt").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("setting", [each for each in PUBLIC if " " not in each])
def test_what_public_recipes_set_is_carried(setting: str) -> None:
    name, _, value = setting.partition("=")
    assert build_variable_entry(name, value).words == (setting,)
