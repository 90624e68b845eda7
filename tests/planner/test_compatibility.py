"""Which engine, kind of host, weight format and architecture go together."""

import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

from medley import config
from medley.cli.models import ModelsVerb
from medley.cli.plan import PlanVerb
from medley.cli.serve import ServeVerb
from medley.command import AnnotatedCommand
from medley.engine.launch import LaunchOrder
from medley.engine.server_spec import ServerSpec
from medley.engine.shared_flags import list_table_flags
from medley.environment.engine_source import EngineRequest, has_matching_nvcc
from medley.errors import Problem
from medley.host.kind import SiteHost
from medley.model.resolve import Weights
from medley.model.shape import compute_shape
from medley.planner import compatibility, list_hosts
from medley.planner.compatibility import find_refusal, list_engine_settings
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.plan import KvType, Plan
from medley.planner.site import Site
from medley.schema import EngineName
from medley.serving.alternatives import plan_order
from medley.serving.engine_sources import add_engine_sources
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED
from tests.planner.imagined import MODELS, launch_steps, shape, site
from tests.problems import assert_problem, raises_problem

KINDS = config.load_hosts()
FLASH = "qwen3.8-flash-next-nvfp4"
SUPER = "nemotron-3-super-120b-a12b-nvfp4"
CUTLASS = {"--moe-runner-backend": "flashinfer_cutlass"}
MARLIN = {"--moe-runner-backend": "marlin"}
OFFLOADED, RESIDENT = {"--ple-offload-embedding": None}, {"--no-ple-offload-embedding": None}
FLASH_FLAGS = CUTLASS | {"--fp4-gemm-backend": "flashinfer_cutlass", "--page-size": "64"}
OF_SEVERAL = {
    *("--no-enable-flashinfer-autotune", "--dist-timeout"),
    *("--distributed-timeout-seconds", "--cpu-distributed-timeout-seconds"),
}


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))


def settings(engine: EngineName, model: str, kinds: str, *user: str) -> dict[str, str | None]:
    """Return the flags that these kinds of host need for this model, without those of any several hosts."""
    on = site(kinds, engine=engine)
    needed, _ = list_engine_settings(on, tuple(on.hosts), engine, shape(model), user)
    flags = {flag.names[0]: flag.value for flag in list_table_flags(engine, Plan(arguments=needed), None)}
    return {name: value for name, value in flags.items() if name not in OF_SEVERAL}


@pytest.mark.parametrize(
    ("engine", "model", "kinds", "expected"),
    [
        pytest.param("vllm", "gpt-oss-120b", "thor", {"--moe-backend": "marlin"}, id="MXFP4 on a Thor"),
        pytest.param("vllm", "gpt-oss-120b", "spark,thor", {"--moe-backend": "marlin"}, id="any rank on one"),
        pytest.param("vllm", "gpt-oss-120b", "spark", {}, id="MXFP4 on a Spark"),
        pytest.param("vllm", "qwen3-32b", "thor", {}, id="no experts"),
        pytest.param("sglang", SUPER, "thor", MARLIN, id="NVFP4 on a Thor"),
        pytest.param("sglang", SUPER, "spark,thor", MARLIN, id="what runs on a Thor runs on a Spark"),
        pytest.param("sglang", SUPER, "spark", CUTLASS, id="NVFP4 on a Spark"),
        pytest.param("sglang", "minimax-m3-nvfp4", "spark,rtx", CUTLASS, id="NVFP4 on Spark and RTX"),
        pytest.param("sglang", "gpt-oss-120b", "spark", {}, id="MXFP4, SGLang, Spark"),
        pytest.param("sglang", FLASH, "spark:2", FLASH_FLAGS | RESIDENT, id="n-grams in unified memory"),
        pytest.param("sglang", FLASH, "rtx", FLASH_FLAGS | OFFLOADED, id="n-grams beside a GPU"),
        pytest.param("sglang", FLASH, "spark,rtx", FLASH_FLAGS, id="unlike hosts keep SGLang's default"),
        pytest.param("sglang", FLASH, "thor:2", MARLIN | RESIDENT, id="n-grams, Thor"),
        pytest.param(
            "sglang",
            "nemotron-3-nano-30b-a3b",
            "thor",
            {"--moe-runner-backend": "triton"},
            id="Nemotron in 16 bits on a Thor",
        ),
        pytest.param("sglang", "nemotron-3-nano-30b-a3b", "spark", {}, id="Nemotron in 16 bits on a Spark"),
        pytest.param("sglang", "qwen3-30b-a3b-thinking-2507", "thor", {}, id="other experts in 16 bits"),
    ],
)
def test_a_kind_of_host_needs_flags(
    engine: EngineName, model: str, kinds: str, expected: dict[str, str]
) -> None:
    assert settings(engine, model, kinds) == expected


