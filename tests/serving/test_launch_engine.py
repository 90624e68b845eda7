"""A rank over Ray has the NCCL that its host's NCCL of this host's Ray, however the path is written."""

from pathlib import Path

import pytest

from medley.cluster.membership import Membership
from medley.serving.launch_engine import choose_nccl
from tests.problems import raises_problem


def member(nccl: str | None) -> Membership:
    return Membership("head", "10.0.0.1:24000", "10.0.0.1", "eth0", "/env", "/token", nccl=nccl)


def test_the_same_file_may_be_written_in_another_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    file = str(Path.cwd() / "libnccl.so.2")
    for written in (file, "./libnccl.so.2", "~/libnccl.so.2", None):
        assert choose_nccl(written, member(file)) == file


@pytest.mark.parametrize("has", ["/other/libnccl.so.2", None])
def test_another_file_is_a_problem(has: str | None) -> None:
    with raises_problem("--nccl", fix=("medley ray-stop", "medley ray-head --nccl /n/libnccl.so.2")):
        choose_nccl("/n/libnccl.so.2", member(has))


def test_without_ray_it_is_as_asked() -> None:
    assert choose_nccl("~/libnccl.so.2", None) == "~/libnccl.so.2"
