"""Which keys of a cluster.toml need the user's consent."""

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from medley.cluster import program_consent
from medley.cluster.cluster_file import Cluster, build_programs_table
from tests.problems import raises_problem


def table_of(text: str) -> Mapping[str, Any]:
    return build_programs_table(Cluster.from_table(tomllib.loads(text)))


HARMLESS = """\
link = "10.0.0.0/24"
exclude = ["wlan0"]
engine = "sglang"
image = "default"

[hosts.a]
role = "head"
kind = "spark"
slots = 2
ssh = "ssh://n@thor-1.local:22"
image = "default"
container = "podman"
environment = { NCCL_DEBUG = "INFO" }
"""
HOST = "[hosts.a]\n"


@pytest.mark.parametrize(
    ("text", "programs"),
    [
        pytest.param(HOST, (), id="a plain host"),
        pytest.param(HARMLESS, (), id="all that is harmless"),
        pytest.param(f'on_event = "x"\n{HOST}', ('on_event = "x"',), id="the command for events"),
        pytest.param(f'image = "evil"\n{HOST}', ('image = "evil"',), id="an image"),
        pytest.param(
            f'environment = {{ VLLM_PLUGINS = "x" }}\n{HOST}',
            ('environment.VLLM_PLUGINS = "x"',),
            id="a variable",
        ),
        pytest.param(f'{HOST}medley = ["sh", "x"]', ('hosts.a.medley = ["sh", "x"]',), id="medley itself"),
        pytest.param(f'{HOST}env = "./venv"', ('hosts.a.env = "./venv"',), id="a virtualenv"),
        pytest.param(f'{HOST}env = "vllm-cuda"', (), id="an environment of medley's locks"),
        pytest.param(f'{HOST}nccl = "/x.so"', ('hosts.a.nccl = "/x.so"',), id="a library"),
        pytest.param(f'{HOST}mounts = ["/"]', ('hosts.a.mounts = ["/"]',), id="a mount"),
        pytest.param(f'{HOST}ssh = "$(x)@h"', ('hosts.a.ssh = "$(x)@h"',), id="a shell's signs for ssh"),
        pytest.param(f'{HOST}ssh = "n@[fe80::1%eth0]"', (), id="an address with its interface"),
    ],
)
def test_what_is_a_program(text: str, programs: tuple[str, ...]) -> None:
    assert program_consent.list_programs(table_of(text)) == programs


def test_consent_is_to_one_file_and_its_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    table, other = table_of('[hosts.a]\nenv = "x"'), table_of('[hosts.a]\nenv = "y"')
    program_consent.record_consent(tmp_path / "one.toml", table)
    program_consent.require_consent(tmp_path / "one.toml", table)
    for file, found in (("one.toml", other), ("two.toml", table)):
        with raises_problem(file, cause="env"):
            program_consent.require_consent(tmp_path / file, found)
    (tmp_path / "state/accepted-clusters.json").write_text("{torn", encoding="utf-8")
    with raises_problem("one.toml"):
        program_consent.require_consent(tmp_path / "one.toml", table)
