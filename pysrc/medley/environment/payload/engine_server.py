"""Run an engine whose server listens on a socket, and answers as clients of OpenAI and Anthropic expect.

    python engine_server.py vllm serve MODEL FLAGS…       runs `vllm serve MODEL FLAGS…`

It runs in the engine's Python (3.10 or later), and needs uvicorn, which serves both engines. It reads:

    MEDLEY_SOCKET        the socket
    MEDLEY_NO_REASONING  set where no parser reads the model's reasoning: see api_answers.py
    MEDLEY_MEDIA_HOSTS   hosts from which it fetches media for requests: a.example,b.example

Without the last, a request's images, audio and video are data: URLs. Otherwise anyone with a key could fetch
from this host's network. It answers from an empty folder: see close_working_folder.

vLLM has --uds. SGLang 0.5.23 has no flag for it (https://github.com/sgl-project/sglang/pull/26006
was closed), and asks itself over TCP to freeze its garbage collector.

In a container of docker's the socket belongs to root, with the mode of the umask (vLLM 0.32.0), so that the
user outside could not connect. The socket's folder is what keeps others away.
"""

import http.client
import os
import socket
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

if __package__:
    from . import api_answers as answers
else:  # run as a program or imported by one; a process that it starts lacks this folder in its path
    sys.path.insert(0, str(Path(__file__).parent))
    import api_answers as answers  # type: ignore[no-redef]

_ATTEMPTS = 60
_DOMAINS_FLAG = "--allowed-media-domains"
_REDIRECTS = "VLLM_MEDIA_URL_ALLOW_REDIRECTS"
_OPENCV_OPTIONS = "OPENCV_FFMPEG_CAPTURE_OPTIONS"
_NO_DOMAIN = "data-urls-only.invalid"
"""A domain that no URL can have, because vLLM fetches from everywhere if its list is empty."""


def install_api() -> None:
    """Wrap each application that uvicorn runs in this process, and let every user connect to the socket."""
    from uvicorn.config import Config

    socket_path, original_bind, original_load = os.environ["MEDLEY_SOCKET"], socket.socket.bind, Config.load

    def bind_and_open(self: socket.socket, address: Any) -> None:  # noqa: ANN401 - as its family has it
        original_bind(self, address)
        if address == socket_path:
            Path(socket_path).chmod(0o666)

    def load_and_complete(config: Any) -> None:  # noqa: ANN401 - uvicorn's
        original_load(config)
        has_reasoning = answers.NO_REASONING not in os.environ
        config.loaded_app = answers.Answers(config.loaded_app, reasoning=has_reasoning)
        close_working_folder(Path(socket_path).with_name("empty"))

    # Neither engine has a hook between the bind and the first connection.
    socket.socket.bind = bind_and_open  # type: ignore[method-assign,assignment]
    Config.load = load_and_complete


def close_working_folder(empty_folder: Path) -> None:
    """Enter an empty folder, because FFmpeg opens the files in it that a request's video or audio names.

    Such a video is a script (https://ffmpeg.org/ffmpeg-formats.html#concat-1), whose file names are relative.
    OpenCV can also limit FFmpeg to the bytes of the request; PyAV and TorchCodec have no variable for it. The
    engine has read its flags by now, which may name files from the folder where the user typed.
    """
    options = os.environ.get(_OPENCV_OPTIONS)
    os.environ[_OPENCV_OPTIONS] = "|".join(filter(None, (options, "protocol_whitelist;data")))
    empty_folder.mkdir(mode=0o700, exist_ok=True)
    os.chdir(empty_folder)


def hide_working_folder() -> None:
    """Let ray.init run in /, because Ray puts its working folder first in the sys.path of each worker."""
    import ray

    original_init = ray.init

    def init_in_root(*words: Any, **options: Any) -> Any:  # noqa: ANN401 - Ray's
        folder = Path.cwd()
        os.chdir("/")
        try:
            return original_init(*words, **options)
        finally:
            os.chdir(folder)

    ray.init = init_in_root


