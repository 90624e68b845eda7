import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from medley.cli.info import CheckVerb
from medley.cluster import cluster_file, fleet
from medley.cluster.discovery.table import parse_cluster
from medley.errors import Problem
from tests.problems import raises_problem

TWO = """\
link = "192.168.100.0/24"
exclude = ["wlP9s9"]

[hosts.spark-1]

[hosts.thor-1]
ssh = "nvidia@10.0.0.7"
link = "mgbe0_0"
exclude = ["eno1"]
medley = ["nix", "run", "github:me/medley", "--"]
"""


def written(folder: Path, text: str) -> str:
    file = folder / "cluster.toml"
    file.write_text(text)
    return str(file)


def test_what_it_says(tmp_path: Path) -> None:
    found = cluster_file.read_cluster(written(tmp_path, TWO))
    assert (found.head, list(found.hosts)) == ("spark-1", ["spark-1", "thor-1"])
    assert [found.get_ssh_target(name) for name in found.hosts] == ["spark-1", "nvidia@10.0.0.7"]
    assert found.network_options.link == {"spark-1": "192.168.100.0/24", "thor-1": "mgbe0_0"}
    assert found.network_options.exclude == {"wlP9s9", "eno1"}


def test_what_a_host_runs_out_of(tmp_path: Path) -> None:
    text = """\
image = "default"
[hosts.orin-1]
nccl = "/opt/libnccl.so.2"
[hosts.spark-1]
env = "vllm-cuda"
[hosts.orin-2]
image = "vllm:mine"
container = "podman"
mounts = ["/templates"]
"""
    found = cluster_file.read_cluster(written(tmp_path, text))
    default = {"image": "default", "container": None, "nccl": "/opt/libnccl.so.2", "mounts": ()}
    own = {"image": "vllm:mine", "container": "podman", "nccl": None, "mounts": ("/templates",)}
    assert [found.describe_image(name) for name in found.hosts] == [default, None, own]
    assert [found.merge_host(name).image for name in found.hosts] == ["default", None, "vllm:mine"]


def test_the_head_is_who_says_so(tmp_path: Path) -> None:
    assert cluster_file.read_cluster(written(tmp_path, f'{TWO}role = "head"\n')).head == "thor-1"


