"""A server's flags as the arguments of the engine's class."""

import sys
from pathlib import Path

import pytest

from medley import config
from medley.command import Flag
from medley.engine import Serving, vllm
from medley.engine.flags import arguments, known, require_known, table, unknown, why
from medley.engine.launch import ENGINES
from medley.planner.plan import Plan
from medley.schema import EngineName
from tests.engine.plans import KINDS, PLANS, offered
from tests.problems import raises_problem


def of(engine: EngineName, *flags: tuple[str, str | None]) -> dict[str, object]:
    """Less the model."""
    found = table(arguments(engine, "/m", [Flag((name,), value, "why") for name, value in flags]))
    assert found.pop({"vllm": "model", "sglang": "model_path"}[engine]) == "/m"
    return found


@pytest.mark.parametrize(
    ("flag", "argument"),
    [
        pytest.param(("--tensor-parallel-size", "2"), {"tensor_parallel_size": 2}, id="a whole number"),
        pytest.param(("--gpu-memory-utilization", "0.40"), {"gpu_memory_utilization": 0.4}, id="a share"),
        pytest.param(("--enforce-eager", None), {"enforce_eager": True}, id="a flag alone"),
        pytest.param(
            ("--no-enable-prefix-caching", None), {"enable_prefix_caching": False}, id="its contrary"
        ),
        pytest.param(("--kv-cache-dtype", "fp8"), {"kv_cache_dtype": "fp8"}, id="a word"),
        pytest.param(
            ("--hf-overrides", '{"a": [1]}'), {"hf_overrides": {"a": [1]}}, id="a table written as JSON"
        ),
        pytest.param(("--revision", "1234567"), {"revision": "1234567"}, id="digits that are no number"),
        pytest.param(("--max-model-len", "auto"), {"max_model_len": -1}, id="the longest that fits"),
        pytest.param(("--max-model-len", "8192"), {"max_model_len": 8192}, id="a length"),
        pytest.param(("--port", "8000"), {}, id="where a server listens"),
        pytest.param(("--tool-call-parser", "hermes"), {}, id="how a server answers"),
    ],
)
def test_one(flag: tuple[str, str | None], argument: dict[str, object]) -> None:
    assert of("vllm", flag) == argument


def test_the_parts_of_one_table_come_together() -> None:
    parts = (("-cc.mode", "2"), ("--enforce-eager", None), ("-cc.backend", "eager"), ("-cc.a.b", "1"))
    assert of("vllm", *parts) == {
        "compilation_config": {"mode": 2, "backend": "eager", "a": {"b": 1}},
        "enforce_eager": True,
    }


def test_each_has_its_reason_as_python_writes_it() -> None:
    found = arguments("vllm", "/m", [Flag(("--dtype",), "float32", "as asked")])
    assert list(why(found)) == [("model='/m'", "the model"), ("dtype='float32'", "as asked")]


@pytest.mark.parametrize("engine", ENGINES)
def test_no_server_is_left_in_those_of_any_model(engine: EngineName) -> None:
    every = {name for plan in PLANS for kind in KINDS for name in offered(engine, plan, kind)}
    assert every >= {"trust_remote_code", "revision", "chat_template"}
    assert ("code_revision" in every) is (engine == "vllm")
    assert not [name for name in every if "host" in name or "port" in name or "parser" in name]


def test_the_model_of_a_plan_without_wishes() -> None:
    flags = ENGINES["sglang"].flags(Serving("/m", "m"), Plan(), config.hosts()["cuda"], None)
    assert table(arguments("sglang", "/m", flags)) == {"model_path": "/m", "sleep_on_idle": True}


ENGINE = f"""#!{sys.executable}
import argparse, pathlib, sys
pathlib.Path(__file__).with_name("asked").open("a").write("x")
parser = argparse.ArgumentParser()
for number in range({{count}}):
    parser.add_argument(f"--flag-{{{{number}}}}", f"-f{{{{number}}}}", help="as --other does")
parser.parse_args(["--help"])
"""


@pytest.fixture
def binary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    return engine(tmp_path / "env", 400)


def engine(folder: Path, count: int) -> Path:
    (folder / "bin").mkdir(parents=True)
    program = folder / "bin" / "vllm"
    program.write_text(ENGINE.format(count=count).replace("{{", "{").replace("}}", "}"))
    program.chmod(0o755)
    return folder / "bin"


