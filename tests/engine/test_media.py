"""Media of requests: no engine fetches a URL or opens a file that its owner did not allow."""

import base64
import json
import signal
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from medley.command import Command
from medley.environment import payload, virtualenv
from medley.process import run
from tests.servers import Start

pytestmark = pytest.mark.engine

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
# vLLM's own connector, as its server makes it from the flags that engine_server adds.
VLLM = f"""
import asyncio, json, sys
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server
from vllm.engine.arg_utils import AsyncEngineArgs
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.multimodal.media import MediaConnector
parser = AsyncEngineArgs.add_cli_args(FlexibleArgumentParser())
options = parser.parse_args(sys.argv[2:] + engine_server.limit_vllm_media(sys.argv[2:]))
connector = MediaConnector(
    allowed_local_media_path=options.allowed_local_media_path,
    allowed_media_domains=options.allowed_media_domains,
)
def fetch(url):
    try:
        return str(connector.fetch_image(url).media.size)
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
def fetch_async(url):
    try:
        return str(asyncio.run(connector.fetch_image_async(url)).media.size)
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
print(json.dumps([[fetch(url), fetch_async(url)] for url in json.loads(sys.argv[1])]))
"""
SGLANG = f"""
import json, sys
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server
from sglang.srt.managers.io_struct import EmbeddingReqInput, GenerateReqInput
from sglang.srt.utils import ImageData
engine_server.limit_sglang_media([])
def make(request_class, **media):
    try:
        request_class(text="x", sampling_params={{}}, **media).normalize_batch_and_arguments()
        return "taken"
    except ValueError as error:
        return str(error)
print(json.dumps([
    make(request_class, **media)
    for url in json.loads(sys.argv[1])
    for request_class in (GenerateReqInput, EmbeddingReqInput)
    for media in (dict(image_data=[ImageData(url=url)]), dict(video_data=[url]), dict(audio_data=url))
]))
"""

# SGLang's own download, as its server sets it up from the flags that engine_server adds.
SGLANG_DOWNLOAD = f"""
import argparse, json, sys
sys.path.insert(0, {str(payload.FOLDER)!r})
import engine_server
from sglang.srt.server_args import ServerArgs
from sglang.srt.utils.common import configure_media_url_security, download_remote_media
parser = argparse.ArgumentParser()
ServerArgs.add_cli_args(parser)
options = parser.parse_args(["--model-path", "m", *engine_server.limit_sglang_media([])])
configure_media_url_security(options.allowed_media_domains)
def download(url):
    try:
        return download_remote_media(url, 30).decode()
    except Exception as error:
        return type(error).__name__ + ": " + str(error)
print(json.dumps([download(url) for url in json.loads(sys.argv[1])]))
"""

# A video that is a script of FFmpeg, as vLLM opens it: before and after the server's own setting.
SCRIPTED = f"""
import io, json, os, sys
sys.path.insert(0, {str(payload.FOLDER)!r})
import cv2, engine_server, numpy
from cv2 import videoio_registry
os.chdir(os.path.dirname(__file__))
def opens():
    cv2.imwrite("own.png", numpy.zeros((48, 64, 3), numpy.uint8))
    video = io.BytesIO(b"ffconcat version 1.0\\nfile own.png\\nduration 1\\n")
    backends = filter(videoio_registry.hasBackend, videoio_registry.getStreamBufferedBackends())
    return cv2.VideoCapture(video, next(backends), []).isOpened()
opened = opens()
engine_server.close_working_folder(engine_server.Path("empty").absolute())
print(json.dumps([opened, opens()]))
"""


