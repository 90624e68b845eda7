"""How CPUs compute: float32 where it fits, not compiled, in small batches where all of one is a warm-up."""

import pytest

from medley import config
from medley.engine import sglang, vllm
from medley.engine.server_spec import ServerSpec
from medley.host.facts import GIB
from medley.host.kind import SiteHost
from medley.planner.candidates import ForcedSizes
from medley.planner.cpu import convert_to_float32, read_dtype
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.plan import EngineOptions, Launcher, Plan, plan_engine, plan_without_shape
from medley.planner.remedies import NoLayout
from medley.planner.site import Site
from medley.planner.unplanned import place_without_shape
from medley.schema import EngineName
from tests.planner.imagined import MODELS, shape, site
from tests.problems import raises_problem

COMPUTE = config.load_hosts()["cpu"].compute
SMALL, LARGE = "smollm2", "qwen3-8b"


def cpus(kinds: str = "cpu", *, gib: int = 64, flags: tuple[str, ...] = ("avx2",)) -> Site:
    """Return hosts with so much memory available, and processors with these flags."""
    on = site(kinds)
    hosts = {
        name: SiteHost(
            facts.replace(
                memory=facts.memory.replace(available_bytes=gib * GIB),
                cpu=facts.cpu.replace(flags=flags),
            ),
            kind,
        )
        for name, (facts, kind) in on.hosts.items()
    }
    return on.replace(hosts=hosts)


def planned(
    model: str,
    on: Site,
    *flags: str,
    engine: EngineName = "vllm",
    sizes: ForcedSizes | None = None,
    launcher: Launcher = "solo",
) -> Plan:
    wanted = PlacementOptions(engine=engine, dtype=read_dtype(flags), sizes=sizes or ForcedSizes())
    choice = place_model(shape(model), on, wanted)
    return plan_engine(choice, on.facts, MODELS[model], launcher=launcher, engine=engine, flags=flags)


@pytest.mark.parametrize(
    ("model", "flags", "own", "dtype"),
    [
        pytest.param(SMALL, ("avx2",), (), "float32", id="without bfloat16 instructions"),
        pytest.param(LARGE, ("avx2",), (), "float32", id="a large model without them"),
        pytest.param(SMALL, ("avx512_bf16",), (), "float32", id="with them, a small model all the same"),
        pytest.param(LARGE, ("avx512_bf16",), (), None, id="with them, a large model"),
        pytest.param(LARGE, ("amx_bf16",), (), None, id="AMX"),
        pytest.param(LARGE, ("bf16",), (), None, id="Arm"),
        pytest.param(SMALL, ("avx2",), ("--dtype", "bfloat16"), None, id="bfloat16, as asked"),
        pytest.param(SMALL, ("avx2",), ("--dtype=auto",), None, id="the engine's choice, as asked"),
        pytest.param(LARGE, ("bf16",), ("--dtype=float32",), "float32", id="float32, as asked"),
        pytest.param("gpt-oss-20b", ("avx2",), (), None, id="quantized weights"),
    ],
)
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_cpu_computes_in_float32(
    model: str, flags: tuple[str, ...], own: tuple[str, ...], dtype: str | None, engine: EngineName
) -> None:
    found = planned(model, cpus(flags=flags), *own, engine=engine)
    assert found.dtype == dtype
    speaks = {"vllm": vllm, "sglang": sglang}[engine]
    words = [
        word
        for flag in speaks.list_flags(ServerSpec("m", "m"), found, config.load_hosts()["cpu"], None)
        for word in flag.build_argv()
    ]
    assert ("--dtype" in words) is (dtype is not None)


def test_memory_follows_the_numbers() -> None:
    on = cpus()
    wide, narrow = (
        place_model(shape(SMALL), on, PlacementOptions(dtype=dtype)).fit.ranks[0]
        for dtype in (None, "bfloat16")
    )
    assert wide.weights_bytes == 2 * narrow.weights_bytes == 538_060_032
    assert wide.kv_bytes == 2 * narrow.kv_bytes == 8192 * 30 * 2 * 3 * 64 * 4
    assert wide.overhead_bytes > narrow.overhead_bytes, "activations"


def test_an_fp8_cache_stays_as_small() -> None:
    on = cpus()
    wide, narrow = (
        place_model(shape(SMALL), on, PlacementOptions(kv_type="fp8", dtype=dtype)).fit.ranks[0]
        for dtype in (None, "bfloat16")
    )
    assert wide.kv_bytes == narrow.kv_bytes == 8192 * 30 * 2 * 3 * 64
    assert planned(SMALL, on).kv_type == "auto"


def test_sglang_has_no_fp8_cache_on_a_cpu() -> None:
    with raises_problem("SGLang cannot run this model", cause="AMX"):
        place_model(
            shape(SMALL),
            site("cpu", engine="sglang"),
            PlacementOptions(kv_type="fp8", engine="sglang"),
        )
    assert place_model(shape(SMALL), site("cpu", engine="sglang"), PlacementOptions(engine="sglang"))


def test_files_in_32_bits_are_not_doubled() -> None:
    once = convert_to_float32(shape(SMALL))
    assert convert_to_float32(once.replace(kv_bits=16)).weights_bytes == once.weights_bytes


