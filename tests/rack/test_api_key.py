"""Both engines with a key, asked from another host: every route that they list, with and without it."""

import json
import re
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from medley.serving import edge
from tests.rack.cluster import MEDLEY, Served, served
from tests.rack.conftest import Up
from tests.rack.host import Host

pytestmark = pytest.mark.rack
ROUTES = tomllib.loads(Path(edge.__file__).with_name("edge_routes.toml").read_text())
KEY, COPY = "/tmp/home/.local/state/medley/api-key", "/tmp/home/medley-key"
Routes = dict[str, tuple[str, ...]]
"""The methods of each path; none of a websocket or a mount."""
_LOGGED = re.compile(r"Route: (\S+), (?:Methods: (.*)|Endpoint: .*)")
# What these would do to a server that is asked further questions, or to its disk.
_HARM = re.compile(
    r"abort|cache|dump|elastic|expert|freeze|load|lora|memory|pause|profile|session|trace|weights"
)

LISTED = """
import json
from sglang.srt.entrypoints.http_server import app
def listed(routes, prefix=""):
    for route in routes:
        if hasattr(route, "original_router"):
            yield from listed(route.original_router.routes, prefix + route.include_context.prefix)
        else:
            yield prefix + route.path, sorted(getattr(route, "methods", None) or [])
found = {}
for path, methods in listed(app.routes):
    found.setdefault(path, []).extend(methods)
print(json.dumps(found))
"""
ASKED = """
import json, sys, urllib.error, urllib.request
url, asked, key = json.loads(sys.argv[1])
def status(method, path):
    headers = {"Content-Type": "application/json", **({"Authorization": "Bearer " + key} if key else {})}
    body = b"{}" if method in {"POST", "PUT", "PATCH"} else None
    request = urllib.request.Request(url + path, body, headers, method=method)
    try:
        return urllib.request.urlopen(request, timeout=20).status
    except urllib.error.HTTPError as error:
        return error.code
print(json.dumps([status(*each) for each in asked]))
"""


def statuses(host: Host, asked: list[tuple[str, str]], key: str | None) -> list[int]:
    told = json.dumps(["http://host1:8000", asked, key])
    return json.loads(host.says(sys.executable, "-c", ASKED, told, limit_s=300))  # type: ignore[no-any-return] # a list of numbers


def of_vllm(run: Served) -> Routes:
    """What vLLM 0.32 says when it starts."""
    found: dict[str, set[str]] = {}
    for line in run.lines:
        if match := _LOGGED.search(line):
            found.setdefault(match[1], set()).update((match[2] or "").split(", ") if match[2] else ())
    return {path: tuple(sorted(methods)) for path, methods in found.items()}


def of_sglang(run: Served) -> Routes:
    """SGLang says nothing: its application is imported; its server then mounts /metrics."""
    path = next(line for line in run.lines if "unix_socket.py sglang serve" in line)
    python = re.search(r"(\S+/bin/python3) \S+unix_socket\.py", path)
    assert python
    env = ("env", "SGLANG_USE_CPU_ENGINE=1")
    said = run.host.says(*env, python[1], "-c", LISTED, limit_s=120)
    found = json.loads(said.splitlines()[-1])
    return {"/metrics": ()} | {path: tuple(sorted(set(methods))) for path, methods in found.items()}


def questions(routes: Routes) -> Iterator[tuple[str, str]]:
    """Each method of each, and of what lists none (a websocket, a mount) the one that opens it."""
    for path, methods in sorted(routes.items()):
        filled = re.sub(r"\{[^}]*\}", "x", path)
        for method in methods or ("GET",):
            yield method, filled


def harmless(method: str, path: str) -> bool:
    return method in {"GET", "HEAD"} and not _HARM.search(path)


@pytest.mark.parametrize("engine", ["vllm", pytest.param("sglang", marks=pytest.mark.slow)])
def test_only_health_answers_another_host_without_the_key(engine: str, rack: Up) -> None:
    """With the key the listed routes answer, and no other of the engine's."""
    head, other = rack(2).hosts
    run = served(head, "--engine", engine, "--host", "0.0.0.0")
    key = head.path(KEY).read_text()
    routes = of_vllm(run) if engine == "vllm" else of_sglang(run)
    assert {"/health", "/metrics", "/v1/chat/completions"} <= set(routes)
    assert len(routes) > 30
    asked = list(questions(routes))
    bare = dict(zip(asked, statuses(other, asked, None), strict=True))
    assert {each for each, status in bare.items() if status != 401} == {("GET", "/health")}
    may = [each for each in asked if harmless(*each)]
    keyed = dict(zip(may, statuses(other, may, key), strict=True))
    passes = {each for each, status in keyed.items() if status != 404}
    assert {("GET", "/health"), ("GET", "/metrics"), ("GET", "/v1/models")} <= passes
    assert passes <= {("GET", path) for path in ("/health", *ROUTES["get"])}

    refused = head.run([*MEDLEY, "chat", "--url", "http://host1:8000", "--max-tokens", "4", "Hello"])
    assert refused.status == 1
    assert any("requires an API key" in line for line in refused.lines)
    given = head.run([*MEDLEY, "chat", "--max-tokens", "4", "Hello"], limit_s=60)
    assert given.status == 0, given.lines

    # From another host the key travels only where its user says so.
    other.path(COPY).write_text(key)
    words = [*MEDLEY, "chat", "--url", "http://host1:8000", "--api-key", COPY, "--max-tokens", "4", "Hello"]
    open_key = other.run(words)
    assert open_key.status == 1
    assert any("host1 unencrypted" in line for line in open_key.lines)
    given = other.run([*words, "--insecure"], limit_s=60)
    assert given.status == 0, given.lines
    shown = "\n".join((*run.lines, *head.run(["sh", "-c", "cat /proc/[0-9]*/cmdline"]).lines))
    assert key not in shown