@contextmanager
def counting() -> Iterator[tuple[str, list[str]]]:
    """A server of one picture, and the paths that were asked; of /moved, localhost has the picture."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            if self.path == "/moved":
                self.send_response(302)
                self.send_header("Location", f"http://localhost:{server.server_port}/x.png")
            else:
                self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/x.png", asked
    finally:
        server.shutdown()
        server.server_close()


def ask(
    engine: str, program: str, urls: list[str], tmp_path: Path, *words: str, hosts: str = ""
) -> list[object]:
    found = virtualenv.find_environment(f"{engine}-cpu")
    assert found, f"medley env build {engine}-cpu"
    (tmp_path / "program.py").write_text(program)
    argv = (str(found.python), str(tmp_path / "program.py"), json.dumps(urls), *words)
    env = {"MEDLEY_MEDIA_HOSTS": hosts, "SGLANG_USE_CPU_ENGINE": "1"}
    done = run(Command(argv, env), limit_s=300)
    assert done.status == 0, done.lines
    answers: list[object] = json.loads(done.lines[-1])
    return answers


def test_vllm_fetches_nothing_by_default(tmp_path: Path) -> None:
    with counting() as (url, asked):
        urls = [url, f"file://{__file__}", f"data:image/png;base64,{PIXEL}"]
        refused, local, data = (str(each) for each in ask("vllm", VLLM, urls, tmp_path))
        assert refused.count("must be from one of the allowed domains") == 2
        assert local.count("Cannot load local files") == 2
        assert data.count("(1, 1)") == 2
        assert asked == []
        ask("vllm", VLLM, [url], tmp_path, hosts="127.0.0.1")
        ask("vllm", VLLM, [url], tmp_path, "--allowed-media-domains", "127.0.0.1")
        assert asked == ["/x.png"] * 4


@pytest.mark.parametrize(("choice", "followed"), [("", []), ("1", ["/x.png"] * 2)])
def test_vllm_follows_a_redirect_only_for_its_user(
    choice: str, followed: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("VLLM_MEDIA_URL_ALLOW_REDIRECTS", raising=False)
    if choice:
        monkeypatch.setenv("VLLM_MEDIA_URL_ALLOW_REDIRECTS", choice)
    with counting() as (url, asked):
        ask("vllm", VLLM, [url.replace("x.png", "moved")], tmp_path, hosts="127.0.0.1")
        assert sorted(asked) == ["/moved"] * 2 + followed


def test_sglang_follows_a_redirect_only_to_allowed_hosts(tmp_path: Path) -> None:
    with counting() as (url, asked):
        moved = url.replace("x.png", "moved")
        answers = ask("sglang", SGLANG_DOWNLOAD, [moved], tmp_path, hosts="127.0.0.1")
        assert "domain is not allowed" in str(answers)
        assert asked == ["/moved"]
        ask("sglang", SGLANG_DOWNLOAD, [moved], tmp_path, hosts="127.0.0.1,localhost")
        assert asked == ["/moved", "/moved", "/x.png"]
        ask("sglang", SGLANG_DOWNLOAD, [url], tmp_path)
        assert len(asked) == 3


def test_a_video_opens_no_file(tmp_path: Path) -> None:
    assert ask("vllm", SCRIPTED, [], tmp_path) == [True, False]


def test_sglang_takes_only_data_by_default(tmp_path: Path) -> None:
    urls = ["http://127.0.0.1/x.png", "file:///etc/passwd", "/etc/passwd", "AAAA"]
    refused = ask("sglang", SGLANG, urls, tmp_path)
    assert len(refused) == 24
    assert all("only as data: URLs" in str(each) for each in refused)
    taken = ["data:image/png;base64,AAAA", "http://a.example/x.png"]
    assert set(map(str, ask("sglang", SGLANG, taken, tmp_path, hosts="b.example,a.example"))) == {"taken"}
    near = ["http://a.example.b.example/", "http://a.example@b.example/", "http://b.example\\@a.example/"]
    assert "taken" not in ask("sglang", SGLANG, near, tmp_path, hosts="a.example")
    script = base64.b64encode(b"ffconcat version 1.0\nfile own.png\n").decode()
    refused = ask("sglang", SGLANG, [f"data:video/mp4;base64,{script}"], tmp_path)
    assert all("not a playlist" in str(each) for each in refused)


@pytest.mark.slow
def test_a_request_to_sglang(start: Start, free_port: int) -> None:
    words = ("serve", "demo", "--engine", "sglang", "--port", str(free_port))
    served = start(Command((sys.executable, "-m", "medley", *words)))
    url = served.ready()
    with counting() as (picture, asked):
        # The demo model takes text only, so this is SGLang's own route, where the check comes first.
        for media in (picture, "/etc/hostname"):
            request = urllib.request.Request(
                f"{url.removesuffix('/v1')}/classify",
                json.dumps({"text": "x", "image_data": media}).encode(),
                {"Content-Type": "application/json"},
            )
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=120)
            with caught.value as answer:
                assert (answer.code, "only as data: URLs" in answer.read().decode()) == (400, True)
        assert asked == []
    assert served.interrupt() == 128 + signal.SIGINT