def test_a_generic_gpu_needs_them_by_its_capability() -> None:
    """hosts/cuda.toml is of every other GPU, and only those of 12.x have these kernels."""
    rules = [each for each in KINDS["cuda"].arguments if "--moe-runner-backend" in each.flags]
    assert [each.gpus for each in rules] == [("12",)]


def test_rules_follow_the_architecture_of_a_repository_without_a_table() -> None:
    known = checkpoint(PUBLISHED["qwen3-8b"].config)
    found = compute_shape(known.replace(config={**known.config, "model_type": "qwen4_exp"}))
    on = site("thor")
    assert "cooperative_topk" in (find_refusal(on, on.hosts, "vllm", found) or "")


@pytest.mark.parametrize(
    ("typed", "cause", "fix"),
    [
        pytest.param(
            "gpt-oss-120b --hosts thor:2 --engine sglang",
            ("thor-1, thor-2: SGLang", "MXFP4 Marlin requires SM90+."),
            "medley VERB gpt-oss-120b --hosts thor:2 --engine vllm",
            id="SGLang and MXFP4 on a Thor",
        ),
        pytest.param(
            "qwen3.8-flash-next-nvfp4 --hosts thor:2",
            ("thor-1, thor-2: vLLM", "cooperative_topk", "vLLM issue 56083"),
            "medley VERB qwen3.8-flash-next-nvfp4 --hosts thor:2 --engine sglang",
            id="Flash-Next on Thors",
        ),
        pytest.param(
            "qwen3.8-flash-next-fp8 --hosts thor:2",
            ("thor-1, thor-2: vLLM", "cooperative_topk"),
            "medley models",
            id="Flash-Next in FP8 on Thors",
        ),
        pytest.param(
            "glm-5.3-nvfp4 --hosts thor:4 --engine sglang",
            ("thor-1, thor-2, thor-3, thor-4: SGLang", "sparse attention", "10.x"),
            "medley models",
            id="SGLang and DeepSeek's sparse attention on Thors",
        ),
        pytest.param(
            "qwen3-8b --hosts orin-r39:1 --engine sglang",
            ("orin-r39-1", "neither an engine environment nor an image of SGLang"),
            "medley VERB qwen3-8b --hosts orin-r39:1 --engine vllm",
            id="SGLang on an Orin",
        ),
        pytest.param(
            "qwen3-8b --hosts orin:2 --engine sglang",
            ("orin-1", "neither an engine environment nor an image of SGLang"),
            "medley VERB qwen3-8b --hosts orin:2 --engine vllm",
            id="SGLang on an Orin of JetPack 6",
        ),
    ],
)
@pytest.mark.parametrize("verb", [PlanVerb, ServeVerb])
def test_what_does_not_go_together_is_refused(
    verb: type[PlanVerb | ServeVerb], typed: str, cause: tuple[str, ...], fix: str
) -> None:
    name, dry = ("plan", ()) if verb is PlanVerb else ("serve", ("--dry-run",))
    with pytest.raises(Problem) as caught:
        verb.run([f"medley {name}", *typed.split(), *dry], exit=False)
    assert_problem(caught.value, cause=cause)
    assert fix.replace("VERB", name) in caught.value.fix.replace(" --dry-run", "")


def test_the_list_of_models_agrees(capsys: pytest.CaptureFixture[str]) -> None:
    ModelsVerb.run(["medley models", "--hosts", "thor:2", "--engine", "sglang", "--json"], exit=False)
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert found["gpt-oss-20b"]["layout"] is None
    assert "MXFP4 Marlin" in found["gpt-oss-20b"]["lacks"]
    ModelsVerb.run(["medley models", "--hosts", "orin", "--json"], exit=False)
    found = {each["name"]: each for each in json.loads(capsys.readouterr().out)}
    assert "is the first that does" in found["qwen3.8-27b-nvfp4"]["lacks"], "vLLM 0.12 of the image"


def test_more_hosts_are_advised_only_where_the_engine_runs() -> None:
    with pytest.raises(Problem) as caught:
        PlanVerb.run(["medley plan", "qwen2.5-72b-instruct", "--hosts", "orin-r39", "--engine", "sglang"])
    assert "--hosts orin" not in caught.value.fix.replace("--hosts orin-r39 --engine vllm", "")


