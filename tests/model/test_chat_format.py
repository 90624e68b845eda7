"""A checkpoint's own files say how it writes tool calls and reasoning; both engines know the names."""

import json
from pathlib import Path

import pytest

from medley import config
from medley.engine import accepted_flags, sglang, vllm
from medley.model import chat_format
from medley.model.chat_format import REASONING_RULES, TOOL_RULES, ChatFormat, ParserRule
from medley.model.checkpoint import read_table

VLLM = ("0.32.0", "0.33.0")
SGLANG = "0.5.23"
# Short templates in the manner of the published ones: what counts is the variable and the marks.
_SHOWN = "{% if tools %}{% for tool in tools %}{{ tool | tojson }}{% endfor %}"
QWEN = _SHOWN + r"<tool_call>\n{\"name\": <function-name>, \"arguments\": <args>}\n</tool_call>{% endif %}"
CODER = (
    _SHOWN + "<tool_call>\n<function=f>\n<parameter=p>\nv\n</parameter>\n</function>\n</tool_call>{% endif %}"
)
GLM45 = (
    _SHOWN
    + "<tool_call>{function-name}\n<arg_key>k</arg_key>\n<arg_value>v</arg_value></tool_call>{% endif %}"
)
GLM47 = (
    _SHOWN + "<tool_call>{function-name}<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>{% endif %}"
)
LLAMA = (
    '<|start_header_id|>{% if tools is not none %}{{ \'Respond in the format {"name": function name, '
    '"parameters": dictionary of argument name and its value}.\' }}{% endif %}'
)
THINKS = "{% if enable_thinking is false %}<think>\n\n</think>{% endif %}"


@pytest.mark.parametrize(
    ("template", "architecture", "tool", "reasoning"),
    [
        pytest.param(QWEN, "qwen2", "hermes", None, id="Qwen2.5"),
        pytest.param(QWEN + THINKS, "qwen3", "hermes", "qwen3", id="Qwen3"),
        pytest.param(
            QWEN + r"{{ '<|im_start|>assistant\n<think>\n' }}",
            "qwen3_moe",
            "hermes",
            "deepseek_r1",
            id="opens thoughts",
        ),
        pytest.param(CODER, "qwen3_next", "qwen3_coder", None, id="Qwen3-Coder"),
        pytest.param(CODER + THINKS, "nemotron_h", "qwen3_coder", "nemotron_v3", id="Nemotron 3"),
        pytest.param(CODER + THINKS, "mimo_v2_flash", "mimo", "mimo", id="an architecture's own"),
        pytest.param(GLM45 + THINKS, "glm4_moe", "glm45", "glm45", id="GLM-4.5"),
        pytest.param(GLM47 + THINKS, "glm_moe_dsa", "glm47", "glm45", id="GLM-5"),
        pytest.param(
            _SHOWN + "[AVAILABLE_TOOLS][TOOL_CALLS][THINK]", "mistral3", "mistral", "mistral", id="Mistral"
        ),
        pytest.param(LLAMA, "llama", "llama3_json", None, id="Llama 3"),
        pytest.param(_SHOWN + "<|channel|><|start|>", "gpt_oss", "openai", None, id="gpt-oss"),
        pytest.param(
            _SHOWN + "<minimax:tool_call><think>", "minimax_m2", "minimax_m2", "minimax_m2", id="MiniMax"
        ),
        pytest.param(
            _SHOWN + "<|tool_call>call:<|channel>thought", "gemma4", "gemma4", "gemma4", id="Gemma 4"
        ),
        pytest.param(
            "<\uff5ctool▁calls▁begin\uff5c>{{ messages }}",
            "deepseek_v3",
            None,
            None,
            id="calls of the past, no tools shown",
        ),
    ],
)
def test_marks_of_the_template_name_the_parsers(
    template: str, architecture: str, tool: str | None, reasoning: str | None
) -> None:
    found = chat_format.find_template_format(template, template, architecture, "chat_template.jinja")
    assert (found.tool_parser, found.reasoning_parser) == (tool, reasoning)
    assert bool(found.tool_why), "each choice has its reason"
    assert bool(found.reasoning_why) == bool(reasoning)