def test_it_is_asked_once(binary: Path) -> None:
    for _ in range(3):
        require_known(vllm, binary, ("--flag-7", "1", "-f8"))
    assert (binary / "asked").read_text() == "x"


def test_it_is_not_asked_where_no_flag_is_given(binary: Path) -> None:
    require_known(vllm, binary, ())
    require_known(vllm, binary, ("--flag-7",), ask=False)
    assert not (binary / "asked").exists()


def test_a_flag_that_it_does_not_know_is_a_problem_with_the_nearest(binary: Path) -> None:
    with raises_problem("--falg-7", "--other") as caught:
        require_known(vllm, binary, ("--falg-7", "1", "--other"))
    assert "--falg-7: did you mean --flag-7?" in caught.value.fix


def test_another_version_is_asked_anew(binary: Path) -> None:
    require_known(vllm, binary, ("--flag-7",))
    (binary.parent / "lib" / "python3.12" / "site-packages" / "vllm-9.dist-info").mkdir(parents=True)
    require_known(vllm, binary, ("--flag-7",))
    assert (binary / "asked").read_text() == "xx"


def test_a_program_whose_help_says_little_is_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))
    require_known(vllm, engine(tmp_path / "small", 3), ("--anything",))


# Lines of `vllm serve --help=all` as vLLM 0.32.0 prints them.
HELP = """usage: vllm serve [model_tag] [options]

  Use `--help=all` to show all available flags at once.

options:
  --enable-log-requests, --no-enable-log-requests
                        Enable logging request information, dependent on --log-level:
  -h, --help            show this help message and exit

ModelConfig:
  --kv-cache-dtype {auto,bfloat16,fp8}
  --max-model-len MAX_MODEL_LEN
  --max-num-batched-tokens MAX_NUM_BATCHED_TOKENS
  --max-num-seqs MAX_NUM_SEQS
  --pipeline-parallel-size PIPELINE_PARALLEL_SIZE, -pp PIPELINE_PARALLEL_SIZE
  --tensor-parallel-size TENSOR_PARALLEL_SIZE, -tp TENSOR_PARALLEL_SIZE
  --compilation-config COMPILATION_CONFIG, -cc COMPILATION_CONFIG
"""
NAMES = known(HELP)


def test_names_are_all_that_the_help_lists_and_nothing_that_it_mentions() -> None:
    assert len(NAMES) == 14
    assert {"-h", "--help", "-tp", "--no-enable-log-requests", "--max-num-seqs"} <= set(NAMES)
    assert "--log-level" not in NAMES


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--max-model-len", "99"), id="as it is listed"),
        pytest.param(("--max_model_len=99",), id="with underscores and ="),
        pytest.param(("--max-model", "99"), id="the beginning of one name"),
        pytest.param(("-tp", "2", "-pp=2"), id="short"),
        pytest.param(("-cc.mode=2", "--compilation-config.backend", "eager"), id="keys of a table"),
        pytest.param(("-O3", "-O", "2"), id="levels of optimisation"),
        pytest.param(("--max-num-seqs", "-1"), id="a negative number is a value"),
        pytest.param(("positional",), id="no flag"),
    ],
)
def test_what_the_engine_takes(words: tuple[str, ...]) -> None:
    assert list(unknown(words, NAMES)) == []


@pytest.mark.parametrize(
    ("word", "advice"),
    [
        pytest.param("--kv-cache-dtpye", "did you mean --kv-cache-dtype?", id="two letters"),
        pytest.param("--tensor-paralel-size=2", "did you mean --tensor-parallel-size?", id="with a value"),
        pytest.param("--swap-space", "has no swap space any more", id="gone, as guides have it"),
        pytest.param("--swap_space=0", "has no swap space any more", id="gone, with an underscore"),
        pytest.param("--max-num", "--max-num-batched-tokens or --max-num-seqs", id="of two names"),
        pytest.param("--xyzzy", "remove it", id="nothing like it"),
        pytest.param("-z", "remove it", id="a short one"),
    ],
)
def test_what_it_would_refuse(word: str, advice: str) -> None:
    ((found, said),) = unknown((word,), NAMES)
    assert found == word
    assert advice in said