def read_media_hosts() -> list[str]:
    return [host for host in os.environ.get(answers.MEDIA_HOSTS, "").split(",") if host]


def list_media_flags(words: list[str], config_class: type) -> list[str]:
    """Return the flag that limits the URLs that an engine fetches, unless it is in `words`.

    vLLM 0.11.0 lacks it. SGLang also follows redirects only to its domains.
    """
    is_given = any(word.replace("_", "-").startswith(_DOMAINS_FLAG) for word in words)
    if is_given or not hasattr(config_class, "allowed_media_domains"):
        return []
    return [_DOMAINS_FLAG, *(read_media_hosts() or [_NO_DOMAIN])]


def limit_vllm_media(words: list[str]) -> list[str]:
    """Keep vLLM from redirects, which it follows to any host by default; return its flags for the hosts."""
    from vllm.config import ModelConfig

    os.environ.setdefault(_REDIRECTS, "0")
    return list_media_flags(words, ModelConfig)


def limit_sglang_media(words: list[str]) -> list[str]:
    """Let SGLang refuse a request with media that it would open or fetch; return its flags for redirects.

    SGLang 0.5.23 has no flag against files, and fetches from everywhere if its list is empty.
    """
    from sglang.srt.managers import io_struct
    from sglang.srt.server_args import ServerArgs

    hosts = read_media_hosts()

    def add_check(request_class: Any) -> None:  # noqa: ANN401 - SGLang's
        original_normalize = request_class.normalize_batch_and_arguments

        def check_and_normalize(request: Any) -> None:  # noqa: ANN401 - SGLang's
            answers.require_usable_media([request.image_data, request.video_data, request.audio_data], hosts)
            original_normalize(request)

        request_class.normalize_batch_and_arguments = check_and_normalize

    # Each route makes one of them, and its manager calls this method first.
    add_check(io_struct.GenerateReqInput)
    add_check(io_struct.EmbeddingReqInput)
    return list_media_flags(words, ServerArgs)


def serve_no_images() -> None:
    """Keep SGLang 0.5.23 from its server of image models, which runs code of any model's folder."""
    with suppress(ImportError):
        from sglang.cli import serve

        serve.get_is_diffusion_model = lambda *_: False


def install_for_sglang(words: list[str]) -> list[str]:
    """Let SGLang's server listen on the socket, and send its own requests there; return its further flags."""
    from sglang.srt.entrypoints import http_server
    from uvicorn.config import Config

    media_flags = limit_sglang_media(words)
    serve_no_images()
    socket_path, original_load = os.environ["MEDLEY_SOCKET"], Config.load

    def load_with_socket(config: Any) -> None:  # noqa: ANN401 - uvicorn's
        original_load(config)
        config.uds = socket_path

    Config.load = load_with_socket
    http_server._freeze_gc_after_server_warmup = lambda _: freeze_garbage_collector(socket_path)  # noqa: SLF001 - it has no other way
    return media_flags


def freeze_garbage_collector(socket_path: str) -> None:
    """Request it of the server, as SGLang does once it is warm; the server may not listen yet."""
    for _ in range(_ATTEMPTS):
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("localhost", timeout=10)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(socket_path)
            connection.request("POST", "/freeze_gc")
            connection.getresponse().read()
            return
        time.sleep(1)


if __name__ in {"__main__", "__mp_main__"}:  # also in the server processes that it starts
    # The engine must not import a module of this folder in place of one of the same name.
    sys.path[:] = [folder for folder in sys.path if folder != str(Path(__file__).parent)]
    if "MEDLEY_SOCKET" in os.environ:
        install_api()
    if "RAY_ADDRESS" in os.environ:
        hide_working_folder()
if __name__ == "__main__":
    from importlib.metadata import entry_points

    del sys.argv[0]
    if sys.argv[0] == "sglang":
        sys.argv += install_for_sglang(sys.argv)
    elif sys.argv[0] == "vllm":
        sys.argv += limit_vllm_media(sys.argv)
    program = next(iter(entry_points(group="console_scripts", name=sys.argv[0])))
    sys.exit(program.load()())