def test_other_hosts_of_a_group_take_the_model() -> None:
    on = site("spark,thor", engine="sglang")
    found = place_model(shape("gpt-oss-120b"), on, PlacementOptions(engine="sglang"))
    assert list_hosts(found.layout) == ("spark-1",)
    assert any("MXFP4 Marlin" in each.reason for each in found.rejected)


def test_an_image_of_the_users_own_may_have_the_fix() -> None:
    request = EngineRequest(image="ghcr.io/nvidia-ai-iot/vllm:qwen3.8-next-jetson-thor")
    on = add_engine_sources(site("thor:2"), PlacementOptions(), request, MODELS[FLASH])
    assert launch_steps(FLASH, on)
    same = add_engine_sources(site("thor:2"), PlacementOptions(), EngineRequest(image="default"))
    assert find_refusal(same, same.hosts, "vllm", shape(FLASH))


@pytest.mark.parametrize(("version", "refused"), [("0.33.0", True), ("0.34.0", False), ("1.0", False)])
def test_a_later_engine_has_the_fix(version: str, refused: bool) -> None:  # noqa: FBT001 - a case
    on = site("thor")
    facts, kind = on.hosts["thor-1"]
    (rule,) = (each for each in kind.table.incompatible if each.engine == "vllm")
    table = kind.table.replace(incompatible=(rule.replace(before="0.34.0"),))
    origin = on.engine_sources["thor-1"].replace(versions={"vllm": version})
    newer = on.replace(
        hosts={"thor-1": SiteHost(facts, kind.replace(table=table))}, engine_sources={"thor-1": origin}
    )
    assert bool(find_refusal(newer, newer.hosts, "vllm", shape(FLASH))) is refused


def step(model: str, kinds: str, engine: EngineName = "vllm", *user: str) -> AnnotatedCommand:
    """Return the command of the first rank."""
    wanted = PlacementOptions(engine=engine)
    return launch_steps(model, site(kinds, engine=engine), wanted, *user)[-1].started_process


@pytest.mark.parametrize(
    ("model", "kinds", "logits", "allocator"),
    [
        pytest.param("glm-5.3-flash-nvfp4", "spark:2", "64", "expandable_segments:True", id="GLM"),
        pytest.param(FLASH, "spark:2", "64", "expandable_segments:True", id="Flash-Next"),
        pytest.param("deepseek-v4-flash", "spark:2", "64", None, id="DeepSeek V4: its weights did not load"),
        pytest.param("qwen3-32b", "spark:2", None, None, id="no sparse attention"),
        pytest.param(FLASH, "rtx", None, None, id="a GPU with its own memory"),
    ],
)
def test_long_prompts_of_sparse_attention_leave_unified_memory(
    model: str, kinds: str, logits: str | None, allocator: str | None
) -> None:
    env = step(model, kinds).command.env
    assert env.get("VLLM_SPARSE_INDEXER_MAX_LOGITS_MB") == logits
    assert env.get("PYTORCH_CUDA_ALLOC_CONF") == allocator


def test_vllm_starts_with_a_kv_connector() -> None:
    made = step("glm-5.3-flash-nvfp4", "spark:2", "vllm", "--kv-transfer-config", "{}").command
    assert "PYTORCH_CUDA_ALLOC_CONF" not in made.env
    assert made.env["VLLM_SPARSE_INDEXER_MAX_LOGITS_MB"] == "64"


@pytest.mark.parametrize(
    ("kinds", "tuned"),
    [
        pytest.param("spark:2", False, id="two Sparks"),
        pytest.param("spark,rtx", False, id="a Spark in the group"),
        pytest.param("spark", True, id="one host"),
        pytest.param("rtx:2", False, id="two workstations"),
        pytest.param("thor:2", False, id="two Thors"),
    ],
)
def test_flashinfer_tunes_on_one_host_and_ranks_of_several_wait_long(kinds: str, *, tuned: bool) -> None:
    model = "qwen2.5-72b-instruct" if kinds != "spark" else "qwen3-8b"
    wanted = PlacementOptions(host_count=len(site(kinds).hosts))
    argv = launch_steps(model, site(kinds), wanted)[-1].started_process.command.argv
    assert ("--no-enable-flashinfer-autotune" not in argv) is tuned
    assert ("--distributed-timeout-seconds" not in argv) is tuned
    assert ("--cpu-distributed-timeout-seconds" not in argv) is tuned


def test_ranks_of_sglang_wait_long_too() -> None:
    wanted = PlacementOptions(engine="sglang", host_count=2)
    assert (
        "--dist-timeout" in launch_steps("qwen3-8b", site("spark:2"), wanted)[-1].started_process.command.argv
    )