def test_what_float32_costs_is_said_with_numbers() -> None:
    assert COMPUTE
    why = planned(SMALL, cpus()).why
    (line,) = (each for each in why if each.startswith("float32"))
    assert "0.5 GiB of weights, 0.3 in bfloat16" in line
    assert "cpu-1 has no avx512_bf16, amx_bf16 or bf16" in line
    assert COMPUTE.costs.bfloat16 in line
    assert "-- --dtype bfloat16" in line
    (line,) = (each for each in planned(SMALL, cpus(flags=("bf16",))).why if each.startswith("float32"))
    assert COMPUTE.costs.float32 in line
    (line,) = (each for each in planned(SMALL, cpus(), "--dtype", "bfloat16").why if "bfloat16:" in each)
    assert COMPUTE.costs.bfloat16 in line


def test_a_model_that_is_too_large_in_float32_takes_bfloat16() -> None:
    """16.4 GB of weights in 16 bits."""
    found = planned(LARGE, cpus(gib=26))
    assert found.dtype is None
    (line,) = (each for each in found.why if each.startswith("bfloat16"))
    assert "30.5 GiB of weights, 15.3 in bfloat16" in line
    assert "GiB short of memory" in line
    with pytest.raises(NoLayout) as problem:
        planned(LARGE, cpus(gib=26), "--dtype", "float32")
    assert "weights 30.5" in problem.value.cause
    with pytest.raises(NoLayout):
        planned(LARGE, cpus(gib=12))


def test_gpus_compute_as_the_model_says() -> None:
    found = planned(SMALL, site("spark"))
    assert (found.dtype, found.is_eager, found.batch_tokens) == (None, False, 4096)
    assert not any("float32" in line for line in found.why)
    wide = planned(SMALL, site("spark"), "--dtype", "float32")
    assert wide.dtype == "float32"


@pytest.mark.parametrize(
    ("flags", "eager", "tokens"),
    [
        pytest.param((), True, 4096, id="not compiled"),
        pytest.param(("--no-enforce-eager",), False, 512, id="compiled, as asked"),
        pytest.param(("-O3",), False, 512, id="by its level"),
        pytest.param(("-cc.mode=2",), False, 512, id="by a part of its table"),
        pytest.param(("--max-logprobs", "3"), True, 4096, id="another flag"),
    ],
)
def test_a_cpu_compiles_only_what_the_user_asks(flags: tuple[str, ...], eager: bool, tokens: int) -> None:  # noqa: FBT001
    assert COMPUTE
    found = planned(SMALL, cpus(), *flags)
    assert (found.is_eager, found.batch_tokens) == (eager, tokens)
    assert any(COMPUTE.costs.compiled in line for line in found.why)
    assert any(COMPUTE.costs.warmup in line for line in found.why) is not eager


@pytest.mark.parametrize("flags", [(), ("--no-enforce-eager",)])
def test_a_cpu_without_a_compiler_compiles_nothing(flags: tuple[str, ...]) -> None:
    on = cpus()
    facts, kind = on.hosts["cpu-1"]
    bare = facts.replace(software=facts.software.replace(programs={}))
    found = planned(SMALL, on.replace(hosts={"cpu-1": SiteHost(bare, kind)}), *flags)
    assert found.is_eager
    assert "not compiled: cpu-1 has no C++ compiler" in found.why


def test_stages_are_warmed_up_with_a_small_batch() -> None:
    """An eager pipeline of vLLM 0.32.0 dies at its first request; a traced one has a warm-up."""
    found = planned(SMALL, cpus("cpu:2"), sizes=ForcedSizes(stages=2), launcher="ray")
    assert (found.is_eager, found.batch_tokens) == (True, 512)
    words = [
        word
        for flag in vllm.list_flags(ServerSpec("m", "m"), found, config.load_hosts()["cpu"], None)
        for word in flag.build_argv()
    ]
    assert "--enforce-eager" not in words
    assert words[words.index("-cc.backend") :][:2] == ["-cc.backend", "eager"]
    assert words[words.index("--max-num-batched-tokens") :][:2] == ["--max-num-batched-tokens", "512"]


def test_a_batch_has_a_token_for_each_sequence() -> None:
    on = cpus("cpu:2", gib=300)
    wanted = PlacementOptions(sizes=ForcedSizes(stages=2), concurrency=800, context=64)
    found = plan_engine(place_model(shape(SMALL), on, wanted), on.facts, MODELS[SMALL], launcher="ray")
    assert (found.sequences, found.batch_tokens) == (800, 800)


def test_sglang_has_no_such_code() -> None:
    on = cpus("cpu:2")
    found = planned(LARGE, on, sizes=ForcedSizes(stages=2), engine="sglang")
    assert found.batch_tokens == 4096
    assert not any("compiled" in line for line in found.why)


def test_a_model_of_unknown_shape_is_not_compiled_either() -> None:
    on = cpus()
    layout = place_without_shape(on, PlacementOptions())
    assert plan_without_shape(layout, on.facts).is_eager
    compiled = plan_without_shape(layout, on.facts, options=EngineOptions(flags=("--no-enforce-eager",)))
    assert (compiled.is_eager, compiled.batch_tokens) == (False, 512)


def test_the_shipped_model_has_no_setting_of_its_own() -> None:
    assert not MODELS[SMALL].eager
    assert not MODELS[SMALL].args
