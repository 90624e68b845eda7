"""What a line of an error shows by itself: its class, an error of CUDA, advice, and whose code it is."""

import pytest

from medley.explain import patterns
from medley.explain.cuda_errors import read_cuda_error
from tests.explain.test_context import ERROR, SITE, traced
from tests.explain.test_explain import names, of

CUDA = patterns.load(user=False).cuda_errors
WAITS = "(APIServer pid=1) RuntimeError: Engine core initialization failed. See root cause above.\n"


@pytest.mark.parametrize(
    "error",
    [
        "vllm.third_party.x.BusError_Odd: it is odd",
        "queue.Empty",
        "some.pkg.DeviceGone: odd",
        "a.b.StartTimeout: odd",
        "Unreachable(Node): odd",
        "starlette.exceptions.EarlyExit: odd",
    ],
)
def test_the_line_below_the_calls_is_the_error_whatever_its_class_is_named(error: str) -> None:
    (found,) = of(traced("x/y.py", error=error) + WAITS).problems
    assert found.match.failure.name == "unknown-error"
    assert found.match.line.text == error


def test_a_traceback_that_another_rank_interrupts_has_its_error() -> None:
    one, other = "(Worker_TP0 pid=2) ", "(Worker_TP1 pid=3) "
    call = f'  File "{SITE}x/y.py", line 9, in run\n'
    text = (
        f"{one}{call}{other}{call}{one}    x()\n{other}    x()\n{one}a.OddOne: left\n{other}a.OddOne: right\n"
    )
    (found,) = of(text).problems
    assert found.match.line.text == "a.OddOne: left"


def test_an_unknown_error_before_a_rendezvous_that_timed_out_is_named() -> None:
    late = "torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. 1/2 clients"
    (found,) = of(
        traced("x/y.py", error="a.OddOne: left") + f"(Worker pid=1) ERROR {late} joined.\n"
    ).problems
    assert found.match.line.text == "a.OddOne: left"
    (alone,) = of(
        f"(Worker pid=1) ERROR 11-21 14:20:56 [multiproc_executor.py:974] {late} joined.\n"
    ).problems
    assert alone.match.failure.name == "rendezvous-incomplete"


def test_a_line_below_the_calls_of_a_warning_is_no_error() -> None:
    text = f'WARNING 11-22 08:01:33 [a.py:1]   File "{SITE}x/y.py", line 9, in run\n'
    assert not of(text + "WARNING 11-22 08:01:33 [a.py:1] Note: it goes on\n").problems


def test_a_log_that_ends_inside_a_traceback_has_an_error() -> None:
    step = "(EngineCore pid=9) INFO 11-22 08:01:33 [model.py:733] Resolved architecture: Qwen3ForCausalLM\n"
    call = f'(EngineCore pid=9)   File "{SITE}x/y.py", line 9, in run\n'
    (found,) = of(f"{step}(EngineCore pid=9) Traceback (most recent call last):\n{call}").problems
    assert found.match.failure.name == "unknown-error"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Cuda failure 205 'mapping of buffer object failed'", 205),
        ("err 715 != CUDA_SUCCESS", 715),
        ("CUDA error: an illegal memory access was encountered", 700),
        ("cudaErrorLaunchOutOfResources", 701),
        ("failed with CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", 217),
        ("Triton Error [CUDA]: operation not permitted", 800),
        ("Triton Error [CUDA]: operation not permitted when stream is capturing", 900),
        ("CUDA error (719) at x.cu", 719),
    ],
)
def test_an_error_of_cuda_is_read_by_its_number_name_or_words(text: str, code: int) -> None:
    found = read_cuda_error(text, CUDA)
    assert found
    assert found.code == code


def test_a_number_elsewhere_is_no_error_of_cuda() -> None:
    assert read_cuda_error("CUDA kernel of block 715 was slow", CUDA) is None
    assert len({each.code for each in CUDA}) == len({each.text for each in CUDA}) == len(CUDA)


def test_an_error_of_a_kernel_says_what_its_number_means() -> None:
    (found,) = of(traced("x/y.py", error="RuntimeError: CUDA error (716): launch")).problems
    assert found.match.failure.name == "cuda-failed"
    assert "cudaErrorMisalignedAddress, 716" in found.problem().what


def test_a_call_of_nccl_is_not_a_kernel_of_the_engine() -> None:
    version = "gpu-1:1:1 [0] NCCL INFO NCCL version 2.28.9+cuda13.0\n" + "x\n" * 100
    warns = "gpu-1:1:1 [0] transport/p2p.cc:275 NCCL WARN Cuda failure 217 'peer access is not supported'\n"
    (found,) = of(version + warns).problems
    assert found.match.failure.name == "nccl-cuda-call"
    assert found.match.groups["nccl"] == "2.28.9"
    assert "--enforce-eager" not in found.problem().fix


def test_an_actor_of_ray_is_not_the_component_of_its_error() -> None:
    calls = ("vllm/v1/engine/core.py", "ray/_private/worker.py", "vllm/models/x/flashinfer_sparse.py")
    (found,) = of(traced(*calls)).problems
    assert "Ray" not in found.problem().what
    assert "sparse MLA" in found.problem().what
    (own,) = of(traced(*calls[:2])).problems
    assert "Ray" in own.problem().what


def test_an_environment_that_is_named_like_an_engine_does_not_lengthen_a_path() -> None:
    text = traced("vllm/v1/x.py").replace(SITE, "/home/u/vllm/lib/python3.12/site-packages/")
    (found,) = of(text).problems
    assert found.match.groups["last_call"] == "vllm/v1/x.py, run"


