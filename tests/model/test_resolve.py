from pathlib import Path

import pytest

from medley import config
from medley.errors import Problem
from medley.model.resolve import prepare_weights, require_weights, resolve_weights
from medley.schema import Model
from tests.problems import raises_problem

MODELS = {**config.load_models(), "qwen": Model(title="x", repository="Qwen/Qwen3-8B")}


def test_a_model_that_is_made_lies_in_the_cache(tmp_path: Path) -> None:
    found = resolve_weights("demo", MODELS, tmp_path)
    assert (found.name, found.is_local) == ("demo", True)
    assert Path(found.target).parent == tmp_path / "models"
    made = MODELS["demo"].made
    assert made is not None
    other = {"demo": Model(title="x", made=made.replace(seed=1))}
    assert resolve_weights("demo", other, tmp_path).target != found.target, "another model lies elsewhere"


@pytest.mark.parametrize(
    ("word", "name", "known"),
    [
        pytest.param("qwen", "qwen", True, id="by its table's name"),
        pytest.param("Qwen/Qwen3-8B", "Qwen/Qwen3-8B", True, id="by its repository"),
        pytest.param("org/other", "org/other", False, id="a repository nobody knows"),
    ],
)
def test_a_repository(word: str, name: str, known: bool, tmp_path: Path) -> None:  # noqa: FBT001
    found = resolve_weights(word, MODELS, tmp_path)
    assert (found.name, found.is_local, found.model is not None) == (name, False, known)
    assert found.target.count("/") == 1


def test_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "config.json").write_text("{}")
    monkeypatch.chdir(tmp_path)
    found = resolve_weights("./mine", MODELS, tmp_path)
    assert (found.name, found.target, found.is_local) == ("mine", str(tmp_path / "mine"), True)


@pytest.mark.parametrize("word", ["large", "LARGE", "Llama-Large", "LLAMA-LARGE"])
def test_a_table_by_an_alias_or_in_other_letters(word: str, tmp_path: Path) -> None:
    models = {"llama-large": MODELS["llama-3.3-70b-instruct"].replace(aliases=("large",))}
    assert resolve_weights(word, models, tmp_path).name == "llama-large"


@pytest.mark.parametrize(
    ("word", "fix"),
    [
        pytest.param("dem", "medley serve demo", id="nearly"),
        pytest.param("demoo", "medley serve demo", id="a letter more"),
        pytest.param("dmo", "medley serve demo", id="a letter less"),
        pytest.param("https://huggingface.co/Qwen/Qwen3-8B", "medley serve Qwen/Qwen3-8B", id="a page"),
        pytest.param("hf.co/Qwen/Qwen3-8B/tree/main", "medley serve Qwen/Qwen3-8B", id="a short address"),
        pytest.param("./m.gguf", "medley models", id="a format that no engine here loads"),
        pytest.param("zzz", "medley models", id="nothing like it"),
        pytest.param("Qwen3-4B", "medley serve qwen3-4b-instruct-2507", id="the beginning of a name"),
        pytest.param("gpt-oss-20", "medley serve gpt-oss-20b", id="but for a letter"),
        pytest.param("lama", "medley serve llama-3.1-8b-instruct", id="like the beginning of a name"),
        pytest.param("a/b/c", "medley models", id="too deep for the hub"),
    ],
)
def test_what_is_no_model_is_a_problem(word: str, fix: str, tmp_path: Path) -> None:
    with raises_problem(word, fix=fix):
        resolve_weights(word, MODELS, tmp_path)