@pytest.mark.parametrize(
    ("template", "why"),
    [
        pytest.param(
            "{% for m in messages %}{{ m.tools }} tools{% endfor %}", "shows the model no tools", id="SmolLM2"
        ),
        pytest.param("{{ '# Tools: no tools' }}", "shows the model no tools", id="a word of a text"),
        pytest.param(_SHOWN + "@@call{% endif %}", "as no rule knows", id="another format"),
        pytest.param(
            _SHOWN + "[AVAILABLE_TOOLS][TOOL_CALLS]<seed:tool_call>",
            "mistral or seed_oss: none is set",
            id="of two",
        ),
    ],
)
def test_without_a_parser_the_reason_is_given(template: str, why: str) -> None:
    found = chat_format.find_template_format(template, template, "llama", "chat_template.jinja")
    assert found.tool_parser is None
    assert why in found.tool_why


def test_marks_of_thoughts_without_a_rule_are_told() -> None:
    found = chat_format.find_template_format("<think>{{ messages }}", "", "llama", "chat_template.jinja")
    assert found.reasoning_parser is None
    assert "thoughts stay in the answer" in found.reasoning_why


@pytest.mark.parametrize(
    ("files", "tool"),
    [
        pytest.param({"chat_template.jinja": QWEN}, "hermes", id="a file of its own"),
        pytest.param(
            {"tokenizer_config.json": json.dumps({"chat_template": CODER})}, "qwen3_coder", id="tokenizer's"
        ),
        pytest.param(
            {"chat_template.jinja": QWEN, "tokenizer_config.json": json.dumps({"chat_template": CODER})},
            "hermes",
            id="the file wins, as in transformers",
        ),
        pytest.param(
            {
                "tokenizer_config.json": json.dumps(
                    {
                        "chat_template": [
                            {"name": "default", "template": "{{ messages }}"},
                            {"name": "tool_use", "template": QWEN},
                        ]
                    }
                )
            },
            "hermes",
            id="a template for requests with tools",
        ),
        pytest.param({"tokenizer_config.json": "{"}, None, id="not JSON"),
        pytest.param({"tokenizer_config.json": "[]"}, None, id="not a table"),
        pytest.param({"tokenizer_config.json": '{"chat_template": 1}'}, None, id="not a text"),
        pytest.param({}, None, id="no template"),
    ],
)
def test_the_template_is_read_where_transformers_reads_it(
    tmp_path: Path, files: dict[str, str], tool: str | None
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "qwen3"}')
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert chat_format.read_folder_format(tmp_path).tool_parser == tool


def test_a_table_is_believed() -> None:
    found = chat_format.read_table_format(config.load_models()["qwen3-8b"])
    assert (found.tool_parser, found.reasoning_parser) == ("hermes", "qwen3")
    assert chat_format.read_table_format(None) == ChatFormat()


def _values(engine: str, version: str, flag: str) -> set[str]:
    flags = read_table(
        config.find_table_files(accepted_flags.PARSERS_FOLDER, ".json")[f"{engine}-{version}"]
    )["flags"]
    return set(next(each["values"] for each in flags if flag in each["names"]))


@pytest.mark.parametrize("version", VLLM)
@pytest.mark.parametrize(
    ("rules", "flag"),
    [(TOOL_RULES, "--tool-call-parser"), (REASONING_RULES, "--reasoning-parser")],
    ids=["tools", "reasoning"],
)
def test_every_rule_names_a_parser_of_vllm(rules: tuple[ParserRule, ...], flag: str, version: str) -> None:
    assert {rule.parser for rule in rules} <= _values("vllm", version, flag)
    assert all(rule.marks and rule.source for rule in rules)


def test_sglang_has_what_its_names_promise() -> None:
    tools, reasoning = (
        _values("sglang", SGLANG, "--tool-call-parser"),
        _values("sglang", SGLANG, "--reasoning-parser"),
    )
    for rule in TOOL_RULES:
        own, _ = sglang.choose_parsers(ChatFormat(rule.parser))
        assert own is None or own in tools
        assert own or rule.parser.replace("_", "") not in {each.replace("_", "") for each in tools}
    for rule in REASONING_RULES:
        _, own = sglang.choose_parsers(ChatFormat(None, rule.parser))
        assert own is None or own in reasoning
    assert vllm.choose_parsers(ChatFormat("openai")) == ("openai", None)
    assert sglang.choose_parsers(ChatFormat("openai")) == ("gpt-oss", "gpt-oss")
    known = {
        engine: {*_values(*engine, "--tool-call-parser")}
        for engine in (("vllm", VLLM[0]), ("sglang", SGLANG))
    }
    assert {name for rule in TOOL_RULES for name in rule.same_parsers} <= set.union(*known.values())
