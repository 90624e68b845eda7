"""What the edge's configuration says; tests/engine/test_edge.py attacks a running one."""

import json
from pathlib import Path

import pytest

from medley.engine.server_spec import Tls
from medley.serving.edge import Edge, EdgeClosure, list_accepted_keys

EDGE = Edge("127.0.0.1", 8000, Path("/run/8000/engine.sock"), Path("/run/8000"))
KEY = "sk-0123456789abcdef01234567"


def handlers(edge: Edge, closed: EdgeClosure | None = None) -> str:
    return json.dumps(edge.build_configuration(closed)["apps"]["http"]["servers"]["edge"]["routes"])


def test_without_a_key_the_own_host_is_answered_alone() -> None:
    assert '"421"' in handlers(EDGE)
    assert '"421"' not in handlers(EDGE.replace(is_loopback=False))


def test_with_a_key_others_are_refused() -> None:
    text = handlers(EDGE.replace(keys={"alice": KEY}))
    assert KEY in text
    assert '"401"' in text
    assert '"421"' not in text


def test_a_closed_one_says_why_and_when_to_retry() -> None:
    text = handlers(EDGE, EdgeClosure("memory is low", 7))
    assert "memory is low" in text
    assert '"Retry-After": ["7"]' in text
    assert "Retry-After" not in handlers(EDGE)


@pytest.mark.parametrize("tls", [Tls(), Tls(Path("/c.pem"), Path("/k.pem"))])
def test_tls_takes_http_1_only(tls: Tls) -> None:
    configuration = EDGE.replace(tls=tls).build_configuration()
    assert configuration["apps"]["http"]["servers"]["edge"]["protocols"] == ["h1"]
    assert ("pki" in configuration["apps"]) == (tls.certificate is None)


def test_the_keys_of_a_running_configuration_are_read_back() -> None:
    keys = {"alice": KEY, "bob": KEY[::-1]}
    for given in (None, {}, keys):
        edge = EDGE.replace(keys=given)
        routes = edge.build_configuration()["apps"]["http"]["servers"]["edge"]["routes"]
        assert list_accepted_keys(json.loads(json.dumps(routes))) == set((given or {}).values())


def test_a_server_that_has_lost_its_keys_refuses_all() -> None:
    assert '"401"' in handlers(EDGE.replace(keys={}))