@pytest.mark.parametrize(
    ("text", "number", "said", "fix"),
    [
        pytest.param(TWO + 'knd = "thor"', 11, "'hosts.thor-1.knd'", "rename it to 'kind'", id="a typo"),
        pytest.param("[hosts.a]\nslots = 0", 2, "'hosts.a.slots'", "fix", id="no slots"),
        pytest.param('[hosts.a]\nssh = "-oProxyCommand=x"', 2, "'hosts.a.ssh'", "fix", id="a switch"),
        pytest.param('[hosts.a]\nenv = "x"\nimage = "y"', 1, "'hosts.a' is wrong", "fix", id="two sources"),
        pytest.param('[hosts.a]\nssh = "a b"', 2, "'hosts.a.ssh'", "fix", id="a space"),
        pytest.param('[hosts."$(x)"]\n', 1, "'hosts.$(x)", "fix", id="a name for a shell"),
        pytest.param('[hosts."a\\nb"]\n', None, "is wrong", "fix", id="a name of two lines"),
        pytest.param('link = "x"\n', None, "'hosts' is missing", "medley init", id="no hosts"),
        pytest.param('hosts = ["a"]\n', 1, "'hosts' is wrong", "medley init", id="a list of hosts"),
        pytest.param("[host.a]\n", 1, "'host' is wrong", "rename it to 'hosts'", id="host"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(
    tmp_path: Path, text: str, number: int | None, said: str, fix: str
) -> None:
    file = written(tmp_path, text)
    with pytest.raises(Problem) as caught:
        cluster_file.read_cluster(file)
    assert caught.value.what.startswith(f"{file}:{number}: " if number else f"{file}")
    assert said in caught.value.what
    assert fix in caught.value.fix


def test_two_heads(tmp_path: Path) -> None:
    text = '[hosts.a]\nrole = "head"\n[hosts.b]\nrole = "head"\n'
    with raises_problem("cluster.toml", cause=('role = "head"', "a and b")):
        cluster_file.read_cluster(written(tmp_path, text))


def test_where_it_is_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    assert cluster_file.find_cluster_file() is None
    with raises_problem("cluster.toml", cause="/own", fix=("medley init", "--cluster FILE")):
        cluster_file.read_cluster()
    (tmp_path / "own").mkdir()
    written(tmp_path / "own", TWO)
    assert cluster_file.find_cluster_file() == tmp_path / "own" / "cluster.toml"
    written(tmp_path, TWO)
    assert cluster_file.find_cluster_file() == Path("cluster.toml")
    monkeypatch.setenv("MEDLEY_CLUSTER", "/elsewhere.toml")
    assert cluster_file.find_cluster_file() == Path("/elsewhere.toml")
    assert cluster_file.find_cluster_file("named.toml") == Path("named.toml")


PROGRAM = '[hosts.spark-1]\nmedley = "./run"\n'


def test_a_program_in_the_folder_s_file_runs_only_once_it_is_accepted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A clone's folder is the user's own, and its cluster.toml somebody else's."""
    for name in ("own", "state"):
        monkeypatch.setenv("MEDLEY_CONFIG" if name == "own" else "MEDLEY_STATE", str(tmp_path / name))
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    (clone := tmp_path / "clone").mkdir()
    monkeypatch.chdir(clone)
    file = Path(written(clone, PROGRAM))
    with raises_problem(
        str(file), cause='hosts.spark-1.medley = "./run"', fix=f"medley check --accept {file}"
    ):
        cluster_file.read_cluster()
    assert cluster_file.read_cluster("cluster.toml").hosts
    monkeypatch.setenv("MEDLEY_CLUSTER", "cluster.toml")
    assert cluster_file.read_cluster().hosts
    monkeypatch.delenv("MEDLEY_CLUSTER")
    assert CheckVerb.run(["medley check", "--accept", "cluster.toml"], exit=False)[1] == 0
    assert cluster_file.read_cluster().hosts["spark-1"].medley == "./run"
    file.write_text(f"{PROGRAM}\n[hosts.spark-2]\nlink = '10.0.0.2'\n", encoding="utf-8")
    assert list(cluster_file.read_cluster().hosts) == ["spark-1", "spark-2"]
    file.write_text(f'on_event = "./more"\n{PROGRAM}', encoding="utf-8")
    with raises_problem(str(file), cause='on_event = "./more"'):
        cluster_file.read_cluster()


def test_a_file_among_the_user_s_own_tables_needs_no_consent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path))
    monkeypatch.setenv("MEDLEY_STATE", str(tmp_path / "state"))
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    written(tmp_path, PROGRAM)
    monkeypatch.chdir(tmp_path)
    assert cluster_file.read_cluster().hosts["spark-1"].medley == "./run"


def test_a_folder_that_may_not_be_entered_has_no_cluster(tmp_path: Path) -> None:
    """As for `sudo -u USER medley status` typed in root's home."""
    (folder := tmp_path / "closed").mkdir()
    written(folder, TWO)
    modules = "import os; from medley.cluster import cluster_file; from tests import damaged_state as d"
    close = f"os.chdir({str(folder)!r}); os.chmod('.', 0); d.drop_capabilities()"
    path = str(Path(__file__).parents[2])
    env = {**os.environ, "MEDLEY_CONFIG": str(tmp_path / "own"), "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-c", f"{modules}; {close}; print(cluster_file.find_cluster_file())"],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    folder.chmod(0o700)
    assert (done.stdout, done.stderr) == ("None\n", "")


@pytest.mark.parametrize(
    "instead", [Path.mkdir, lambda path: path.symlink_to(path.name)], ids=["folder", "loop"]
)
def test_a_folder_or_a_link_that_leads_nowhere_is_no_cluster(
    instead: Callable[[Path], object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.setenv("MEDLEY_CONFIG", str(tmp_path / "own"))
    monkeypatch.chdir(tmp_path)
    instead(tmp_path / "cluster.toml")
    assert cluster_file.find_cluster_file() is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_somebody_else_is_not_used_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    written(tmp_path, TWO)
    os.chown("cluster.toml", 65_534, 65_534)
    with raises_problem(
        f"{tmp_path}/cluster.toml", cause="owner 65534", fix=f"--cluster {tmp_path}/cluster.toml"
    ):
        cluster_file.find_cluster_file()
    assert cluster_file.find_cluster_file("cluster.toml") == Path("cluster.toml")


@pytest.mark.parametrize(
    ("folder", "file", "is_used"),
    [
        pytest.param(0o755, 0o644, True, id="as usual"),
        pytest.param(0o775, 0o664, True, id="of this user's own group"),
        pytest.param(0o1777, 0o644, True, id="in a folder like /tmp"),
        pytest.param(0o777, 0o644, False, id="in a folder of everybody"),
        pytest.param(0o755, 0o666, False, id="that everybody can write"),
    ],
)
def test_a_file_that_others_can_write_is_not_used(
    folder: int, file: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_used: bool
) -> None:
    monkeypatch.delenv("MEDLEY_CLUSTER", raising=False)
    monkeypatch.chdir(tmp_path)
    Path(written(tmp_path, TWO)).chmod(file)
    tmp_path.chmod(folder)
    if is_used:
        assert cluster_file.find_cluster_file() == Path("cluster.toml")
    else:
        with raises_problem("cluster.toml", cause=f"{file if file == 0o666 else folder:o}"):
            cluster_file.find_cluster_file()


def test_hosts_are_left_out(tmp_path: Path) -> None:
    found = cluster_file.read_cluster(written(tmp_path, TWO))
    assert list(cluster_file.leave_out_hosts(found, ("thor-1",)).hosts) == ["spark-1"]
    with raises_problem("spark-1", cause="head"):
        cluster_file.leave_out_hosts(found, ("spark-1",))
    with raises_problem("spark-9", cause="spark-1, thor-1", fix="--without HOST"):
        cluster_file.leave_out_hosts(found, ("spark-9",))


def test_a_host_alone_is_a_cluster_of_its_own() -> None:
    (name,) = cluster_file.build_local_cluster().hosts
    assert cluster_file.build_local_cluster().head == name
    assert fleet.is_this_host(cluster_file.build_local_cluster(), name)


def test_the_table_in_the_documentation_is_valid() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "cluster-toml.md"
    table = page.read_text(encoding="utf-8").partition("```toml\n")[2].partition("```")[0]
    cluster = parse_cluster(table)
    assert (cluster.head, cluster.link) == ("spark-1", "192.168.1.0/24")
    assert cluster.get_ssh_target("spark-2") == "nvidia@192.168.100.11"
