"""Run an engine whose server listens on a socket, and answers as clients of OpenAI and Anthropic expect.

    python engine_server.py vllm serve MODEL FLAGS…       runs `vllm serve MODEL FLAGS…`

It runs in the engine's Python (3.10 or later), and needs uvicorn, which serves both engines. It reads:

    MEDLEY_SOCKET        the socket
    MEDLEY_NO_REASONING  set where no parser reads the model's reasoning: see api_answers.py

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
else:  # it is run as a program, or an engine's imports it; a process that it starts has the path without it
    sys.path.insert(0, str(Path(__file__).parent))
    import api_answers as answers  # type: ignore[no-redef]

_ATTEMPTS = 60


def install() -> None:
    """Complete each server that uvicorn runs in this process, and let every user connect to the socket."""
    from uvicorn.config import Config

    path, bind, load = os.environ["MEDLEY_SOCKET"], socket.socket.bind, Config.load

    def bind_and_open(self: socket.socket, address: Any) -> None:  # noqa: ANN401 - as its family has it
        bind(self, address)
        if address == path:
            Path(path).chmod(0o666)

    def load_and_complete(config: Any) -> None:  # noqa: ANN401 - uvicorn's
        load(config)
        reads = answers.NO_REASONING not in os.environ
        config.loaded_app = answers.Answers(config.loaded_app, reasoning=reads)

    # Neither engine has a hook between the bind and the first connection.
    socket.socket.bind = bind_and_open  # type: ignore[method-assign,assignment]
    Config.load = load_and_complete


def install_for_sglang() -> None:
    """Let SGLang's server listen on the socket, and ask itself there."""
    from sglang.srt.entrypoints import http_server
    from uvicorn.config import Config

    path, load = os.environ["MEDLEY_SOCKET"], Config.load

    def load_with_socket(config: Any) -> None:  # noqa: ANN401 - uvicorn's
        load(config)
        config.uds = path

    Config.load = load_with_socket
    http_server._freeze_gc_after_server_warmup = lambda _: freeze_garbage_collector(path)  # noqa: SLF001 - it has no other way


def freeze_garbage_collector(path: str) -> None:
    """Ask the server for it, as SGLang does once it is warm; the server may not listen yet."""
    for _ in range(_ATTEMPTS):
        with suppress(OSError, http.client.HTTPException):
            connection = http.client.HTTPConnection("localhost", timeout=10)
            connection.sock = socket.socket(socket.AF_UNIX)
            connection.sock.connect(path)
            connection.request("POST", "/freeze_gc")
            connection.getresponse().read()
            return
        time.sleep(1)


if __name__ in {"__main__", "__mp_main__"}:  # also in the processes that it starts to answer
    # The folder of this file has modules of other names: none of them is to be the engine's.
    sys.path[:] = [each for each in sys.path if each != str(Path(__file__).parent)]
    if "MEDLEY_SOCKET" in os.environ:
        install()
if __name__ == "__main__":
    from importlib.metadata import entry_points

    del sys.argv[0]
    if sys.argv[0] == "sglang":
        install_for_sglang()
    program = next(iter(entry_points(group="console_scripts", name=sys.argv[0])))
    sys.exit(program.load()())
