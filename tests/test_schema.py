"""A recipe and a table set only what is known to be harmless."""

import json
import re
import tomllib
from pathlib import Path

import pytest

from medley import config, host_schema
from medley.engine.accepted_flags import PARSERS_FOLDER
from medley.engine.launch import ENGINES
from medley.host_schema import ENGINE_TABLES
from medley.schema import TITLES, Model, find_flag_refusal, find_variable_refusal, read_harmless_settings


@pytest.mark.parametrize(
    "args",
    [
        ("--trust-remote-code",),
        ("--trust_remote_code",),
        ("--worker-cls", "evil.Worker"),
        ("--middleware=evil.run",),
        ("--compilation-config.backend", "evil.run"),
        ("-cc.backend=evil.run",),
        ("--structured-outputs-config", '{"reasoning_parser_plugin": "evil.py"}'),
        ("--hf-overrides", '{"a": [{"auto_map": {"AutoConfig": "evil.C"}}]}'),
        ("--speculative-config", '{"model": "./draft"}'),
        ("--block-size", "128", "--tool-server", "evil:80"),
        ("--chat-template", "x.jinja"),
        ("--model-loader-extra-config", '{"pattern": "x/../../../y.safetensors"}'),
        ("--model-loader-extra-config", '{"pattern": "y.safetensors"}'),
    ],
)
def test_a_table_loads_no_code_by_a_flag(args: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="a table cannot set it: type it in the command"):
        Model(title="x", repository="a/b", args={"vllm": args})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("NCCL_TUNER_PLUGIN", "evil"),
        ("NCCL_CONF_FILE", "x"),
        ("FLASHINFER_NVCC", "x.sh"),
        ("CUDA_INJECTION64_PATH", "x"),
        ("VLLM_PLUGINS", "evil"),
        ("TORCH_LOGS", "./x.so"),
        ("TORCH_LOGS", "+dynamo,antigravity.x"),
    ],
)
def test_a_table_loads_no_code_by_a_variable(name: str, value: str) -> None:
    with pytest.raises(ValueError, match="a table cannot set it"):
        Model(title="x", repository="a/b", env={"vllm": {name: value}})


@pytest.mark.parametrize("path", ["a/b/c", "a b/c/d", "a//b"])
def test_a_path_below_the_current_folder_is_a_file(path: str) -> None:
    assert find_flag_refusal("sglang", "--chat-template", [path]) == f"{path} is a file or a repository"


def test_a_table_sets_what_is_harmless() -> None:
    args = ("--block-size", "128", "--speculative-config", '{"method": "mtp", "model": "org/draft"}', "-O3")
    assert Model(title="x", repository="a/b", args={"vllm": args}, env={"vllm": {"NCCL_DEBUG": "WARN"}})


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_the_list_names_flags_and_variables_that_a_lock_s_release_has(engine: str) -> None:
    """What is removed upstream goes here too, so that the list stays one that somebody has read."""
    flags, variables = set(), set()
    for name, path in config.find_table_files(PARSERS_FOLDER, ".json").items():
        if name.startswith(f"{engine}-"):
            found = json.loads(path.read_text())
            flags |= {each for flag in found["flags"] for each in flag["names"]}
            variables |= set(found["variables"])
    assert read_harmless_settings()["flags"][engine] - flags <= {"--dp"}, "sglang reads --dp as --dp-size"
    of = f"{engine.upper()}_"
    named = {
        f"{of}{each}" for each in read_harmless_settings()["variables"][of[:-1]] if not each.endswith("*")
    }
    assert named - variables == set()


def test_negations_and_short_names_count_as_the_flag() -> None:
    for name in (
        "--no-enable-prefix-caching",
        "--disable-log-requests",
        "-O",
        "-O2",
        "-O.mode",
        "-cc.mode",
        "-tp",
    ):
        assert find_flag_refusal("vllm", name, ("1",)) is None, name
    assert find_flag_refusal("vllm", "--max-num-seq", ("1",)), (
        "a beginning may be another flag in a later release"
    )
    assert find_flag_refusal("sglang", "--worker-cls", ())


def test_more_tokenizer_processes_of_a_recipe_are_refused() -> None:
    assert find_flag_refusal("sglang", "--tokenizer-worker-num", ("1",)) is None
    for name, *values in (("--tokenizer-worker-num", "2"), ("--tokenizer_worker_num=4",)):
        assert "open the server" in (find_flag_refusal("sglang", name, values) or "")


def test_a_value_that_is_a_path_is_refused() -> None:
    for value in ("/x", "~/x", "a/b", "x.so", "x.so.1", "http://x", "libx.so:liby"):
        assert find_variable_refusal("VLLM_LOGGING_PREFIX", value), value
    for value in ("1", "expandable_segments:True", "a,b", "0.5", ""):
        assert find_variable_refusal("VLLM_LOGGING_PREFIX", value) is None, value


def test_every_engine_has_its_table() -> None:
    tables = tomllib.loads((Path(host_schema.__file__).with_name("engines.toml")).read_text(encoding="utf-8"))
    assert tables.keys() == ENGINE_TABLES.keys() == ENGINES.keys() == {*TITLES}
    figures = [set(table.metrics) for table in ENGINE_TABLES.values()]
    assert all(names == figures[0] for names in figures)


def test_outside_of_the_engines_code_no_engine_is_compared_by_its_name() -> None:
    comparison = re.compile(r"""[!=]= "(?:vllm|sglang)"|"(?:vllm|sglang)" [!=]=""")
    package = Path(host_schema.__file__).parent
    names = [file.relative_to(package) for file in package.rglob("*.py")]
    # The payload runs in an engine's own Python and may not import medley.
    others = [name for name in names if name.parts[0] != "engine" and "payload" not in name.parts]
    assert [name for name in others if comparison.search((package / name).read_text(encoding="utf-8"))] == []
