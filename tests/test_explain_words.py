"""Other wordings of failures that are known, and words that only look like them."""

import pytest

from medley.explain import Log, explained

CHAIN = """Traceback (most recent call last):
  File "shm.py", line 443, in read
    raise TimeoutError
TimeoutError
TimeoutError: RPC call to execute_model timed out.
"""
BUILD = """FAILED: [code=1] csrc/awq.o
/usr/local/cuda/bin/nvcc -c csrc/awq.cu -o csrc/awq.o
Killed
ninja: build stopped: subcommand failed.
subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 1.
"""
NCCL = """torch.distributed.DistBackendError: NCCL error in: x.cpp:3356, unhandled cuda error
ncclUnhandledCudaError: Call to CUDA function failed.
Last error:
Cuda failure 700 'an illegal memory access was encountered'
"""
REFUSED = """pydantic_core._pydantic_core.ValidationError: 1 validation error for {}
block_size
  Input should be 1, 8 or 16 [type=literal_error, input_value=3, input_type=int]
    For further information visit https://errors.pydantic.dev/2.9/v/literal_error
"""
BENCH = """Error loading tokenizer 'demo': demo is not a local folder and is not a valid model identifier
Repository Not Found for url: https://huggingface.co/demo/resolve/main/tokenizer.json.
Falling back to 'gpt2' tokenizer as approximation.
| demo | tg1024 | 7.80 |
"""


def name(text: str) -> str | None:
    first = explained([Log("log", [text.encode()])]).first
    return first.hit.known.name if first else None


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("RuntimeError: CUDA error: an illegal instruction was encountered\n", "cuda-failed"),
        ("bash: line 1: 41 Illegal instruction (core dumped) python\n", "processor-old"),
        (NCCL, "cuda-failed"),
        (
            "RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at x.cpp:49\n",
            "gpu-ordinal",
        ),
        ("[host:41:0] Caught signal 11 (Segmentation fault: address not mapped to object)\n", "crashed"),
        (
            (
                "ValueError: The number of required GPUs exceeds the total number of available GPUs in the "
                "cluster.\n"
            ),
            "ray-too-few",
        ),
        ('RuntimeError: Form data requires "python-multipart" to be installed.\n', "module-missing"),
        (BUILD, "compiler-killed"),
        ("RuntimeError: Failed\nptxas terminated (signal: 11)\n", "compile-failed"),
        (CHAIN, "engine-waits"),
        ("Last error:\nCuda failure 3 'initialization error'\n", "cuda-failed"),
        ("       > tar: lib/libcudnn.so: Wrote only 2048 of 10240 bytes\n", "disk-full"),
        ("ptxas fatal   : Internal error: writing file\n", "disk-full"),
        (
            "ValueError: Ray does not allocate any GPUs on the driver node. Consider this.\n",
            "ray-no-gpu-here",
        ),
        (REFUSED.format("CacheConfig"), "flag-value"),
        (REFUSED.format("ChatCompletionResponseChoice"), "unknown-error"),
        (
            "Exception: Capture cuda graph failed: [pair.cc:534] Connection closed by peer [192.0.2.7]:454\n",
            "gloo-lost",
        ),
        ("Traceback (most recent call last):\n  x\ndocker.errors.NotFound: no such thing\n", "unknown-error"),
        (
            "#9 1.23 /src/x.cpp:1:10: fatal error: cute/tensor.hpp: No such file or directory\n",
            "header-missing",
        ),
    ],
)
def test_is_named(text: str, known: str) -> None:
    assert name(text) == known


@pytest.mark.parametrize(
    "text",
    [
        BENCH,
        "Skipping import of cpp extensions: /x/torchao/_C.abi3.so: undefined symbol: _ZN3c105\n",
        "INFO 11-22 08:01:33 [x.py:1] Failed to fetch image https://a.example/x.png: 404\n",
    ],
)
def test_is_none(text: str) -> None:
    assert name(text) is None
