"""Compilers are what an engine compiles kernels with while it runs, and the newest GPU each knows."""

from dataclasses import dataclass

from medley.facts.answers import lines
from medley.transcript import Transcript

_CACHE = '"${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
_TRITON = "lib/python3*/site-packages/triton/backends/nvidia/bin/ptxas*"
# As Triton takes it, on PATH, beside the toolkit's nvcc, and what each Triton brings.
PTXAS = (
    'for p in "$TRITON_PTXAS_BLACKWELL_PATH" "$TRITON_PTXAS_PATH" "$(command -v ptxas)"'
    f" /usr/local/cuda/bin/ptxas {_CACHE}/*/{_TRITON} ${{MEDLEY_OWN_ENV:-/none}}/{_TRITON}; do"
    ' [ -x "$p" ] && echo "$p $("$p" --version | sed -n "s/.*release \\([0-9.]*\\).*/\\1/p")"; done; :'
)
_INCLUDE = 'import os, sysconfig as s; print(os.path.isfile(s.get_path("include") + "/Python.h"))'
HEADERS = (
    f'for e in {_CACHE}/* "${{MEDLEY_OWN_ENV:-/none}}"; do [ -x "$e/bin/python" ] &&'
    f""" echo "$e $("$e/bin/python" -Ic '{_INCLUDE}')"; done; :"""
)
TOOLKIT = "printf '%s\\n' ${MEDLEY_TOOLKIT:+toolkit} ${MEDLEY_FLAKE:+flake}"

QUESTIONS = (PTXAS, TOOLKIT, HEADERS)


@dataclass(frozen=True)
class Compilers:
    ptxas: tuple[tuple[str, str], ...] = ()
    """Where, and the CUDA it is of: the first is the one that Triton is told, if it is told one."""
    pinned: bool = False
    """Nix brings the toolkit of this kind of host."""
    headless: tuple[str, ...] = ()
    """Engine environments whose Python has no Python.h."""


def compilers(answers: Transcript) -> Compilers | None:
    if PTXAS not in answers:
        return None
    said = (line.rpartition(" ") for line in lines(answers, PTXAS))
    found = dict.fromkeys((path, version) for path, _, version in said if path and version)
    headers = (line.rpartition(" ") for line in lines(answers, HEADERS))
    headless = tuple(path for path, _, there in headers if there == "False")
    return Compilers(tuple(found), bool(lines(answers, TOOLKIT)), headless)
