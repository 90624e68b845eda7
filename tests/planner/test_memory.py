import pytest

from medley.host.facts import GIB
from medley.model.shape import compute_feed_forward_width
from medley.planner.memory import (
    PipelinePosition,
    compute_activation_bytes,
    compute_memory_need,
    compute_token_layer_bytes,
    compute_usable_bytes,
    compute_weights_bytes,
)
from medley.schema import Shape
from tests.planner.layouts import GPT_OSS_120B, MODELS, QWEN_30B, QWEN_30B_FP8, QWEN_72B, cpu, pro6000, spark

TIED = QWEN_72B.replace(head_bytes=0)
LAYER, WORDS = 1_755_369_472, 2_491_416_576


@pytest.mark.parametrize(
    ("shape", "place", "expected"),
    [
        # 80 layers, embedding, head: 145 412 390 912 = 135.4 GiB, the "~136GB" that people quote
        pytest.param(QWEN_72B, PipelinePosition(80), 80 * LAYER + 2 * WORDS, id="72B, alone"),
        # Norms 32 768 are on both; K and V 33 554 432 halve as the rest does: 8 heads over 2.
        # (1 755 369 472 - 32 768) / 2 + 32 768 = 877 701 120 a layer
        pytest.param(QWEN_72B, PipelinePosition(80, 2), 80 * 877_701_120 + WORDS, id="72B, TP 2"),
        # Each of 16 has one of 8 KV heads: an eighth of K and V, 4 194 304, a sixteenth of the rest,
        # 1 721 782 272 / 16 = 107 611 392, and the norms: 111 838 464
        pytest.param(
            QWEN_72B, PipelinePosition(80, 16), 80 * 111_838_464 + WORDS // 8, id="72B, TP 16 copies KV heads"
        ),
        pytest.param(
            QWEN_72B,
            PipelinePosition(30, is_first=True, is_last=False),
            30 * LAYER + WORDS,
            id="the first has embedding",
        ),
        pytest.param(
            QWEN_72B,
            PipelinePosition(30, is_first=False, is_last=False),
            30 * LAYER,
            id="the middle has neither",
        ),
        pytest.param(
            QWEN_72B, PipelinePosition(30, is_first=False), 30 * LAYER + WORDS, id="the last has the head"
        ),
        pytest.param(TIED, PipelinePosition(80), 80 * LAYER + WORDS, id="tied: once, alone"),
        pytest.param(
            TIED, PipelinePosition(30, is_first=False), 30 * LAYER + WORDS, id="tied: the last has a copy"
        ),
        # Router and norms 2·2048·(2 + 128) = 532 480 on all; K and V 8·2048·512 = 4 194 304 / 4 = 1 048 576;
        # the rest of 38 281 728, / 4 = 8 388 736; experts 128·9 437 184 / 4 = 301 989 888
        pytest.param(
            QWEN_30B,
            PipelinePosition(1, 4, is_first=False, is_last=False),
            532_480 + 1_048_576 + 8_388_736 + 301_989_888,
            id="MoE",
        ),
    ],
)
def test_weights(shape: Shape, place: PipelinePosition, expected: int) -> None:
    assert compute_weights_bytes(shape, place) == expected


def test_experts_whole_or_cut() -> None:
    """32 of 128 experts weigh what a quarter of each does; of 3 ranks one has 43, and room for it is kept."""
    cut, whole = PipelinePosition(1, 4), PipelinePosition(1, 4, expert_parallel=True)
    assert compute_weights_bytes(QWEN_30B, whole) == compute_weights_bytes(QWEN_30B, cut)
    thirds = [
        compute_weights_bytes(QWEN_30B, PipelinePosition(1, 3, expert_parallel=way)) for way in (False, True)
    ]
    assert thirds[1] - thirds[0] == 43 * 9_437_184 - 128 * 9_437_184 // 3


@pytest.mark.parametrize(
    ("shape", "tensor", "expected"),
    [
        pytest.param(QWEN_72B, 1, 2 * 8 * 128 * 2, id="8 heads, K and V, 16 bits"),
        pytest.param(QWEN_72B, 8, 2 * 1 * 128 * 2, id="one each"),
        pytest.param(QWEN_72B, 16, 2 * 1 * 128 * 2, id="no less than one"),
        # DeepSeek's latent: 512 + 64 values in 16 bits
        pytest.param(QWEN_72B.replace(kv_bytes_per_token=1152), 8, 1152, id="MLA is copied"),
    ],
)
def test_cache_of_a_token(shape: Shape, tensor: int, expected: int) -> None:
    assert compute_token_layer_bytes(shape, tensor) == expected