@pytest.mark.parametrize(
    ("message", "advice"),
    [
        ("it needs 9 heads. Install a build containing x/y#43.", "Install a build containing x/y#43"),
        ("odd; please upgrade it to 2.1", "please upgrade it to 2.1"),
        ("it is off, set VLLM_ODD=1 to allow it", "set VLLM_ODD=1 to allow it"),
        ("Not here. Use --odd-flag instead.", "Use --odd-flag instead"),
        ("RuntimeError: Plan 13 is invalid", None),
        ("odd. Please report a bug to PyTorch", None),
    ],
)
def test_an_error_s_own_advice_is_quoted_first(message: str, advice: str | None) -> None:
    (found,) = of(traced("x/y.py", error=f"FooError: {message}")).problems
    assert found.match.groups["advice"] == advice
    if advice:
        assert found.problem().fix.startswith(f"its message says: '{advice}'")


def test_triton_s_mla_is_not_advised_for_sparse_attention() -> None:
    calls = ("vllm/v1/attention/backends/mla/common.py",)
    assert "TRITON_MLA" in of(traced(*calls)).problems[0].problem().fix
    sparse = "(EngineCore pid=9) INFO 11-22 08:01:33 [cuda.py:1] Using FLASHMLA_SPARSE attention backend\n"
    assert "TRITON_MLA" not in of(sparse + traced(*calls)).problems[0].problem().fix


def test_the_distribution_of_a_module_is_that_of_its_folder() -> None:
    error = "AttributeError: module 'cutlass.cute' has no attribute 'odd'"
    (found,) = of(traced("nvidia_cutlass_dsl/python/cutlass/dsl.py", "vllm/x.py", error=error)).problems
    assert found.match.groups["distribution"] == "nvidia-cutlass-dsl"
    (other,) = of(traced("vllm/x.py", error=error)).problems
    assert other.match.groups["distribution"] is None
    assert "pip show" not in other.problem().fix


def test_sleep_mode_is_named_for_an_error_and_before_a_silent_end() -> None:
    call = f'{ERROR}  File "{SITE}vllm/v1/worker/gpu_worker.py", line 9, in wake_up\n'
    (found,) = of(f"{ERROR}Traceback (most recent call last):\n{call}{ERROR}FooError: odd\n").problems
    assert "sleep mode" in found.problem().what
    wakes = "(APIServer pid=1) INFO 07-27 10:33:40 [api_router.py:52] wake up the engine with tags: None\n"
    died = (
        "(APIServer pid=1) ERROR 07-27 10:33:43 [core_client.py:714] Engine core proc X died unexpectedly\n"
    )
    (silent,) = of(wakes + died).problems
    assert silent.match.groups["step"] == "wake up the engine with tags: None"


@pytest.mark.parametrize(
    ("where", "said", "name", "confidence"),
    [
        ("jit/compiler.hpp:147", "runtime != nullptr", "deep-gemm-jit", "medium"),
        ("jit_kernels/x.hpp:4", "Unknown recipe", "deep-gemm-refused", "high"),
        ("apis/attention.hpp:4", "num_heads == 64", "deep-gemm-check", "medium"),
    ],
)
def test_an_assertion_of_deep_gemm_is_no_surer_than_its_text(
    where: str, said: str, name: str, confidence: str
) -> None:
    (found,) = of(f"RuntimeError: Assertion error (/w/deepgemm/csrc/{where}): {said}\n").problems
    assert (found.match.failure.name, found.confidence) == (name, confidence)


def test_a_name_of_a_gpu_that_is_absent_is_a_known_failure() -> None:
    assert names(of("x.NVMLError_NotFound: Not Found\n" + WAITS))[0] == "gpu-index-absent"


def test_the_source_line_of_the_last_call_names_the_component() -> None:
    call = f'{ERROR}  File "{SITE}vllm/entrypoints/serving.py", line 9, in stream\n'
    text = (
        f"{ERROR}Traceback (most recent call last):\n{call}{ERROR}    tool_parser.calls[at].get(\n"
        f"{ERROR}IndexError: list index out of range\n"
    )
    (failure,) = of(text).problems
    assert "the tool call or reasoning parser" in failure.problem().what


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: mat1 and mat2 shapes cannot be multiplied (8192x3840 and 5632x1024)",
        "RuntimeError: The size of tensor a (11) must match the size of tensor b (2) at dimension 1",
    ],
)
def test_sizes_that_do_not_fit_in_the_engine_s_own_code_are_a_defect(error: str) -> None:
    (failure,) = of(traced("vllm/model_executor/models/odd.py", error=error)).problems
    assert "an error in the engine's own code" in failure.problem().what
    assert failure.confidence == "low"
    (foreign,) = of(traced("my/own.py", error=error)).problems
    assert "unknown failure" in foreign.problem().what


def test_an_unknown_error_of_a_kernel_names_the_kernel_that_the_engine_chose() -> None:
    chosen = "(EngineCore pid=9) INFO 11-22 08:01:30 [x.py:1] Selected OddKernel for Fp8LinearMethod\n"
    (failure,) = of(chosen + traced("vllm/kernels/linear/x.py", error="OddError: it is odd")).problems
    assert "the log names the kernel OddKernel" in failure.problem().cause
    assert "VLLM_DISABLED_KERNELS=OddKernel" in failure.problem().fix


def test_an_assertion_in_the_account_of_the_cache_is_a_defect() -> None:
    error = "AssertionError: Incorrect LRU list, x.id=12 != x_lru.id=11"
    (failure,) = of(traced("sglang/srt/mem_cache/mamba_radix_cache.py", error=error)).problems
    assert "an error in the engine's own code" in failure.problem().what
    (other,) = of(traced("sglang/srt/layers/odd.py", error=error)).problems
    assert "an error in the engine's own code" not in other.problem().what
