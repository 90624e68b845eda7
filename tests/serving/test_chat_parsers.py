"""The user's parsers are compared with the model's files before anything starts."""

import json
from pathlib import Path

import pytest

from medley import config
from medley.engine import accepted_flags, sglang, vllm
from medley.model.chat_format import ChatFormat
from medley.model.resolve import Weights
from medley.serving import chat_parsers
from tests.model.test_chat_format import CODER, QWEN

PLAIN = "{% for m in messages %}{{ m.content }}{% endfor %}"
HERMES = ChatFormat("hermes", "qwen3", "a writes <tool_call>", "a writes <think>", "a.jinja")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": QWEN}))
    return tmp_path


def test_a_folder_s_files_decide(folder: Path) -> None:
    assert chat_parsers.find_format(Weights("m", str(folder), None), ()).tool_parser == "hermes"


def test_the_user_s_template_decides(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "own.jinja").write_text(CODER)
    found = chat_parsers.find_format(
        Weights("m", str(folder), None), ("--chat_template", str(tmp_path / "own.jinja"))
    )
    assert (found.tool_parser, found.source) == ("qwen3_coder", "own.jinja")
    inline = chat_parsers.find_format(Weights("m", str(folder), None), (f"--chat-template={PLAIN}",))
    assert inline.tool_parser is None


def test_a_table_decides_without_a_question_to_the_hub() -> None:
    model = config.load_models()["gpt-oss-20b"]
    found = chat_parsers.find_format(Weights("gpt-oss-20b", "openai/gpt-oss-20b", model), ())
    assert found.tool_parser == "openai"


@pytest.mark.parametrize(
    ("extra", "said"),
    [
        pytest.param((), [], id="nothing given"),
        pytest.param(("--tool-call-parser", "hermes"), [], id="the right one"),
        pytest.param(("--tool-call-parser", "qwen3_json"), [], id="its other name"),
        pytest.param(
            ("--tool-call-parser=mistral",),
            ["--tool-call-parser mistral contradicts the model: a writes <tool_call>, which hermes reads"],
            id="another",
        ),
        pytest.param(
            ("--reasoning_parser", "deepseek_r1"),
            ["--reasoning-parser deepseek_r1 contradicts the model: a writes <think>, which qwen3 reads"],
            id="another for thoughts",
        ),
    ],
)
def test_a_parser_that_contradicts_the_template_is_warned_of(extra: tuple[str, ...], said: list[str]) -> None:
    assert list(chat_parsers.list_warnings(HERMES, vllm, extra)) == said


def test_sglang_s_name_of_the_same_parser_is_right() -> None:
    llama = ChatFormat("llama3_json", None, "a.jinja writes JSON", "", "a.jinja")
    assert not list(chat_parsers.list_warnings(llama, sglang, ("--tool-call-parser", "llama3")))
    assert list(chat_parsers.list_warnings(llama, sglang, ("--tool-call-parser", "mistral")))


@pytest.mark.parametrize("extra", [(), ("--tool-call-parser", "hermes")])
def test_a_model_without_tools_is_told_of(extra: tuple[str, ...]) -> None:
    none = ChatFormat(
        None, None, "a.jinja shows the model no tools: a request with tools gets 400", "", "a.jinja"
    )
    (said,) = chat_parsers.list_warnings(none, vllm, extra)
    assert "a.jinja shows the model no tools" in said
    assert ("has nothing to read" in said) is bool(extra)


def test_a_release_without_the_parser_is_not_given_it() -> None:
    takes = accepted_flags.read_release_flags("vllm", "0.32.0")
    chat, notes = chat_parsers.drop_missing_parsers(ChatFormat("step5", "qwen3", "x", "y", "z"), vllm, takes)
    assert (chat.tool_parser, chat.reasoning_parser) == (None, "qwen3")
    assert notes == ["vLLM 0.32.0 has no parser step5: a request with tools gets 400"]
    given = chat_parsers.add_user_parsers(HERMES, ("--tool-call-parser", "step5"))
    assert chat_parsers.drop_missing_parsers(given, vllm, takes) == (given, []), (
        "its own parser refuses the user's word"
    )
    assert chat_parsers.drop_missing_parsers(HERMES, vllm, None) == (HERMES, [])
