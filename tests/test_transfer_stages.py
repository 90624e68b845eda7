import pytest

from medley.problem import Problem
from medley.transfer import stages
from medley.transfer.manifest import File, Link, Manifest

HASH = "a" * 64
QWEN = {
    "model.embed_tokens.weight": "1",
    "model.layers.0.mlp.up_proj.weight": "1",
    "model.layers.1.mlp.up_proj.weight": "2",
    "model.layers.2.mlp.experts.7.up_proj.weight": "3",
    "model.layers.3.self_attn.q_proj.weight": "4",
    "model.norm.weight": "5",
    "lm_head.weight": "6",
}
TIED = {name: file for name, file in QWEN.items() if name != "lm_head.weight"}
SEEING = QWEN | {"visual.blocks.0.attn.weight": "7", "model.vision_tower.x": "7"}
DRAFT = QWEN | {"model.layers.4.eh_proj.weight": "8", "mtp.fc.weight": "9"}
GPT = {
    "transformer.wte.weight": "1",
    "transformer.h.0.x": "2",
    "transformer.h.3.x": "3",
    "lm_head.weight": "4",
}


@pytest.mark.parametrize(
    ("names", "own", "first", "last", "files"),
    [
        pytest.param(QWEN, range(2), True, False, "125", id="first"),
        pytest.param(QWEN, range(1, 3), False, False, "235", id="in the middle"),
        pytest.param(QWEN, range(2, 4), False, True, "3456", id="last"),
        pytest.param(QWEN, range(4), True, True, "123456", id="all"),
        pytest.param(TIED, range(2, 4), False, True, "1345", id="last, and its head is the embedding"),
        pytest.param(TIED, range(1, 3), False, False, "235", id="in the middle of such a one"),
        pytest.param(SEEING, range(1), True, False, "157", id="first, which sees"),
        pytest.param(SEEING, range(3, 4), False, True, "456", id="last of one that sees"),
        pytest.param(DRAFT, range(1), True, False, "15", id="first of one with draft layers"),
        pytest.param(DRAFT, range(3, 4), False, True, "45689", id="last, which drafts"),
        pytest.param(GPT, range(1), True, False, "12", id="other names"),
    ],
)
def test_the_files_of_a_stage(
    names: dict[str, str], own: range, *, first: bool, last: bool, files: str
) -> None:
    assert stages.files({"weight_map": names}, 4, own, first=first, last=last) == tuple(files)


def test_what_no_name_settles_goes_to_all() -> None:
    index = {"weight_map": QWEN | {"something.new": "new"}}
    assert "new" in stages.files(index, 4, range(1, 2), first=False, last=False)


def test_all_stages_together_have_all() -> None:
    for names in (QWEN, TIED, SEEING, DRAFT, GPT):
        found: set[str] = set()
        for own in (range(1), range(1, 3), range(3, 4)):
            found |= {*stages.files({"weight_map": names}, 4, own, first=own.start == 0, last=own.stop == 4)}
        assert found == set(names.values())


def test_an_index_that_is_none_is_a_problem() -> None:
    with pytest.raises(Problem, match="names no files"):
        stages.files({"weight_map": {"a": "../b"}}, 4, range(4), first=True, last=True)


INDEX = {"weight_map": {"model.layers.0.x": "a.safetensors", "model.layers.1.x": "b.safetensors"}}


def test_a_folder_without_the_other_stages_weights() -> None:
    names = ("a.safetensors", "b.safetensors", "tokenizer.json", "config.json")
    whole = Manifest(tuple(File(name, 5, (HASH,)) for name in names), (), 4096)
    kept = stages.only(whole, INDEX, ("a.safetensors",))
    assert [file.path for file in kept.files] == ["a.safetensors", "tokenizer.json", "config.json"]
    assert kept.piece_bytes == 4096


def test_a_repository_without_the_other_stages_blobs() -> None:
    blobs = tuple(File(f"blobs/{name}", 5, (HASH,)) for name in ("1", "2", "3"))
    names = {"a.safetensors": "1", "b.safetensors": "2", "copy.txt": "3", "config.json": "3"}
    links = tuple(Link(f"snapshots/c/{name}", f"../../blobs/{blob}") for name, blob in names.items())
    kept = stages.only(Manifest(blobs, links), INDEX, ("b.safetensors",))
    assert [file.path for file in kept.files] == ["blobs/2", "blobs/3"]
    assert [link.path.rpartition("/")[2] for link in kept.links] == [
        "b.safetensors",
        "copy.txt",
        "config.json",
    ]
