"""Models by their public numbers, devices by their makers', and a small roofline."""

from collections.abc import Callable

from medley.host.facts import GIB
from medley.planner import Device, Goal, HostLink, Layout, Load, Stage, list_pipelines
from medley.planner.context import choose_context
from medley.planner.memory import compute_usable_bytes
from medley.planner.partition import StageTimer, StageTimerFactory, Workload
from medley.planner.prediction import Prediction
from medley.schema import Shape

# config.json of Qwen/Qwen2.5-72B-Instruct. A layer: q and o 2·8192², k and v 2·8192·1024, biases 8192 +
# 2·1024, three matrices of 8192·29568, two norms of 8192 = 877 684 736 parameters, in 16 bits.
QWEN_72B = Shape(
    layers=80,
    hidden=8192,
    heads=64,
    kv_heads=8,
    head_dim=128,
    vocabulary=152064,
    context=32768,
    parameters=72_706_203_648,
    active_parameters=72_706_203_648,
    layer_bytes=1_755_369_472,
    active_layer_bytes=1_755_369_472,
    embedding_bytes=2_491_416_576,
    head_bytes=2_491_416_576,
)
# config.json of Qwen/Qwen3-30B-A3B. An expert: 3·2048·768 = 4 718 592 parameters; 128 of them, 8 per token.
# The rest of a layer: q and o 2·2048·4096, k and v 2·2048·512, router 2048·128, norms 2·2048 + 2·128 = 19 140
# 864.
QWEN_30B = Shape(
    layers=48,
    hidden=2048,
    heads=32,
    kv_heads=4,
    head_dim=128,
    vocabulary=151936,
    context=262144,
    parameters=30_532_122_624,
    active_parameters=3_353_032_704,
    layer_bytes=2 * (19_140_864 + 128 * 4_718_592),
    active_layer_bytes=2 * (19_140_864 + 8 * 4_718_592),
    embedding_bytes=2 * 151936 * 2048,
    head_bytes=2 * 151936 * 2048,
    experts=128,
    experts_per_token=8,
    expert_bytes=2 * 4_718_592,
)
# Its FP8 sibling: a byte for a weight of the layers.
QWEN_30B_FP8 = QWEN_30B.replace(
    weights="fp8",
    feed_forward=768,
    block=128,
    layer_bytes=19_140_864 + 128 * 4_718_592,
    active_layer_bytes=19_140_864 + 8 * 4_718_592,
    expert_bytes=4_718_592,
)
# config.json of openai/gpt-oss-120b. An expert: 3·2880² = 24 883 200 weights in MXFP4 and 8640 biases in 16
# bits = 13 236 480 bytes. The rest: q and o 2·2880·4096, k and v 2·2880·512, biases and sinks, router
# 2880·128, norms, in 16.
GPT_OSS_120B = Shape(
    layers=36,
    hidden=2880,
    heads=64,
    kv_heads=8,
    head_dim=64,
    vocabulary=201088,
    context=131072,
    parameters=116_829_156_672,
    active_parameters=5_132_000_000,
    layer_bytes=128 * 13_236_480 + 53_900_000,
    active_layer_bytes=4 * 13_236_480 + 53_900_000,
    embedding_bytes=2 * 201088 * 2880,
    head_bytes=2 * 201088 * 2880,
    experts=128,
    experts_per_token=4,
    expert_bytes=13_236_480,
    attention_layers=18,
    window=128,
    windowed_layers=18,
    weights="mxfp4",
)
MODELS = {"72b": QWEN_72B, "30b": QWEN_30B, "30b-fp8": QWEN_30B_FP8, "120b": GPT_OSS_120B}

ROCE = HostLink(mbit=100_000, latency_us=5, rdma=True)
TEN = HostLink(mbit=10_000, latency_us=30)
ONE = HostLink(mbit=1_000, latency_us=100)

_SPARK_TOTAL = int(121.69 * GIB)
_THOR_TOTAL = 125_772 << 20
_ORIN_TOTAL = int(61.3 * GIB)


def spark(nth: int = 1) -> Device:
    """Just after boot, with 112 GiB available: 112 - 8 for the system, and 0.85 of all is 103.4."""
    memory = compute_usable_bytes("spark", _SPARK_TOTAL, 112 * GIB)
    return Device(f"spark-{nth}", 0, "spark", memory, 273, 125, "NVIDIA GB10", _SPARK_TOTAL)


def thor(nth: int = 1) -> Device:
    memory = compute_usable_bytes("thor", _THOR_TOTAL, 115 * GIB)
    return Device(f"thor-{nth}", 0, "thor", memory, 273, 125, "NVIDIA Thor", _THOR_TOTAL)


