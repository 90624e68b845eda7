"""Let each Python process of an engine write the stacks of its threads when it gets a signal.

Python imports it, because its folder is in PYTHONPATH. process_stacks.py sends the signal and reads the file.
"""

import contextlib
import faulthandler
import importlib.util
import os
import sys

SIGNAL = 50
"""A real-time signal that no library of an engine uses."""
_files: list[int] = []


def _listen() -> None:
    """Write to a file in memory, which has no other name; a forked process gets its own."""
    file = os.memfd_create("medley-stacks")
    faulthandler.register(SIGNAL, file=file, all_threads=True)
    for old in _files:
        with contextlib.suppress(OSError):
            os.close(old)
    _files[:] = [file]


def _run_other() -> None:
    """Run the sitecustomize that this one hides."""
    here = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120 - pathlib delays each start
    sys.path[:] = [each for each in sys.path if os.path.abspath(each or ".") != here]  # noqa: PTH100
    own = sys.modules.pop(__name__)
    other = importlib.util.find_spec(__name__)
    sys.modules[__name__] = own  # importing it would fail without
    if other and other.loader:
        sys.modules[__name__] = module = importlib.util.module_from_spec(other)
        other.loader.exec_module(module)


with contextlib.suppress(OSError, ValueError, RuntimeError):  # without it an engine works as well
    _listen()
    os.register_at_fork(after_in_child=_listen)
if __name__ == "sitecustomize":
    _run_other()
