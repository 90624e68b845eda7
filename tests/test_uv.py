"""What uv 0.13 prints when it fails, word for word, and the Problem it comes to."""

import pytest

from medley import uv
from medley.problem import Problem

HASH = """\
Using Python 3.11.7 environment at: v
Resolved 1 package in 35ms
error: Failed to download `idna==3.20`
  cause: Hash mismatch for `idna==3.20`

         Expected:
           sha256:0000

         Computed:
           sha256:1111"""
NETWORK = """\
error: Request failed after 3 retries in 5.8s
  cause: Failed to fetch: http://index/simple/pygments/
  cause: client error (Connect)
  cause: dns error"""
SPACE = """\
error: Failed to install: uv-0.13.8-py3-none-manylinux_2_28_x86_64.whl (uv==0.13.8)
  cause: failed to copy file from /a to /b: No space left on device (os error 28)"""
LACKS = """\
error: No solution found when resolving dependencies
  cause: Because there is no version of torch==2.13.0+cpu and you require torch==2.13.0+cpu, we can conclude
         that your requirements are unsatisfiable."""


@pytest.mark.parametrize(
    ("said", "what", "cause", "fix"),
    [
        pytest.param(HASH, "idna==3.20 is not the file", "sha256:1111", "do not install", id="hash"),
        pytest.param(NETWORK, "cannot be reached", "dns error", "HTTPS_PROXY", id="network"),
        pytest.param(SPACE, "disk is full", "os error 28", "MEDLEY_CACHE", id="space"),
        pytest.param(LACKS, "offered nowhere", "torch==2.13.0+cpu", "PIP_FIND_LINKS", id="lacks"),
        pytest.param(
            "error: new and strange",
            "v cannot",
            "new and strange",
            "env build v --dry-run",
            id="anything else",
        ),
        pytest.param("", "v cannot", "exited with 2", "env build v --dry-run", id="silence"),
    ],
)
def test_failure(said: str, what: str, cause: str, fix: str) -> None:
    problem = uv.failure("v", 2, said.splitlines())
    assert isinstance(problem, Problem)
    assert what in problem.what
    assert cause in problem.cause
    assert fix in problem.fix


def test_lacks() -> None:
    assert uv.lacks(LACKS.splitlines())
    assert not uv.lacks(NETWORK.splitlines())


def test_the_first_uv() -> None:
    assert uv.binary("/toolkit/uv", {"MEDLEY_UV": "/mine/uv"}) == "/mine/uv"
    assert uv.binary("/toolkit/uv", {}) == "/toolkit/uv"
    assert uv.binary(None, {}).endswith("uv")
