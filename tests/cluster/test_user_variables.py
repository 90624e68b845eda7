from pathlib import Path

import pytest

from medley.cluster import cluster_file
from tests.problems import raises_problem

TABLE = """
[environment]
NCCL_ALGO = "Ring"
NCCL_DEBUG = "WARN"

[hosts.a]
[hosts.b]
environment = { NCCL_DEBUG = "INFO" }
"""


def test_a_hosts_own_win(tmp_path: Path) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(TABLE)
    found = cluster_file.read_cluster(str(file))
    assert found.merge_environment("a") == {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN"}
    assert found.merge_environment("b") == {"NCCL_ALGO": "Ring", "NCCL_DEBUG": "INFO"}
    assert found.merge_host("b").environment == found.merge_environment("b")


@pytest.mark.parametrize(
    ("table", "why"),
    [
        pytest.param(
            '[environment]\nVLLM_HOST_IP = "1"\n[hosts.a]', "medley sets it", id="a host's identity"
        ),
        pytest.param('[environment]\nHF_TOKEN = "x"\n[hosts.a]', "HF_TOKEN_PATH", id="a secret"),
        pytest.param('[environment]\nAWS_SECRET_ACCESS_KEY = "x"\n[hosts.a]', "dry runs", id="a key"),
        pytest.param(
            '[environment]\nLD_LIBRARY_PATH = "/x"\n[hosts.a]',
            "libraries of every program",
            id="library path",
        ),
        pytest.param('[environment]\nMEDLEY_RAY = "/x"\n[hosts.a]', "a setting of medley", id="medley's"),
        pytest.param('[hosts.a.environment]\nNCCL_PROTO = "LL"', "the same on all hosts", id="the group's"),
        pytest.param('[hosts.a.environment]\nVLLM_NCCL_SO_PATH = "/x"', "nccl =", id="an NCCL"),
    ],
)
def test_some_are_refused_with_a_reason(tmp_path: Path, table: str, why: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(table)
    variable = table.splitlines()[1].partition(" ")[0]
    with raises_problem(str(file), variable, cause=why):
        cluster_file.read_cluster(str(file))


@pytest.mark.parametrize(
    ("table", "key"),
    [
        ('[environment]\n"A B" = "1"\n[hosts.a]', "'environment.A B'"),
        ('[environment]\nA = "1\\n2"\n[hosts.a]', "'environment.A'"),
    ],
)
def test_what_is_no_variable_is_refused(tmp_path: Path, table: str, key: str) -> None:
    file = tmp_path / "cluster.toml"
    file.write_text(table)
    with raises_problem(f"{file}:2", key):
        cluster_file.read_cluster(str(file))
