"""What an engine's release takes: by the descriptions in locks/parsers, and by parsers that are asked."""

import json
import os
import sys
from pathlib import Path

import pytest

from medley import config
from medley.engine.accepted_flags import (
    FLAG_REPLACEMENTS,
    AcceptedFlags,
    read_flags_table,
    read_image_flags,
    read_locked_flags,
    read_programs_flags,
    read_release_flags,
)
from medley.environment import container_image, engine_source
from medley.environment.container import Image
from medley.environment.container_image import ImageSelection
from medley.host.kind import match_kind
from medley.schema import EngineName
from tests.host.recordings import recorded

LOCKS = [(name, config.load_recipes()[name].engine) for name in config.load_recipes()]


def parser(engine: EngineName) -> AcceptedFlags:
    found = read_locked_flags(engine)
    assert found
    return found


@pytest.mark.parametrize(("lock", "engine"), LOCKS)
def test_each_lock_has_the_description_of_its_version(lock: str, engine: EngineName) -> None:
    version = engine_source.read_locked_versions()[lock][engine]
    found = read_release_flags(engine, version)
    assert found, "python -m tools.engine_parsers"
    assert found.version == version
    assert len(found.flags_by_name) > 300
    assert len(found.variables) > 200


def test_there_is_no_description_that_no_lock_needs() -> None:
    versions = {f"{engine}-{engine_source.read_locked_versions()[lock][engine]}" for lock, engine in LOCKS}
    assert set(config.find_table_files("locks/parsers", ".json")) == versions, (
        "python -m tools.engine_parsers"
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(("--max-model-len", "99"), id="as it is listed"),
        pytest.param(("--max_model_len=99",), id="with underscores and ="),
        pytest.param(("--max-model", "99"), id="the beginning of one name"),
        pytest.param(("-tp", "2", "-pp=2"), id="short"),
        pytest.param(("-cc.mode=2", "--compilation-config.backend", "eager"), id="keys of a table"),
        pytest.param(("-O3", "-O", "2", "-O.mode=3"), id="levels of optimization"),
        pytest.param(("--max-num-seqs", "-1"), id="a negative number is a value"),
        pytest.param(("--no-enable-prefix-caching", "--api-key", "a", "b"), id="none and several values"),
        pytest.param(("--attention-backend", "flashinfer"), id="a backend in any case"),
        pytest.param(("--moe-backend", "flashinfer-cutlass"), id="with - for _"),
        pytest.param(("--limit-mm-per-prompt.image", "2"), id="a key of a free table"),
        pytest.param(("-sc", '{"method":"mtp","num-speculative-tokens":3}'), id="a key with dashes"),
        pytest.param(("--hf-overrides", '{"anything":{"x":1}}'), id="free JSON"),
        pytest.param(("--tool-parser-plugin", "p.py", "--tool-call-parser", "mine"), id="a plugin's parser"),
        pytest.param(("positional",), id="no flag"),
    ],
)
def test_what_vllm_takes(words: tuple[str, ...]) -> None:
    assert list(parser("vllm").list_faults(words)) == []


@pytest.mark.parametrize(
    ("engine", "words", "word", "advice"),
    [
        ("vllm", ("--kv-cache-dtpye", "fp8"), "--kv-cache-dtpye", "did you mean --kv-cache-dtype?"),
        (
            "vllm",
            ("--tensor-paralel-size=2",),
            "--tensor-paralel-size=2",
            "did you mean --tensor-parallel-size?",
        ),
        ("vllm", ("--swap_space=0",), "--swap_space=0", "has no swap space any more"),
        ("vllm", ("--max-num", "4"), "--max-num", " or --max-num-batched-tokens or "),
        ("vllm", ("--xyzzy",), "--xyzzy", "remove it"),
        ("vllm", ("-z",), "-z", "remove it"),
        (
            "vllm",
            ("--gpu-memory-utilization-gb", "108"),
            "--gpu-memory-utilization-gb",
            "--gpu-memory-utilization",
        ),
        ("vllm", ("--quantization", "exl3"), "--quantization", "its values: "),
        ("vllm", ("--load-format=b12x",), "--load-format", "its values: "),
        ("vllm", ("--attention-backend", "B12X_MLA_SPARSE"), "--attention-backend", "did you mean "),
        ("vllm", ("--reasoning-parser", "motif"), "--reasoning-parser", ""),
        (
            "vllm",
            ("--engram-config", '{"table_memory":"disk"}'),
            "--engram-config.table_memory",
            "its keys: ",
        ),
        ("vllm", ("-sc", '{"method":"mtpp"}'), "-sc.method", "did you mean "),
        ("vllm", ("--speculative-config.methd", "mtp"), "--speculative-config.methd", "did you mean method?"),
        (
            "vllm",
            ("-cc", '{"pass_config":{"fuse_nrm_quant":true}}'),
            "-cc.pass_config.fuse_nrm_quant",
            "did you",
        ),
        ("vllm", ("-cc", '{"mode":3'), "-cc", "single quotes"),
        ("vllm", ("--enable-prefix-caching", "true"), "--enable-prefix-caching", "--help"),
        ("vllm", ("--max-model-len",), "--max-model-len", "--help"),
        ("vllm", ("--max-model-len", "1", "2"), "--max-model-len", "--help"),
        ("sglang", ("--cuda-graph-max-bs", "8"), "--cuda-graph-max-bs", "write --cuda-graph-max-bs-decode"),
        ("sglang", ("--attention-backend", "b12x"), "--attention-backend", ""),
        ("sglang", ("--speculative-algorithm", "MAGIC"), "--speculative-algorithm", "its values: "),
    ],
)
def test_what_it_would_refuse(engine: EngineName, words: tuple[str, ...], word: str, advice: str) -> None:
    (fault,) = parser(engine).list_faults(words)
    assert fault.argument == word
    assert advice in fault.advice


