"""Write the bytecode of an engine's server while its host waits for something else.

uv writes no bytecode, and all of a lock's takes longer than a first start saves by it. A server imports a
fifth of it: with vLLM 0.33.0 on two cores of x86_64, 20 s without bytecode and 8 s with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medley.command import Command
from medley.environment.build import UNSET
from medley.process import Process

_SERVERS = ("vllm.entrypoints.openai.api_server", "sglang.srt.entrypoints.http_server")
# An environment has one of the engines, and Python keeps the bytecode of each module that it imports.
_IMPORT = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
"""


@contextmanager
def write_server_bytecode(python: Path) -> Iterator[None]:
    """Import the server of `python`'s environment in another process, as far as it comes in the meantime."""
    # -I: no module of the folder where medley is typed.
    importing = Process(Command((str(python), "-I", "-c", _IMPORT, *_SERVERS), unset=UNSET), lambda _: None)
    try:
        yield
    finally:
        importing.stop(grace_s=1)