def test_the_cause_has_the_nearest_names(tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        resolve_weights("qwen3-23b", MODELS, tmp_path, ("medley", "plan", "qwen3-23b", "--tp", "2"))
    assert "the nearest: qwen3-32b, " in caught.value.cause
    assert caught.value.fix == "medley plan qwen3-32b --tp 2"


@pytest.mark.parametrize(
    ("verb", "fix"),
    [("plan", "medley plan deepseek-v3"), ("serve", "medley serve deepseek-ai/DeepSeek-R1")],
)
def test_a_model_of_a_known_shape_says_so(verb: str, fix: str, tmp_path: Path) -> None:
    with raises_problem("'DeepSeek-R1'", cause=" deepseek-v3,", fix=fix):
        resolve_weights("DeepSeek-R1", MODELS, tmp_path, ("medley", verb, "DeepSeek-R1"))


@pytest.mark.parametrize(
    "word",
    ["d", "de", "memo", "gemma", "demo-2", "nemo", "tiny", "deep", "kimo", "x" * 300],
)
def test_the_made_model_is_nobodys_near_miss(word: str, tmp_path: Path) -> None:
    with raises_problem(repr(word)) as caught:
        resolve_weights(word, MODELS, tmp_path)
    assert "demo" not in caught.value.fix


@pytest.mark.parametrize(
    ("word", "name"),
    [
        pytest.param("Nemotron-3-Nano-", "nemotron-3-nano-30b-a3b-nvfp4", id="a longer alias"),
        pytest.param("nemotron-super", "nemotron-3-super-120b-a12b-nvfp4", id="like an alias"),
        pytest.param("lama-3.3-70b", "llama-3.3-70b-instruct", id="but for a letter of an alias"),
    ],
)
def test_a_near_miss_of_an_alias_names_the_table(word: str, name: str, tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        resolve_weights(word, MODELS, tmp_path)
    assert caught.value.fix == f"medley serve {name}"


def test_no_alias_is_a_name_or_another_models() -> None:
    models = config.load_models()
    aliases = [alias for model in models.values() for alias in model.aliases]
    assert len(aliases) >= 14
    assert len({*aliases, *models}) == len(aliases) + len(models)
    assert all(alias == alias.lower() for alias in aliases)
    for name, model in models.items():
        assert {resolve_weights(alias, models, Path("/none")).name for alias in model.aliases} <= {name}


@pytest.mark.parametrize(
    ("typed", "fix"),
    [
        pytest.param("medley plan dem --hosts spark:2", "medley plan demo --hosts spark:2", id="plan"),
        pytest.param("medley run dem -- x.py", "medley run demo -- x.py", id="run"),
        pytest.param("medley doctor --model=dem", "medley doctor --model=demo", id="doctor"),
    ],
)
def test_its_fix_is_what_was_typed(typed: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(Problem) as caught:
        resolve_weights("dem", MODELS, tmp_path, typed.split())
    assert caught.value.fix == fix


@pytest.mark.parametrize("word", ["./none/such", "/tmp/none", "~/none", "../none"])
def test_a_path_that_is_not_there_is_a_problem(word: str, tmp_path: Path) -> None:
    with raises_problem(f" {word}", cause=str(Path(word).expanduser().absolute())):
        resolve_weights(word, MODELS, tmp_path)


def test_a_file_is_no_model(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").touch()
    with raises_problem(f"{tmp_path}/model.gguf ", cause="config.json"):
        resolve_weights(str(tmp_path / "model.gguf"), MODELS, tmp_path)


def test_an_empty_folder_is_a_problem(tmp_path: Path) -> None:
    with raises_problem(f"{tmp_path} ", cause="config.json", fix=f"ls {tmp_path}"):
        resolve_weights(str(tmp_path), MODELS, tmp_path)


def test_a_folder_without_weights_is_planned_and_not_served(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    found = resolve_weights(str(tmp_path), MODELS, tmp_path)
    with raises_problem(f"{tmp_path} ", cause="*.safetensors", fix=f"medley plan {tmp_path}"):
        prepare_weights(found)
    (tmp_path / "model.gguf").touch()
    prepare_weights(found)


def test_a_repository_that_is_also_a_folder_here_is_not_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """transformers takes ./ORG/NAME before the hub's, with code that nobody has trusted."""
    monkeypatch.chdir(tmp_path)
    found = resolve_weights("qwen", MODELS, tmp_path)
    require_weights(found)
    (tmp_path / "Qwen" / "Qwen3-8B").mkdir(parents=True)
    for start in (prepare_weights, require_weights):
        with raises_problem("Qwen/Qwen3-8B", fix=("cd ~", "medley serve ./Qwen/Qwen3-8B")):
            start(found)
    (tmp_path / "Qwen" / "Qwen3-8B").rmdir()
    (tmp_path / "Qwen" / "Qwen3-8B").symlink_to("nowhere")
    with raises_problem("Qwen/Qwen3-8B"):
        require_weights(found)


@pytest.mark.parametrize("word", ["LARGE", "llama-large", "org/large"])
def test_a_folder_with_the_name_of_a_known_model_is_not_taken_for_it(
    word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    models = {"large": Model(title="x", aliases=("llama-large",), repository="org/large")}
    (tmp_path / word).mkdir(parents=True)
    if "/" not in word:
        assert resolve_weights(word, models, tmp_path).name == "large", "the folder holds no model"
    (tmp_path / word / "config.json").write_text("{}")
    fix = (f"medley plan ./{word}  # for the folder", "medley plan large  # for the known model")
    with raises_problem(word, cause=str(tmp_path / word), fix=fix):
        resolve_weights(word, models, tmp_path, ("medley", "plan", word))
    assert resolve_weights(f"./{word}", models, tmp_path).target == str(tmp_path / word)
    assert resolve_weights("large", models, tmp_path).model == models["large"]


def test_a_folder_that_is_named_as_a_repository_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert resolve_weights("org/mine", MODELS, tmp_path).notice is None
    (tmp_path / "org" / "mine").mkdir(parents=True)
    (tmp_path / "org" / "mine" / "config.json").write_text("{}")
    taken = resolve_weights("org/mine", MODELS, tmp_path)
    assert (taken.target, taken.is_local) == (str(tmp_path / "org" / "mine"), True)
    assert (
        taken.notice == f"org/mine is the folder {taken.target} here, not the hub's repository of that name"
    )
    for typed in ("./org/mine", str(tmp_path / "org" / "mine")):
        assert resolve_weights(typed, MODELS, tmp_path).notice is None