def test_a_build_has_the_parser_of_its_release() -> None:
    assert read_release_flags("vllm", f"{parser('vllm').version}+cpu") == parser("vllm")


def test_variables_that_a_release_reads() -> None:
    found = parser("vllm")
    assert found.reads_variable("VLLM_WORKER_MULTIPROC_METHOD")
    assert not found.reads_variable("VLLM_USE_B12X_MOE")
    assert parser("sglang").reads_variable("SGLANG_ENABLE_SPEC_V2") or parser("sglang").variables


@pytest.mark.parametrize("engine", FLAG_REPLACEMENTS)
def test_what_is_renamed_is_gone_and_its_replacement_is_there(engine: EngineName) -> None:
    found = parser(engine)
    for old, new in FLAG_REPLACEMENTS[engine].items():
        assert old not in found.flags_by_name
        assert not new.startswith("--") or new in found.flags_by_name


ANSWER = {"version": "9", "flags": [{"names": ["--of-a-fork"], "takes": 1}], "variables": []}
PYTHON = f"""#!{sys.executable}
import pathlib, sys
pathlib.Path(__file__).with_name("asked").open("a").write("x")
print({json.dumps(json.dumps(ANSWER))})
"""


def virtualenv(folder: Path, text: str = PYTHON) -> Path:
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "python").write_text(text)
    (folder / "bin" / "python").chmod(0o755)
    return folder / "bin"


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_CACHE", str(tmp_path / "cache"))


def test_a_virtualenv_of_the_users_own_is_asked_once_even_where_a_lock_has_its_version(
    tmp_path: Path,
) -> None:
    programs = virtualenv(tmp_path / "own")
    for _ in range(3):
        found = read_programs_flags("vllm", programs, parser("vllm").version, can_run=True)
        assert found
        assert list(found.list_faults(("--of-a-fork", "1"))) == []
        assert [fault.argument for fault in found.list_faults(("--max-model-len", "1"))] == [
            "--max-model-len"
        ]
    assert (programs / "asked").read_text() == "x"


def test_it_is_not_asked_in_a_dry_run(tmp_path: Path) -> None:
    programs = virtualenv(tmp_path / "own")
    assert read_programs_flags("vllm", programs, None, can_run=False) is None
    assert not (programs / "asked").exists()


def test_another_version_is_asked_again(tmp_path: Path) -> None:
    programs = virtualenv(tmp_path / "own")
    read_programs_flags("vllm", programs, None, can_run=True)
    (programs.parent / "lib" / "python3.12" / "site-packages" / "vllm-9.dist-info").mkdir(parents=True)
    read_programs_flags("vllm", programs, None, can_run=True)
    assert (programs / "asked").read_text() == "xx"


def test_a_parser_that_does_not_run_is_believed(tmp_path: Path) -> None:
    programs = virtualenv(tmp_path / "own", f"#!{sys.executable}\nraise SystemExit(1)\n")
    assert read_programs_flags("vllm", programs, None, can_run=True) is None


def test_an_environment_that_is_not_built_yet_has_its_locks_parser(tmp_path: Path) -> None:
    found = read_programs_flags("vllm", tmp_path / "absent" / "bin", parser("vllm").version, can_run=False)
    assert found is parser("vllm")


DOCKER = f"""#!{sys.executable}
import pathlib, sys
pathlib.Path(__file__).with_name("asked").open("a").write(" ".join(sys.argv[1:]) + "\\n")
print({json.dumps(json.dumps(ANSWER))})
"""


def test_an_image_is_asked_once_for_each_digest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = virtualenv(tmp_path / "programs")
    (programs / "docker").write_text(DOCKER)
    (programs / "docker").chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    facts = recorded("spark-pair-a")

    def of(digest: str, *, ask: bool = True) -> AcceptedFlags | None:
        choice = ImageSelection("docker", Image("maker/vllm", digest))
        return read_image_flags(
            "vllm",
            container_image.plan_image_environment(choice, match_kind(facts, config.load_hosts()), facts),
            can_run=ask,
        )

    assert of("a" * 64, ask=False) is None
    found = of("a" * 64)
    assert found
    assert found.source == "maker/vllm"
    assert list(found.list_faults(("--of-a-fork", "1"))) == []
    again = of("a" * 64, ask=False)
    assert again
    assert again.flags_by_name == found.flags_by_name
    assert of("b" * 64)
    asked = [line for line in (programs / "asked").read_text().splitlines() if line.startswith("run ")]
    assert [line.endswith("parse_flags.py vllm") for line in asked] == [True, True]


def test_the_script_of_the_payload_answers_in_the_form_that_is_read() -> None:
    found = read_flags_table("vllm", ANSWER, "x")
    assert found.find_full_name("--of-a") == "--of-a-fork"
    assert found.title == "vLLM 9"