@pytest.mark.parametrize(
    ("context", "expected"),
    [
        # 18 growing layers of 2048 bytes a token: 36 864; 18 windowed hold 128 + 4096 and a block: 4240
        pytest.param(8192, 36_864 * (8192 + 4240), id="longer than the window"),
        pytest.param(1000, 36_864 * 2 * 1008, id="shorter, in blocks of 16"),
    ],
)
def test_windowed_layers_stop_growing(context: int, expected: int) -> None:
    assert (
        compute_memory_need(GPT_OSS_120B, PipelinePosition(36), spark().kind).compute_kv_bytes(context, 1)
        == expected
    )
    assert (
        compute_memory_need(GPT_OSS_120B, PipelinePosition(36), spark().kind).compute_kv_bytes(context, 3)
        == 3 * expected
    )


def test_recurrent_state() -> None:
    """6 of 8 layers recur, 100 bytes each: a stage of 4 has up to 3 of them, and 2 ranks share it."""
    shape = QWEN_72B.replace(layers=8, attention_layers=2, state_bytes=600)
    found = compute_memory_need(shape, PipelinePosition(4), spark().kind)
    assert (found.state_bytes, found.token_bytes) == (300, 4096)
    assert compute_memory_need(shape, PipelinePosition(4, 2), spark().kind).state_bytes == 150


@pytest.mark.parametrize(
    ("kind", "total", "available", "expected"),
    [
        pytest.param("spark", 120, 118, 102, id="unified: 0.85 of all"),
        pytest.param("spark", 120, 100, 92, id="unified: 8 stay for the system"),
        pytest.param("spark", 120, 5, 0, id="nothing left"),
        pytest.param("rtx", 100, 99, 92, id="a GPU's own memory"),
        pytest.param("rtx", 100, 60, 60, id="of which some is taken"),
        pytest.param("cpu", 100, 50, 48, id="a CPU"),
    ],
)
def test_usable(kind: str, total: int, available: int, expected: int) -> None:
    assert compute_usable_bytes(kind, total * GIB, available * GIB) == expected * GIB


def test_activations_as_vllm_logged_them() -> None:
    """Llama-3-8B, 8192 tokens at once: "PyTorch activation peak memory 1.26GiB" (vllm pull request 10511)."""
    # 2·4096² + 2·4096·1024 + 3·4096·14336 + 2·4096 parameters a layer
    llama = QWEN_72B.replace(layers=32, hidden=4096, heads=32, vocabulary=128256, layer_bytes=2 * 218_112_000)
    assert compute_activation_bytes(llama, 1, tokens=8192) == pytest.approx(1.26 * GIB, rel=0.1)


@pytest.mark.parametrize(
    ("name", "inner"), [("72b", 29568), ("30b", 768), ("30b-fp8", 768), ("120b", 2880)], ids=list(MODELS)
)
def test_the_inner_size_is_told_from_bytes(name: str, inner: int) -> None:
    assert compute_feed_forward_width(MODELS[name]) == pytest.approx(inner, rel=0.01)


def test_the_sampler_grows_above_64_sequences() -> None:
    """24 bytes for each of 152 064 words of each."""
    found = compute_memory_need(QWEN_72B, PipelinePosition(80), spark().kind)
    assert found.compute_overhead_bytes(64) == found.compute_overhead_bytes(1)
    assert found.compute_overhead_bytes(100) - found.compute_overhead_bytes(64) == 36 * 24 * 152_064


def test_the_engines_own() -> None:
    """One GiB; one more for graphs where memory is the GPU's own; 1.3 for the API server on a CPU."""
    least = compute_activation_bytes(QWEN_30B_FP8, 1)
    assert compute_memory_need(QWEN_30B_FP8, PipelinePosition(48), spark().kind).fixed_bytes == GIB + least
    assert (
        compute_memory_need(QWEN_30B_FP8, PipelinePosition(48), pro6000().kind).fixed_bytes == 2 * GIB + least
    )
    assert (
        compute_memory_need(QWEN_30B_FP8, PipelinePosition(48), cpu().kind).fixed_bytes
        == GIB + GIB * 13 // 10 + least
    )
    assert (
        compute_memory_need(QWEN_30B_FP8, PipelinePosition(48, is_first=False), cpu().kind).fixed_bytes
        == GIB + least
    )
