"""Make a run of the tests independent of its caller: a terminal, a script, a service, another locale.

A shell ignores SIGINT in what it starts with &, and nohup ignores SIGHUP. Children inherit that, and the
umask and the variables. tests/conftest.py imports this before all else, because other modules look at some of
it when they are imported.
"""

import importlib
import locale
import os
import signal
import sys
import time
from collections.abc import Callable
from types import FrameType

import pytest
from huggingface_hub import constants

from tools import durations

Handler = Callable[[int, FrameType | None], None]

LOCALE = "C.UTF-8"
TERMINAL = "xterm-256color"

LEFT_OUT = (
    *("COLUMNS", "LINES", "TERM_PROGRAM", "COLORTERM", "CLICOLOR", "NO_COLOR", "FORCE_COLOR", "TTY_"),
    *("LANG", "LC_"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONIOENCODING", "PYTHONOPTIMIZE", "PYTHONSAFEPATH"),
    *("PYTHONUNBUFFERED", "PYTHONUTF8", "PYTHONWARNINGS"),
    *("GIT_DIR", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_WORK_TREE", "MEDLEY_"),
)
"""Beginnings of the names of variables that no test gets from the caller."""

OF_THE_MACHINE = (
    *("MEDLEY_CACHE", "MEDLEY_FLAKE", "MEDLEY_NCCL", "MEDLEY_PYTHONS", "MEDLEY_TOOLKIT", "MEDLEY_UV"),
    *("MEDLEY_DGX_SPARK", "MEDLEY_JETPACK", "MEDLEY_NIXPKGS"),
    *("XDG_", "HF_", "RAY_", "NCCL_", "GLOO_", "TP_SOCKET_", "CUDA_", "VLLM_", "SGLANG_"),
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
)
"""Those of the machine, which tests of engines, clusters and Nix get, and plain ones do not."""

MARKED = ("engine", "rack", "nix")


def neutralize() -> None:
    _drop(LEFT_OUT, but=(*OF_THE_MACHINE, durations.VARIABLE))
    os.environ |= {"LC_ALL": LOCALE, "TERM": TERMINAL, "TZ": "UTC"}
    time.tzset()
    locale.setlocale(locale.LC_ALL, LOCALE)
    # Many tests start medley: without bytecode each of its processes compiles all modules, in half a second.
    sys.dont_write_bytecode = False
    os.umask(0o022)
    _reset_signals()


def pytest_collection_finish(session: pytest.Session) -> None:
    if not any(item.get_closest_marker(name) for item in session.items for name in MARKED):
        _drop(OF_THE_MACHINE)
        importlib.reload(constants)  # the hub's library has read the machine's when it was imported


def _drop(beginnings: tuple[str, ...], but: tuple[str, ...] = ()) -> None:
    for name in [each for each in os.environ if each.startswith(beginnings) and not each.startswith(but)]:
        del os.environ[name]


def _reset_signals() -> None:
    signal.pthread_sigmask(signal.SIG_UNBLOCK, signal.valid_signals())
    handlers: dict[int, Handler] = {signal.SIGINT: signal.default_int_handler, signal.SIGHUP: _stay}
    # Python ignores these two by itself, and resets them in what it starts.
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, handlers.get(number, signal.SIG_DFL))


def _stay(*_: object) -> None:
    """Let a run under nohup outlive its terminal: unlike an ignored signal, a handler is not inherited."""


neutralize()
