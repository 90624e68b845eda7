"""The real client against a small server that speaks the hub's few endpoints."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from medley.errors import Problem
from medley.model import demo, hub, hub_checkpoint
from medley.model.checkpoint import Tensor, sum_tensors
from medley.model.resolve import Weights
from medley.model.shape import compute_demo_shape, find_shape
from medley.progress import SilentProgress
from tests.model.hub_server import COMMIT, MADE, SECRET, SLOW_S, Hub, demo_repositories, serving
from tests.problems import raises_problem


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return demo_repositories(tmp_path_factory.mktemp("demo"))


@pytest.fixture(autouse=True)
def served(files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with serving(files, monkeypatch, tmp_path) as server:
        yield server


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.notes: list[str] = []
        self.lines: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)

    def line(self, text: str) -> None:
        self.lines.append(text)


def shape_of(repository: str) -> object:
    return find_shape(Weights(repository, repository, None))


@pytest.mark.parametrize("repository", ["org/one", "org/two"])
def test_a_repository_has_the_shape_of_its_model(repository: str) -> None:
    assert shape_of(repository) == compute_demo_shape(MADE)


def test_the_hub_is_asked_for_modelopts_file(served: Hub) -> None:
    served.files["org/one/hf_quant_config.json"] = (
        b'{"quantization": {"quant_algo": "NVFP4", "group_size": 16}}'
    )
    found = find_shape(Weights("org/one", "org/one", None))
    assert (found.weights, found.block) == ("nvfp4", 16)


def test_the_weights_are_not_fetched(served: Hub) -> None:
    hub_checkpoint.fetch_checkpoint("org/one")
    fetched = [length for _, name, length in served.asked if name == "model.safetensors"]
    assert fetched == [100_001], "the first part, which holds the header, of all the bytes"


def test_a_token_opens_what_is_gated_and_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_anotherOne")
    with raises_problem("org/gated", cause=" 403", fix="export HF_TOKEN=…") as caught:
        shape_of("org/gated")
    assert "hf_anotherOne" not in f"{caught.value}{caught.value.__cause__}"
    monkeypatch.setenv("HF_TOKEN", SECRET)
    assert shape_of("org/gated") == compute_demo_shape(MADE)


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        pytest.param("org/none", "no model org/none", id="no such name"),
        pytest.param("org/bare", "no model that medley can measure", id="no safetensors"),
        pytest.param("org/wrong", "org/wrong/config.json is not JSON", id="a broken config"),
        pytest.param("org/cut", "the weights of org/cut are not safetensors", id="a broken file"),
    ],
)
def test_what_cannot_be_measured_is_a_problem(repository: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        shape_of(repository)
    assert what in caught.value.what


def test_what_was_asked_once_leaves_no_model_in_the_cache() -> None:
    """Else `serve` would believe that it is all there."""
    hub_checkpoint.fetch_checkpoint("org/one")
    assert hub.find_snapshot("org/one") is None
    assert not hub.list_snapshots("org/one")


def test_a_model_in_the_cache_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with raises_problem("org/kept", cause="HF_HUB_OFFLINE", fix="medley plan ./FOLDER"):
        shape_of("org/kept")
    snapshot = tmp_path / "hf" / "hub" / "models--org--kept" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    demo.write_model(MADE, snapshot)
    assert shape_of("org/kept") == compute_demo_shape(MADE)


def test_a_hub_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with raises_problem("org/one", cause="http://127.0.0.1:9 ", fix="medley plan ./FOLDER"):
        shape_of("org/one")


def test_a_hub_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "_QUERY_LIMIT_S", SLOW_S / 2)
    with raises_problem("org/slow", cause=f"{SLOW_S / 2} s"):
        hub_checkpoint.fetch_record("org/slow")
    notes = Notes()
    find_shape(Weights("org/slow", "org/slow", None), notes)
    assert f"no answer in {SLOW_S / 2} s" in notes.notes[0], "its config.json came before that, and is enough"


@pytest.mark.parametrize("offline", [pytest.param(True, id="offline"), pytest.param(False, id="no network")])
def test_without_a_network_the_last_look_is_taken_and_its_date_said(
    offline: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub_checkpoint.fetch_checkpoint("org/two")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1") if offline else monkeypatch.setenv(
        "HF_ENDPOINT", "http://127.0.0.1:9"
    )
    notes = Notes()
    assert find_shape(Weights("org/two", "org/two", None), notes) == compute_demo_shape(MADE)
    (said,) = notes.notes
    assert said.startswith("HF_HUB_OFFLINE is set: " if offline else "the hub at http://127.0.0.1:9 does not")
    look = hub_checkpoint.load_record("org/two")
    assert look is not None
    assert f"commit {COMMIT[:12]}, read on {look.date}" in said


def test_without_a_look_a_config_in_the_hubs_cache_is_enough(
    files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    snapshot = tmp_path / "hf" / "hub" / "models--org--seen" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_bytes(files["org/one/config.json"])
    notes = Notes()
    found, exact = find_shape(Weights("org/seen", "org/seen", None), notes), compute_demo_shape(MADE)
    assert (found.layers, found.hidden, found.kv_heads) == (exact.layers, exact.hidden, exact.kv_heads)
    assert found.parameters == pytest.approx(exact.parameters, rel=0.01)
    assert notes.notes[0].endswith(f"{datetime.now(UTC).date()}")
    assert found.weights_source == "config"


def test_a_commit_that_was_looked_at_is_asked_for_once(served: Hub) -> None:
    first = hub_checkpoint.fetch_checkpoint("org/two")
    served.asked.clear()
    assert hub_checkpoint.fetch_checkpoint("org/two") == first
    assert served.asked == [("GET", "api", 0)]
    served.commit = "d" * 40
    hub_checkpoint.fetch_checkpoint("org/two")
    assert {name for _, name, _ in served.asked} > {"config.json", "1.safetensors", "2.safetensors"}
    assert hub_checkpoint.load_record("org/two", "d" * 40)


def test_a_hub_that_names_no_commit_is_asked_each_time(served: Hub) -> None:
    served.commit = None
    assert shape_of("org/one") == compute_demo_shape(MADE)
    assert hub_checkpoint.load_record("org/one") is None


def test_a_torn_look_is_asked_for_again(tmp_path: Path) -> None:
    hub_checkpoint.fetch_checkpoint("org/one")
    (path,) = (tmp_path / "cache" / "checkpoints" / "org--one").iterdir()
    path.write_text(path.read_text()[:100])
    assert hub_checkpoint.load_record("org/one") is None
    assert shape_of("org/one") == compute_demo_shape(MADE)
    assert hub_checkpoint.load_record("org/one")


def test_a_repository_that_is_gone_is_refused_though_it_was_kept(served: Hub) -> None:
    assert shape_of("org/one") == compute_demo_shape(MADE)
    served.files = {name: text for name, text in served.files.items() if not name.startswith("org/one/")}
    with raises_problem("org/one", cause=" 401", fix="export HF_TOKEN=…"):
        shape_of("org/one")


def test_the_license_is_as_the_card_says(served: Hub) -> None:
    for card, name in (
        ({"license": "apache-2.0"}, "apache-2.0"),
        ({"license": "other", "license_name": "own-terms"}, "own-terms"),
        ({}, None),
    ):
        served.card = card
        assert hub.fetch_info("org/one").license == name


def test_progress_counts_the_files() -> None:
    notes = Notes()
    hub_checkpoint.fetch_record("org/two", notes)
    assert notes.lines == ["headers of 1 of 2 files", "headers of 2 of 2 files"]


def test_experts_that_are_alike_are_kept_as_one_tensor() -> None:
    at = "model.layers.{}.mlp.experts.{}.down_proj.weight"
    alike = {at.format(layer, nth): Tensor("BF16", (4, 2), 16) for layer in (0, 1) for nth in range(64)}
    odd = {at.format(0, 64): Tensor("U8", (4, 1), 4)}
    found = {name: Tensor(*each) for name, each in hub_checkpoint.merge_experts(alike | odd).items()}
    assert len(found) == 3
    assert sum_tensors(found, 2, 4) == sum_tensors(alike | odd, 2, 4)
