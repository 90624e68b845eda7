"""`medley models import` as it is typed."""

import io
import json
import sys
from pathlib import Path

import pytest

from medley import config
from medley.cli.models import ModelsVerb
from medley.cli.plan import PlanVerb
from medley.cli.serve import ServeVerb
from medley.errors import Problem
from medley.serving.community_recipe.document import MAX_RECIPE_BYTES
from tests.problems import raises_problem
from tests.web_server import answering

RECIPE = (
    "model: a/b\nruntime: vllm\ncontainer: c\nmods: [mods/x]\nenv: {NCCL_DEBUG: INFO}\n"
    "defaults: {tensor_parallel: 2, unnamed: 1}\n"
    "command: vllm serve {model} -tp {tensor_parallel} --enforce-eager\n"
)
COMMAND = "NCCL_DEBUG=INFO medley serve a/b --tp 2 -- --enforce-eager"

EVERY_OPTION = """
model: openai/gpt-oss-120b
runtime: vllm
container: c
command: |
  vllm serve {model} --host 127.0.0.1 --port 9000 --served-model-name x -tp 2 -pp 1 -dp 1 \\
    --max-model-len 16K --kv-cache-dtype fp8 --max-num-seqs 10 --enable-prefix-caching
"""


def run(*words: str) -> int:
    _, status = ModelsVerb.run(["medley models", "import", *words], exit=False)
    return int(status)


def test_the_command_is_first_and_the_rest_has_reasons(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    assert run(str(tmp_path / "r.yaml")) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == COMMAND
    titles = [line for line in rest if line.endswith(":")]
    assert titles == ["left out:", "left out, as by sparkrun:", "decided by medley:"]
    assert rest[2].startswith("  mods: it changes the engine")
    assert rest[-1] == "look first: medley plan a/b --tp 2 --hosts spark:2"


def test_the_variables_that_ray_does_not_carry_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    env = "{NCCL_DEBUG: INFO, SAFETENSORS_FAST_GPU: 1, OMP_NUM_THREADS: 4}"
    (tmp_path / "r.yaml").write_text(RECIPE.replace("{NCCL_DEBUG: INFO}", env), encoding="utf-8")
    assert run(str(tmp_path / "r.yaml")) == 0
    lines = capsys.readouterr().out.splitlines()
    start = lines.index("on this host only:")
    assert [line.split(":")[0].strip() for line in lines[start + 1 : start + 3]] == [
        "env.SAFETENSORS_FAST_GPU",
        "env.OMP_NUM_THREADS",
    ]
    assert lines[start + 3] == ""


def test_json_has_every_key(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(RECIPE.encode())))
    assert run("-", "--json") == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["command"], found["env"]) == (COMMAND, {"NCCL_DEBUG": "INFO"})
    assert found["argv"] == ["medley", "serve", "a/b", "--tp", "2", "--", "--enforce-eager"]
    assert (found["model"], found["engine"], found["whole"]) == ("a/b", "vllm", False)
    assert {each["key"]: each["outcome"] for each in found["keys"]} == {
        "command -tp": "carried",
        "command --enforce-eager": "carried",
        "env.NCCL_DEBUG": "carried",
        "defaults.unnamed": "unused",
        "container": "decided",
        "command without --host": "decided",
        "command without --max-model-len": "decided",
        "mods": "refused",
    }


def test_medley_takes_the_commands_that_it_prints(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every option that a recipe can become, over hosts one need not own."""
    (tmp_path / "r.yaml").write_text(EVERY_OPTION, encoding="utf-8")
    assert run(str(tmp_path / "r.yaml"), "--json") == 0
    found = json.loads(capsys.readouterr().out)
    _, _, *words = found["argv"]
    assert PlanVerb.run(found["plan"].split()[1:], exit=False)[1] == 0
    assert " on 2 hosts · tensor parallel 2\n" in capsys.readouterr().out
    elsewhere = ("--hosts", "spark:2", "--dry-run")
    assert ServeVerb.run(["medley serve", *elsewhere, *words], exit=False)[1] == 0
    shown = capsys.readouterr().out
    given = "--served-model-name x", "--port 9000", "-tp 2", "--kv-cache-dtype fp8", "--max-model-len 16384"
    assert all(each.replace("-tp", "--tensor-parallel-size") in shown for each in given)
    assert "--max-num-seqs 10 --enable-prefix-caching" in shown


def test_a_table_is_a_model_that_medley_serves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    (tmp_path / "models").mkdir()
    (tmp_path / "r.yaml").write_text(RECIPE.replace("a/b", "openai/gpt-oss-120b"), encoding="utf-8")
    table = tmp_path / "models" / "mine.toml"
    assert run(str(tmp_path / "r.yaml"), "--output", str(table)) == 0
    shown = capsys.readouterr()
    assert (shown.out.splitlines()[0], shown.err) == ("medley serve mine --tp 2", "")
    assert config.load_models()["mine"].args == {"vllm": ("--enforce-eager",)}
    assert config.load_models()["mine"].env == {"vllm": {"NCCL_DEBUG": "INFO"}}
    with raises_problem(str(table), cause=str(table), fix=f"--output {table.with_name('mine-2.toml')}"):
        run(str(tmp_path / "r.yaml"), "--output", str(table))


def test_a_table_elsewhere_says_where_it_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.yaml").write_text(RECIPE, encoding="utf-8")
    assert run(str(tmp_path / "r.yaml"), "--output", str(tmp_path / "mine.toml")) == 0
    assert "medley finds mine.toml once it is in " in capsys.readouterr().err
    with raises_problem(str(tmp_path / "mine"), cause="NAME.toml", fix=f"--output {tmp_path}/mine.toml"):
        run(str(tmp_path / "r.yaml"), "--output", str(tmp_path / "mine"))


def test_an_address_is_fetched(capsys: pytest.CaptureFixture[str]) -> None:
    with answering({"/r.yaml": RECIPE.encode()}) as server:
        assert run(f"{server.url}/r.yaml") == 0
    assert capsys.readouterr().out.startswith(f"{COMMAND}\n")


@pytest.mark.parametrize(
    ("path", "cause"),
    [
        ("/page", "a page of the web"),
        ("/none", "it answered 404"),
        ("/long", "more than 128 KiB"),
    ],
)
def test_what_an_address_gives_instead_is_named(path: str, cause: str) -> None:
    contents = {"/page": b"\n<!DOCTYPE html>", "/long": b"a: b\n" * MAX_RECIPE_BYTES}
    with answering(contents) as server, pytest.raises(Problem) as caught:
        run(f"{server.url}{path}")
    assert cause in caught.value.cause


def test_a_file_that_is_not_there_is_a_problem() -> None:
    with raises_problem("/none/r.yaml", cause="No such file", fix="medley models import RECIPE.yaml"):
        run("/none/r.yaml")