def orin(nth: int = 1) -> Device:
    memory = compute_usable_bytes("orin", _ORIN_TOTAL, 57 * GIB)
    return Device(f"orin-{nth}", 0, "orin", memory, 204.8, 42.5, "Orin", _ORIN_TOTAL)


def pro6000(nth: int = 1, index: int = 0) -> Device:
    total = int(95.6 * GIB)
    memory = compute_usable_bytes("rtx", total, 95 * GIB)
    return Device(f"rtx-{nth}", index, "rtx", memory, 1792, 252, "RTX PRO 6000", total)


def rtx5090() -> Device:
    total = int(31.8 * GIB)
    return Device("pc", 0, "rtx", compute_usable_bytes("rtx", total, 31 * GIB), 1792, 105, "RTX 5090", total)


def cpu(nth: int = 1) -> Device:
    return Device(
        f"cpu-{nth}", 0, "cpu", compute_usable_bytes("cpu", 24 * GIB, 20 * GIB), 20, 0.5, "", 24 * GIB
    )


def over(link: HostLink | None) -> Callable[[str, str], HostLink | None]:
    return lambda _one, _other: link


def pipeline(*stages: tuple[int, tuple[Device, ...]], link: HostLink | None = ROCE) -> Layout:
    return Layout(tuple(Stage(devices, layers) for layers, devices in stages), link)


def workload(
    shape: Shape,
    load: Load | None = None,
    goal: Goal = "latency",
    timed: StageTimerFactory | None = None,
    context: int | None = None,
) -> Workload:
    return Workload(shape, choose_context(shape, context), load or Load(), goal, timed)


def predict(shape: Shape, layout: Layout, load: Load) -> Prediction:
    """Bytes over bandwidth, operations over speed, two all-reduces a layer, a hop a stage: nothing fitted."""
    pipelines = len(list_pipelines(layout))
    streams = load.concurrency / pipelines
    depth = len(layout.stages)
    seconds = roofline(shape, max(1, round(streams / depth)))
    wire = layout.link or HostLink(1_000_000, 1)
    times = [
        seconds(stage, is_last_stage=nth == depth - 1)
        + 2 * stage.layers * _reduce(shape, stage, wire, streams / depth)
        for nth, stage in enumerate(layout.stages)
    ]
    hops = (depth - 1) * (wire.latency_us * 1e-6 + 2 * shape.hidden * 8 / (wire.mbit * 1e6))
    cycle = max(sum(times) + hops, min(depth, max(1.0, streams)) * max(times))
    total = min(load.concurrency, pipelines * max(1.0, streams)) / cycle
    each = total / load.concurrency
    low, high = total * 0.7, total * 1.3
    return Prediction(cycle, total, each, low, high, "memory bandwidth", tuple(times), 1 / cycle)


def timed(shape: Shape) -> StageTimerFactory:
    """What it takes of a step on a stage, whatever the wire."""
    return lambda sequences, _link: roofline(shape, sequences)


def roofline(shape: Shape, sequences: int) -> StageTimer:
    """Weights are read once for all sequences, or their operations take longer; every expert is as likely."""
    part = shape.experts_per_token / shape.experts if shape.experts else 0.0
    met = shape.experts * (1 - (1 - part) ** sequences) - shape.experts_per_token
    layer = shape.active_layer_bytes + met * shape.expert_bytes
    head = shape.head_bytes or shape.embedding_bytes
    layer_operations = 2 * sequences * shape.active_parameters / shape.layers
    head_operations = 2 * sequences * shape.hidden * shape.vocabulary

    def seconds(stage: Stage, /, *, is_last_stage: bool) -> float:
        bandwidth = min(device.bandwidth_gb_s for device in stage.devices) * len(stage.devices) * 1e9
        speed = min(device.bf16_tflops for device in stage.devices) * len(stage.devices) * 1e12
        ends = max(head / bandwidth, head_operations / speed) if is_last_stage else 0.0
        return stage.layers * max(layer / bandwidth, layer_operations / speed) + ends

    return seconds


def _reduce(shape: Shape, stage: Stage, wire: HostLink, streams: float) -> float:
    """Of each stream's hidden state; within a host it costs a hundredth."""
    if len(stage.devices) == 1:
        return 0.0
    share = 1.0 if len({device.host for device in stage.devices}) > 1 else 0.01
    sent = 2 * max(1.0, streams) * shape.hidden * 8 / (wire.mbit * 1e6)
    return share * (2 * wire.latency_us * 1e-6 + sent)


def with_memory(device: Device, memory_bytes: int) -> Device:
    return device.replace(memory_bytes=memory_bytes)
