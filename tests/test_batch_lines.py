import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from medley.batch.lines import Bad, Request, lines


def line(**changed: Any) -> str:
    table = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"messages": [{"role": "user", "content": "Hello"}]},
    }
    return json.dumps({name: value for name, value in {**table, **changed}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        pytest.param(line(), "/v1/chat/completions", id="chat"),
        pytest.param(line(method=None), "/v1/chat/completions", id="POST goes without saying"),
        pytest.param(line(url="/v1/completions", body={"prompt": "x"}), "/v1/completions", id="completion"),
        pytest.param(line(url="/v1/embeddings", body={"input": "x"}), "/v1/embeddings", id="embedding"),
        pytest.param(f"  {line()}\r", "/v1/chat/completions", id="white space around it"),
    ],
)
def test_a_request(text: str, url: str) -> None:
    (found,) = lines([text])
    assert isinstance(found, Request)
    assert (found.number, found.custom_id, found.url) == (1, "a", url)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        pytest.param("{", "it is no JSON", id="cut off"),
        pytest.param("[" * 10_000, "it is no JSON", id="too deep"),
        pytest.param("[1]", "it is no JSON object", id="a list"),
        pytest.param(line(custom_id=None), "custom_id must be text", id="no id"),
        pytest.param(line(custom_id=7), "custom_id must be text", id="a number for an id"),
        pytest.param(line(custom_id="x" * 513), "custom_id must be text", id="a long id"),
        pytest.param(line(method="GET"), "only POST", id="another method"),
        pytest.param(line(url="/v1/files"), "known are /v1/chat/completions", id="another url"),
        pytest.param(line(url=None), "known are", id="no url"),
        pytest.param(line(body="x"), "body must be an object", id="no body"),
        pytest.param(line(body={}), "body has no messages", id="no messages"),
        pytest.param(line(body={"messages": [], "stream": True}), "whole answers", id="in pieces"),
    ],
)
def test_what_is_wrong(text: str, why: str) -> None:
    (found,) = lines([text])
    assert isinstance(found, Bad)
    assert why in found.why


def test_lines_are_counted_as_an_editor_does_and_an_id_counts_once() -> None:
    first, second, third = lines([line(), "", line(custom_id="b"), "  ", line()])
    assert [first.number, second.number, third.number] == [1, 3, 5]
    assert isinstance(third, Bad)
    assert third.why == "line 1 has the same custom_id"


@given(st.text(max_size=60))
def test_any_text_is_a_request_or_wrong(text: str) -> None:
    assert all(isinstance(each, Request | Bad) for each in lines([text]))
