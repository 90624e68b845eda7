"""Write the bytecode of an engine's server while its host waits for something else.

uv writes no bytecode, and all of a lock's takes longer than a first start saves by it. A server imports a
fifth of it: with vLLM 0.33.0 on two cores of x86_64, 20 s without bytecode and 8 s with it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medley.command import Command
from medley.environment.build import UNSET_VARIABLES
from medley.process import Process

_SERVER_MODULES = ("vllm.entrypoints.openai.api_server", "sglang.srt.entrypoints.http_server")
# An environment has one of the engines, and Python keeps the bytecode of each module that it imports.
_IMPORT_CODE = """
import contextlib, importlib, sys
for name in sys.argv[1:]:
    with contextlib.suppress(Exception):
        importlib.import_module(name)
"""


@contextmanager
def write_server_bytecode(python: Path) -> Iterator[None]:
    """Import the server of `python`'s environment in another process while the body runs."""
    # -I: Python imports no module of the user's current folder.
    import_process = Process(
        Command((str(python), "-I", "-c", _IMPORT_CODE, *_SERVER_MODULES), unset=UNSET_VARIABLES),
        lambda _: None,
    )
    try:
        yield
    finally:
        import_process.stop(grace_s=1)