@pytest.mark.parametrize("flag", ["--enable-flashinfer-autotune", "--kernel-config={}"])
def test_a_user_may_let_flashinfer_tune(flag: str) -> None:
    argv = step("gpt-oss-120b", "spark:2", "vllm", flag).command.argv
    assert "--no-enable-flashinfer-autotune" not in argv


@pytest.mark.parametrize(
    ("kinds", "engine", "in_bytes"),
    [
        pytest.param("spark", "vllm", True, id="Spark"),
        pytest.param("thor", "vllm", True, id="Thor"),
        pytest.param("orin-r39", "vllm", True, id="Orin"),
        pytest.param("rtx", "vllm", False, id="a GPU with its own memory"),
        pytest.param("spark", "sglang", False, id="SGLang measures free memory"),
    ],
)
def test_the_page_cache_is_not_taken_for_use(
    kinds: str,
    engine: EngineName,
    in_bytes: bool,  # noqa: FBT001 - a case
) -> None:
    """vLLM measures the host's memory, where a first load leaves the weights in the page cache."""
    made = step("qwen3-8b", kinds, engine).command.argv
    assert ("--kv-cache-memory-bytes" in made or "--max-total-tokens" in made) is in_bytes


def test_a_share_of_the_users_own_decides_the_cache() -> None:
    made = step("qwen3-8b", "spark", "vllm", "--gpu-memory-utilization", "0.7").command.argv
    assert "--kv-cache-memory-bytes" not in made
    assert made.count("--gpu-memory-utilization") == 1


def bare(kinds: str, *, image: bool = False) -> Site:
    """Return hosts without a CUDA toolkit; the environment has no compiler either, or the image has none."""
    asked = EngineRequest(image="default") if image else EngineRequest()
    on = add_engine_sources(site(kinds), PlacementOptions(), asked)
    hosts = {}
    for name, (facts, kind) in on.hosts.items():
        programs = {each: path for each, path in facts.software.programs.items() if each != "nvcc"}
        software = facts.software.replace(programs=programs, cuda=None)
        container = kind.table.container.replace(lacks=("ray", "nvcc"))
        table = kind.table.replace(container=container)
        hosts[name] = SiteHost(facts.replace(software=software), kind.replace(table=table))
    return on.replace(hosts=hosts)


@pytest.fixture
def lock_without_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock of the user's own, whose nvcc is newer than its headers, as in those of November 2026."""
    text = config.find_table_files("locks", ".txt")["vllm-cuda"].read_text(encoding="utf-8")
    (tmp_path / "config" / "locks").mkdir(parents=True)
    own = re.sub(r"^nvidia-cuda-nvcc==\S+", "nvidia-cuda-nvcc==13.5.37", text, flags=re.MULTILINE)
    (tmp_path / "config" / "locks" / "vllm-cuda.txt").write_text(own, encoding="utf-8")
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "config"))


@pytest.mark.usefixtures("lock_without_nvcc")
@pytest.mark.parametrize("image", [False, True], ids=["environment", "image"])
@pytest.mark.parametrize(
    ("kinds", "model", "cache", "deep_gemm", "attention"),
    [
        pytest.param("rtx", "qwen3-30b-a3b-thinking-2507-fp8", "auto", "0", None, id="FP8 on 12.0"),
        pytest.param("spark", "qwen3-4b-instruct-2507-fp8", "auto", "0", None, id="FP8 on 12.1"),
        pytest.param("thor", "qwen3-4b-instruct-2507-fp8", "auto", None, None, id="CUTLASS on 11.0"),
        pytest.param("thor", "qwen3-8b", "fp8", None, "TRITON_ATTN", id="a cache in FP8"),
        pytest.param("rtx", "qwen3-8b", "auto", None, None, id="16 bits"),
    ],
)
def test_a_plan_avoids_what_has_to_be_compiled(  # noqa: PLR0917 - a case
    kinds: str,
    model: str,
    cache: KvType,
    deep_gemm: str | None,
    attention: str | None,
    image: bool,  # noqa: FBT001
) -> None:
    wanted = PlacementOptions(kv_type=cache)
    made = launch_steps(model, bare(kinds, image=image), wanted)[-1].started_process.command
    assert made.env.get("VLLM_USE_DEEP_GEMM") == deep_gemm
    assert dict(pairwise(made.argv)).get("--attention-backend") == attention
    for known in (site(kinds), bare(kinds).replace(has_nix_toolkit=True)):
        if known.has_nix_toolkit or any(facts.software.cuda for facts, _ in known.hosts.values()):
            made = launch_steps(model, known, wanted)[-1].started_process.command
            assert "VLLM_USE_DEEP_GEMM" not in made.env
            assert "--attention-backend" not in made.argv


