import json
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from medley.errors import Problem
from medley.model import hub
from tests.problems import raises_problem


class Hub(BaseHTTPRequestHandler):
    """Answers as the model hub does: 401 for what does not exist."""

    def do_GET(self) -> None:
        known = {"/api/models/org/open": 200, "/api/models/org/broken": 500}
        gated = self.path == "/api/models/org/gated" and self.headers.get("authorization") == "Bearer secret"
        text = json.dumps({"path": self.path}).encode()
        self.send_response(200 if gated else known.get(self.path, 401))
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture(autouse=True)
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Hub) as server:
        Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}).start()
        url = f"http://127.0.0.1:{server.server_port}"
        for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("HF_ENDPOINT", url)
        monkeypatch.setenv("HF_HOME", str(tmp_path))
        yield url
        server.shutdown()


def test_what_the_hub_has_can_be_had() -> None:
    hub.require_model("org/open")


def test_a_token_opens_what_is_gated(monkeypatch: pytest.MonkeyPatch) -> None:
    with raises_problem("org/gated", cause=" 401", fix="export HF_TOKEN=…"):
        hub.require_model("org/gated")
    monkeypatch.setenv("HF_TOKEN", "secret")
    hub.require_model("org/gated")


@pytest.mark.parametrize(
    ("repository", "what"),
    [
        pytest.param("org/none", "no model org/none", id="no such name"),
        pytest.param("org/broken", "cannot say", id="the hub is unwell"),
    ],
)
def test_what_cannot_be_had_is_a_problem(repository: str, what: str) -> None:
    with pytest.raises(Problem) as caught:
        hub.require_model(repository)
    assert what in caught.value.what


def test_what_is_cached_needs_no_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with raises_problem("org/none", cause=("http://127.0.0.1:9 ", str(tmp_path / "hub"))):
        hub.require_model("org/none")
    snapshot = tmp_path / "hub" / "models--org--none" / "snapshots" / "abc"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    with raises_problem("org/none", cause=("http://127.0.0.1:9 ", str(tmp_path / "hub"))):
        hub.require_model("org/none")  # config.json alone is no model
    (snapshot / "model.safetensors").touch()
    hub.require_model("org/none")


def test_offline_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with raises_problem("org/open", cause="HF_HUB_OFFLINE"):
        hub.require_model("org/open")


def test_the_other_name_of_offline_says_so_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRANSFORMERS_OFFLINE", "1")
    with raises_problem("org/open", cause="TRANSFORMERS_OFFLINE", fix="unset TRANSFORMERS_OFFLINE"):
        hub.require_model("org/open")


ANSWERS = """
import json
from huggingface_hub import constants, get_token
from medley.model import hub
from tests.problems import raises_problem
token = get_token()
library = [constants.HF_HUB_CACHE, constants.ENDPOINT, constants.HF_HUB_OFFLINE, token and f"Bearer {token}"]
headers = hub.build_headers()
offline = bool(hub.find_offline_variable())
medley = [str(hub.find_cache_folder()), hub.find_endpoint(), offline, headers.get("Authorization")]
print(json.dumps([library, medley]))
"""


@pytest.mark.parametrize(
    ("variables", "cache", "offline", "token"),
    [
        ({}, "~/.cache/huggingface/hub", False, None),
        ({"HF_HOME": "~/account", "HF_HUB_OFFLINE": "1"}, "~/account/hub", True, "three"),
        ({"HF_HOME": "$HOME/account", "HF_HUB_CACHE": "~/y", "HF_TOKEN": "one"}, "~/y", False, "one"),
        ({"XDG_CACHE_HOME": "/x", "TRANSFORMERS_OFFLINE": "yes"}, "/x/huggingface/hub", True, None),
        ({"XDG_CACHE_HOME": "/x", "HF_HOME": "/y", "HUGGING_FACE_HUB_TOKEN": "two"}, "/y/hub", False, "two"),
        ({"HUGGINGFACE_HUB_CACHE": "/x", "HF_TOKEN_PATH": "~/account/token"}, "/x", False, "three"),
        (
            {"HUGGINGFACE_HUB_CACHE": "/x", "HF_HUB_CACHE": "/y", "HF_ENDPOINT": "http://mirror/"},
            "/y",
            False,
            None,
        ),
        ({"HF_HUB_OFFLINE": "off", "TRANSFORMERS_OFFLINE": "1"}, "~/.cache/huggingface/hub", False, None),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else "",
)
def test_the_environment_means_what_it_means_to_the_library(
    variables: Mapping[str, str], cache: str, *, offline: bool, token: str | None, tmp_path: Path
) -> None:
    (tmp_path / "account").mkdir()
    (tmp_path / "account" / "token").write_text("three\n")
    command, env = [sys.executable, "-c", ANSWERS], {"HOME": str(tmp_path), **variables}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    library, medley = json.loads(done.stdout)
    assert medley == library
    assert medley[0] == cache.replace("~", str(tmp_path))
    assert medley[2:] == [offline, token and f"Bearer {token}"]


def test_a_login_opens_what_is_gated(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret")
    hub.require_model("org/gated")
