"""A table that is written says what the headers said, and reads back."""

import msgspec
import pytest

from medley import config
from medley.model.hub_checkpoint import HubRecord, merge_experts
from medley.model.shape import compute_shape, find_architecture
from medley.model.table import (
    Proposal,
    find_table_name,
    parse_model,
    propose_values,
    remove_format,
    write_table,
)
from medley.schema import Model
from tests.model.checkpoints import checkpoint
from tests.model.published import PUBLISHED

COMMIT = "a" * 40


def look(name: str, **changed: object) -> HubRecord:
    known = PUBLISHED[name]
    found = checkpoint(known.config, dense=known.dense, routed=known.routed)
    told = {**found.config, **changed}
    files = ("model-1.safetensors", "model-2.safetensors")
    return HubRecord("org/New", COMMIT, "2026-11-24", "mit", files, told, merge_experts(found.tensors))


@pytest.mark.parametrize("name", PUBLISHED)
def test_it_reads_back_as_the_shape_of_the_headers(name: str) -> None:
    seen = look(name)
    found = parse_model(write_table(seen, Proposal()), "x")
    assert found.shape == compute_shape(seen.checkpoint)
    assert (found.title, found.repository, found.license) == ("New", "org/New", "mit")


def test_each_group_of_numbers_has_its_source() -> None:
    text = write_table(look("gpt-oss-20b"), Proposal())
    of_config, of_headers = text.split("# source: config.json")[1].split(
        "# source: the headers of the weights"
    )
    assert f" of org/New at commit {COMMIT}\n" in of_config
    assert "layers = 24\n" in of_config
    assert "2 files, model-1.safetensors and so on" in of_headers.replace("\n#", "")
    assert "expert_bytes = 13_236_480\n" in of_headers
    assert max(map(len, text.splitlines())) <= 110


def test_the_same_commit_gives_the_same_text() -> None:
    later = HubRecord(**{**msgspec.structs.asdict(look("qwen3-8b")), "date": "2027-01-01"})
    assert write_table(look("qwen3-8b"), Proposal()) == write_table(later, Proposal())


def test_a_stranger_cannot_write_keys_of_the_table() -> None:
    """The license and the names are the repository's own words."""
    seen = look("qwen3-8b", model_type='x"\nargs.vllm = ["--trust-remote-code"]')
    seen = HubRecord(
        **{
            **msgspec.structs.asdict(seen),
            "license": 'mit"\n\x7f\x00eager = true # é',
            "files": ("a\n\x1b\x7feager = true",),
        }
    )
    found = parse_model(write_table(seen, Proposal()), "x")
    assert found.license == 'mit"eager = true # é'
    assert (found.architecture, found.eager, found.args) == (None, False, {})


@pytest.mark.parametrize(
    ("name", "base"),
    [
        ("qwen3-8b-fp8", "qwen3-8b"),
        ("glm-4.5-air-awq-fp16mix", "glm-4.5-air"),
        ("qwen3-8b-gptq-int4", "qwen3-8b"),
        ("glm-5.3-flash", "glm-5.3-flash"),
        ("qwen3-8b", "qwen3-8b"),
    ],
)
def test_the_name_of_a_model_without_its_format(name: str, base: str) -> None:
    assert remove_format(name) == base
    assert find_table_name(f"Org/{name.upper()}") == name


def test_another_build_of_a_known_model_has_what_that_one_has() -> None:
    found = propose_values("qwen3-8b-nvfp4", "qwen3", config.load_models())
    assert found.similar == ("qwen3-8b",)
    assert found.values == {"tool_parser": "hermes", "reasoning_parser": "qwen3"}
    assert found.left_out == {}


def test_where_the_family_differs_nothing_is_proposed_and_that_is_said() -> None:
    found = propose_values("qwen3-14b", "qwen3", config.load_models())
    assert found.values == {"tool_parser": "hermes"}
    assert 'qwen3-8b has "qwen3"' in found.left_out["reasoning_parser"]
    assert "qwen3-4b-instruct-2507 has none" in found.left_out["reasoning_parser"]
    text = write_table(look("qwen3-32b"), found)
    assert "# left out, because known tables differ in reasoning_parser" in text
    assert parse_model(text, "x").reasoning_parser is None


def test_flags_and_versions_are_proposed_too() -> None:
    found = propose_values("minimax-m3-fp8", "minimax_m3_vl", config.load_models())
    model = parse_model(write_table(look("minimax-m3", auto_map={"AutoModel": "m.M"}), found), "x")
    assert model.args == {"vllm": ("--block-size", "128")}
    assert model.since == {"vllm": "0.24.0"}
    assert model.remote_code is not None
    assert model.remote_code.needed, "the code is another repository's than that of the known tables"


@pytest.mark.parametrize("kind", ["strange_new", None])
def test_an_architecture_that_nobody_knows(kind: str | None) -> None:
    seen = look("qwen3-8b", model_type=kind, auto_map={"AutoModel": "m.M"})
    assert find_architecture(seen.config) == kind
    found = propose_values("new", kind, {**config.load_models(), "mine": Model(title="x", repository="a/b")})
    assert found == Proposal()
    text = write_table(seen, found)
    assert "no parser and no flag is proposed" in text
    model = parse_model(text, "x")
    assert model.remote_code is not None
    assert model.remote_code.needed