@pytest.mark.usefixtures("lock_without_nvcc")
@pytest.mark.parametrize("image", [False, True], ids=["environment", "image"])
def test_sparse_attention_that_cannot_be_compiled_is_refused(image: bool) -> None:  # noqa: FBT001 - a case
    model = "glm-5.3-flash-nvfp4"
    with raises_problem("spark-1, spark-2", cause="FLASHINFER_MLA_SPARSE_SM120"):
        place_model(shape(model), bare("spark:2", image=image), PlacementOptions())
    weights = Weights(model, str(MODELS[model].repository), MODELS[model])
    order = LaunchOrder(weights, ServerSpec(weights.target, model))
    with raises_problem("spark-1, spark-2") as caught:
        plan_order(order, shape(model), bare("spark:2", image=image))
    assert ("sudo apt-get install -y cuda-toolkit-13-0" in caught.value.fix) is not image, "of the host"
    assert place_model(shape(model), bare("spark:2").replace(has_nix_toolkit=True), PlacementOptions())


@pytest.mark.usefixtures("lock_without_nvcc")
def test_an_nvcc_that_is_too_old_is_none() -> None:
    """FlashInfer compiles for 12.x with CUDA 12.9, and else says that it requires sm75."""
    for cuda, sampler in (("12.8.1", "0"), ("12.9.0", None), ("13.0.2", None)):
        on = bare("rtx")
        facts, kind = on.hosts["rtx-1"]
        software = facts.software.replace(cuda=cuda)
        found = on.replace(hosts={"rtx-1": SiteHost(facts.replace(software=software), kind)})
        made = launch_steps("qwen3-8b", found)[-1].started_process.command
        assert made.env.get("VLLM_USE_FLASHINFER_SAMPLER") == sampler


def test_a_lock_whose_nvcc_fits_its_headers_compiles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    (tmp_path / "locks").mkdir()
    for name, nvcc in (("fits", "13.0.88"), ("newer", "13.5.37")):
        pins = f"nvidia-cuda-nvcc=={nvcc} \\\nnvidia-cuda-runtime==13.0.96 \\\n"
        (tmp_path / "locks" / f"{name}.txt").write_text(pins)
    assert has_matching_nvcc("fits")
    assert not has_matching_nvcc("newer")
    assert not has_matching_nvcc("absent")


@pytest.mark.parametrize(
    ("engine", "variable"),
    [("vllm", "VLLM_ALLOW_LONG_MAX_MODEL_LEN"), ("sglang", "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN")],
)
def test_a_context_that_the_makers_name_is_allowed(engine: EngineName, variable: str) -> None:
    """NVIDIA's guide for two Sparks has 1,000,000 tokens, and config.json 262,144."""
    for context, value in ((1_000_000, "1"), (262_144, None)):
        wanted = PlacementOptions(engine=engine, context=context)
        made = launch_steps(SUPER, site("spark:2", engine=engine), wanted)[-1].started_process.command
        assert made.env.get(variable) == value
        assert str(context) in made.argv
    with raises_problem("--context 1100000", cause="1,048,576"):
        place_model(shape(SUPER), site("spark:2"), PlacementOptions(context=1_100_000))


def test_every_rule_names_its_source() -> None:
    for name, host in KINDS.items():
        for rule in (*host.arguments, *host.incompatible):
            assert rule.source.strip(), name


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(("--kv-cache-dtype", "int8_per_token_head"), id="two words"),
        pytest.param(("--max-num-seqs=2", "--kv_cache_dtype=nvfp4"), id="with = and underscores"),
    ],
)
def test_a_flag_with_which_answers_are_wrong_is_refused(flags: tuple[str, ...]) -> None:
    """vLLM 0.32.0 on a CPU takes a KV cache in INT8, and answers nonsense."""
    on = site("cpu")
    with raises_problem("vLLM 0.32.0", "cpu-1", cause="cpu_attn.py"):
        compatibility.require_flag_values(on, on.hosts, "vllm", flags)
    compatibility.require_flag_values(on, on.hosts, "vllm", ("--kv-cache-dtype=fp8", "--max-num-seqs=2"))
    compatibility.require_flag_values(on, on.hosts, "sglang", flags)
    compatibility.require_flag_values(site("spark"), ["spark-1"], "vllm", flags)
    of_user = on.replace(engine_sources={}, has_user_engine=True)
    compatibility.require_flag_values(of_user, on.hosts, "vllm", flags)
