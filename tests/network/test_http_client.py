"""The one HTTP client, against real servers: with their own certificate, a proxy, an odd one."""

import http.server
import json
import shutil
import ssl
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from medley import credentials
from medley.network import http_client
from medley.serving import api, batch_client, readiness
from tests.odd_input import COUNTS, hold, json_texts, texts, values
from tests.problems import raises_problem

HELLO = [{"role": "user", "content": "Hello"}]
KEY = "sk-of-this-test"
MODELS = {"object": "list", "data": [{"id": "demo", "root": "/m", "max_model_len": 2048}]}
ANSWER = {
    "choices": [{"message": {"role": "assistant", "content": "cuju"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 8},
}
COMPLETION = {"choices": [{"text": "cuju"}], "usage": {"prompt_tokens": 1, "completion_tokens": 8}}
CHUNK = {
    "choices": [{"index": 0, "delta": {"content": "cuju"}}],
    "usage": {"prompt_tokens": 1, "completion_tokens": 8},
}


class Seen:
    """A server that answers everything alike, and keeps what it was sent."""

    def __init__(self, body: bytes, status: int = 200, headers: tuple[tuple[str, str], ...] = ()) -> None:
        self.asked: list[tuple[str, dict[str, str]]] = []
        seen = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                seen.asked.append((self.path, {name.lower(): value for name, value in self.headers.items()}))
                self.rfile.read(int(self.headers.get("content-length") or 0))
                self.send_response(status)
                for name, value in headers:
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            do_POST = do_CONNECT = do_GET  # noqa: N815 - http.server's names

            def log_message(self, *_: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]


@contextmanager
def running(seen: Seen) -> Iterator[Seen]:
    thread = threading.Thread(target=seen.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        seen.server.shutdown()
        seen.server.server_close()
        thread.join()


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A server's own, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    (folder / "openssl.cnf").write_text("[req]\ndistinguished_name = name\n[name]\n")
    words = (
        "req",
        "-config",
        str(folder / "openssl.cnf"),
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-subj",
        "/CN=127.0.0.1",
        "-days",
        "2",
    )
    files = ("-keyout", str(folder / "key"), "-out", str(folder / "cert"))
    subprocess.run(("openssl", *words, *files), check=True, capture_output=True)
    return folder / "cert", folder / "key"


@pytest.mark.skipif(not shutil.which("openssl"), reason="openssl makes the certificate, and is not here")
@pytest.mark.parametrize("scheme", ["https", "HTTPS", "Https"])
def test_a_server_with_its_own_certificate_gets_no_key(scheme: str, certificate: tuple[Path, Path]) -> None:
    with running(Seen(json.dumps(MODELS).encode())) as seen:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
        seen.server.socket = context.wrap_socket(seen.server.socket, server_side=True)
        seen.server.handle_error = lambda *_: None  # type: ignore[method-assign] # the client hangs up, rightly
        with raises_problem(f"https://127.0.0.1:{seen.port}/v1", cause="CERTIFICATE_VERIFY_FAILED"):
            api.list_models(api.complete_url(f"{scheme}://127.0.0.1:{seen.port}"), KEY)
        assert not seen.asked


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
def test_no_proxy_sees_what_is_for_this_host(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Seen(b"", 502)) as proxy, running(Seen(json.dumps(COMPLETION).encode())) as server:
        monkeypatch.setenv(name, f"http://127.0.0.1:{proxy.port}")
        assert readiness.request_probe_answer(f"http://127.0.0.1:{server.port}/v1", "demo")
        assert not proxy.asked
        # A host of elsewhere is asked by way of it, as the environment says.
        assert http_client.send_request("GET", "http://far.invalid/", limit_s=5).status == 502
        assert proxy.asked


def test_a_redirect_does_not_take_the_key_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    with running(Seen(b"{}")) as thief:
        away = (("Location", f"http://127.0.0.1:{thief.port}/v1/models"),)
        with running(Seen(b"", 307, away)) as server:
            address = f"http://127.0.0.1:{server.port}/v1/models"
            typed = f"printf 'Authorization: Bearer %s\\n' \"$MEDLEY_API_KEY\" | curl {address} -H @-"
            with raises_problem("'any'", cause="307", fix=typed):
                api.list_models(f"http://127.0.0.1:{server.port}/v1", KEY)
            assert server.asked[0][1]["authorization"] == f"Bearer {KEY}"
            monkeypatch.setenv(credentials.API_KEY_VARIABLE, KEY)
            subprocess.run(["bash", "-c", typed], check=True, capture_output=True)
            assert server.asked[1][1]["authorization"] == f"Bearer {KEY}"
        assert not thief.asked


def test_an_account_s_key_is_not_sent_to_whoever_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    from medley.cli import Medley

    events = f"data: {json.dumps(CHUNK)}\n\ndata: [DONE]\n\n".encode()
    with running(Seen(events)) as server:
        monkeypatch.setenv("OPENAI_API_KEY", "sk-of-an-account")
        url = f"http://127.0.0.1:{server.port}/v1"
        Medley.run(["medley", "chat", "--url", url, "--model", "demo", "Hello"], exit=False)
        assert server.asked
        assert all("authorization" not in headers for _, headers in server.asked)
        monkeypatch.setenv(credentials.API_KEY_VARIABLE, KEY)
        monkeypatch.setenv("MEDLEY_URL", url)
        Medley.run(["medley", "chat", "--url", url, "--model", "demo", "Hello"], exit=False)
        assert server.asked[-1][1]["authorization"] == f"Bearer {KEY}"


def test_what_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_client, "MAX_ANSWER_BYTES", 1 << 16)
    with running(Seen(b"x" * (1 << 20))) as server:
        url = f"http://127.0.0.1:{server.port}/v1"
        for ask in (
            lambda: api.list_models(url),
            lambda: list(api.stream_chat(url, "demo", HELLO, max_tokens=1)),
        ):
            with raises_problem(f"{url}/", cause=" MiB", fix="ss -ltnp"):
                ask()


@pytest.mark.parametrize(
    "url",
    [
        "http://a..b/v1",
        f"http://{'x' * 64}/v1",
        "ftp://h/v1",
        "file:///etc/passwd",
        "http://",
        "http://[::1",
        "http://h:99999999",
        "\x00",
    ],
)
def test_what_is_no_address_of_http_is_a_problem(url: str) -> None:
    with raises_problem(repr(url), fix="--url http://HOST:PORT/v1"):
        http_client.parse_url(url)


@pytest.mark.parametrize(
    ("host", "found"),
    [
        *(("127.0.0.1", True), ("127.8.8.8", True), ("::1", True), ("[::1]", True), ("localhost", True)),
        *(
            ("203.0.113.9", False),
            ("2001:db8::9", False),
            ("far.example", False),
            ("localhost.example", False),
        ),
    ],
)
def test_which_host_is_this_one(host: str, found: bool) -> None:  # noqa: FBT001 - of the table above
    assert http_client.is_this_host(host) is found


def test_another_program_is_told_to_go_without_a_proxy() -> None:
    assert http_client.list_no_proxy_variables("127.0.0.1", {}) == {}
    assert http_client.list_no_proxy_variables("far.example", {"HTTP_PROXY": "http://p"}) == {}
    told = http_client.list_no_proxy_variables(
        "127.0.0.1", {"HTTP_PROXY": "http://p", "NO_PROXY": "a.example"}
    )
    assert told == {"no_proxy": "127.0.0.1,a.example", "NO_PROXY": "127.0.0.1,a.example"}


def replies(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Have the client's transport answer with a text: 10,000 connections would measure the kernel."""
    said = [""]
    handler = httpx.MockTransport(lambda _: httpx.Response(200, text=said[0]))
    real = http_client.choose_client_options
    monkeypatch.setattr(http_client, "choose_client_options", lambda url: {**real(url), "transport": handler})

    def reply(text: str) -> None:
        said[0] = text.encode("utf-8", "replace").decode()

    return reply


URL = "http://127.0.0.1:8000/v1"
READERS: dict[str, tuple[Callable[[], Any], Any]] = {
    "models": (lambda: api.list_model_cards(URL), MODELS),
    "completion": (lambda: readiness.request_probe_answer(URL, "demo"), COMPLETION),
    "short chat": (lambda: readiness.request_probe_answer(URL, "demo"), ANSWER),
    "chat": (lambda: list(api.stream_chat(URL, "demo", HELLO, max_tokens=1)), CHUNK),
}


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("reader", READERS)
def test_odd_input_of_an_api(reader: str, count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    reply = replies(monkeypatch)
    read, sample = READERS[reader]
    prefix = "data: " if reader == "chat" else ""

    def asked(text: str) -> None:
        reply(prefix + text)
        read()

    hold(asked, json_texts([sample]), count)


@pytest.mark.parametrize("count", COUNTS)
def test_odd_input_of_refusals_and_batches(count: int) -> None:
    hold(api.read_error_message, json_texts([{"error": {"message": "no", "code": 404}}]), count)
    hold(batch_client.count_tokens, (each for each in values([COMPLETION]) if isinstance(each, dict)), count)
    hold(api.complete_url, texts(["http://spark-1:8000/v1", "spark-1"]), count)
