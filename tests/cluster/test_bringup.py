"""A cluster brought up of recorded hosts: real agents, keepers and sockets, each host at its own 127.0.0.0/8.

`ssh` on PATH runs its command here, and the engine environment holds small programs in place of Ray's.
"""

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import copytree, rmtree

import pytest

from medley.cluster import fleet, membership
from medley.cluster.bringup import Bringup
from medley.cluster.cluster_file import Cluster, ClusterHost
from medley.cluster.fleet import Fleet
from medley.cluster.remote import Remote
from medley.command import Command
from medley.network import ports
from medley.progress import SILENT
from medley.schema import EngineName
from tests.network.fabric.groups import RING
from tests.problems import assert_problem, raises_problem

HERE = Path(__file__).parent
RACK = (HERE.parent / "host/recorded/cpu-rack.txt").read_text()
SSH = '#!/bin/sh\nfor last; do :; done\nexec sh -c "$last"\n'
FAR = (("127.40.0.9", "127.50.0.9"), ("127.41.0.9", "127.51.0.9"), ('"dst":"default"', '"dst":"10.9.9.0/24"'))
RAY = "#!/bin/sh\necho Ray runtime started\nexec sleep 600\n"
PYTHON = f"""#!/bin/sh
case "$1" in *ray_store.py) exec {sys.executable} {HERE / "gathered.py"} "$4" ;; esac
exec {sys.executable} "$@"
"""


@dataclass(frozen=True)
class Desk:
    folder: Path

    def host(self, number: int, *changes: tuple[str, str], **member: object) -> ClusterHost:
        """The server of the rack at 127.40.0.NUMBER, with these changes of its transcript."""
        text = RACK.replace("10.40.0.7", f"127.40.0.{number}").replace("192.168.1.60", f"127.41.0.{number}")
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        recording = self.folder / f"{number}.txt"
        recording.write_text(text)
        return self.member(recording, number, **{"kind": "cpu", "env": str(self.folder / "env"), **member})

    def recorded(self, name: str) -> ClusterHost:
        return self.member(HERE.parent / f"host/recorded/{name}.txt", name)

    def member(self, recording: Path, state: object, **more: object) -> ClusterHost:
        words = (sys.executable, str(HERE / "replayed_agent.py"), str(recording), str(self.state(state)))
        return ClusterHost.from_table({"medley": words, **more})

    def state(self, name: object) -> Path:
        return self.folder / f"s{name}"


class Kept(Remote):
    """A connection that one test leaves to the next."""

    def hang_up(self) -> None: ...

    def close(self, limit_s: float = 0) -> None: ...

    def end(self) -> None:
        super().hang_up()
        super().close()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("desk")
    programs = {"bin/ssh": SSH, "env/bin/ray": RAY, "env/bin/vllm": "", "env/bin/python": PYTHON}
    for name, text in programs.items():
        program = folder / name
        program.parent.mkdir(parents=True, exist_ok=True)
        program.write_text(text)
        program.chmod(0o755)
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")
        patched.setenv("MEDLEY_UNITS", "own")
        yield folder


@pytest.fixture
def desk(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    yield Desk(folder)
    for state in folder.glob("s?"):
        monkeypatch.setenv("MEDLEY_STATE", str(state))
        membership.end_ray()
        rmtree(state)


@pytest.fixture(scope="module")
def connections() -> Iterator[dict[tuple[str, ...], Kept]]:
    found: dict[tuple[str, ...], Kept] = {}
    yield found
    for each in found.values():
        each.end()


@pytest.fixture
def kept(connections: dict[tuple[str, ...], Kept], monkeypatch: pytest.MonkeyPatch) -> None:
    """Connect to the agents that earlier tests have started: a test leaves nothing behind in them."""

    def connected(name: str, target: str, command: Command) -> Kept:
        key = (name, *command.argv)
        if key not in connections:
            connections[key] = Kept(name, target, command)
        return connections[key]

    monkeypatch.setattr(fleet, "Remote", connected)


@contextmanager
def bringing_up(engine: EngineName = "vllm", /, **hosts: ClusterHost) -> Iterator[Bringup]:
    with Fleet(Cluster(hosts=hosts, engine=engine), SILENT) as everyone:
        assert everyone.failed == {}
        yield Bringup(everyone, SILENT)


def wired(bringup: Bringup) -> Bringup:
    bringup.check_hosts()
    bringup.choose_network()
    return bringup


def test_a_cluster_is_brought_up_and_then_stands(desk: Desk) -> None:
    hosts = {"one": desk.host(7), "two": desk.host(8)}
    with bringing_up(**hosts) as first:
        wired(first)
        assert {name: end.address for name, end in first.endpoints.items()} == {
            "one": "127.40.0.7",
            "two": "127.40.0.8",
        }
        assert (first.head_address, first.running_hosts, first.hosts_to_start) == (
            "127.40.0.7:24000",
            [],
            ["one", "two"],
        )
        first.prepare_environments()
        first.end_mismatched_processes()
        first.check_ports()
        first.start_ray()
        first.register_hosts()
        first.fail_absent_hosts()
        assert first.fleet.failed == {}
        assert [node["address"] for node in first.nodes] == ["127.40.0.7", "127.40.0.8"]
        with Fleet(first.fleet.cluster, SILENT) as everyone:
            again = wired(Bringup(everyone, SILENT))
            assert (again.running_hosts, again.hosts_to_start) == (["one", "two"], [])
            again.start_ray()
            assert again.started_hosts == []
        changed = {**hosts, "two": hosts["two"].replace(environment={"NCCL_DEBUG": "INFO"})}
        with Fleet(Cluster(hosts=changed), SILENT) as everyone:
            again = wired(Bringup(everyone, SILENT))
            assert (again.running_hosts, again.hosts_to_start) == (["one"], ["two"])
            assert "NCCL_DEBUG=INFO" in again.plan_commands()["two"]["command"]


@pytest.mark.usefixtures("kept")
def test_the_command_of_each_host_is_foretold(desk: Desk) -> None:
    with bringing_up(one=desk.host(7), two=desk.host(8, slots=3)) as bringup:
        told = wired(bringup).plan_commands()
        assert "ray start --head" in told["one"]["command"]
        assert "--address=127.40.0.7:24000" in told["two"]["command"].replace("--address ", "--address=")
        assert not (desk.state(7) / "units").exists()


@pytest.mark.usefixtures("kept")
def test_a_host_that_shares_no_network_is_left_out(desk: Desk) -> None:
    with bringing_up(one=desk.host(7), two=desk.host(8), far=desk.host(9, *FAR)) as bringup:
        wired(bringup)
        assert list(bringup.fleet.failed) == ["far"]
        fix = "sudo ip address add 192.168.100.1/24 dev INTERFACE"
        assert_problem(bringup.fleet.failed["far"], "far", fix=fix)
        assert list(bringup.endpoints) == ["one", "two"]


@pytest.mark.usefixtures("kept")
@pytest.mark.parametrize("engine", ["sglang", "vllm"])
def test_a_ring_of_cables_is_used_because_the_engine_s_nccl_knows_it(desk: Desk, engine: EngineName) -> None:
    with bringing_up(engine, **{name: desk.recorded(name) for name in RING}) as bringup:
        wired(bringup)
        assert bringup.fleet.failed == {}
        named = [{each.name for each in bringup.network_variables[name]} for name in RING]
        assert all("NCCL_IB_HCA" in each for each in named)


@pytest.mark.usefixtures("kept")
def test_a_host_with_another_medley_is_left_out(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    with bringing_up(one=desk.host(7), two=desk.host(8)) as bringup:
        there = bringup.fleet.remotes["two"]
        monkeypatch.setattr(there, "greeting", {**there.greeting, "medley": "0123456789abcdef"})
        wired(bringup)
        assert_problem(bringup.fleet.failed["two"], "two ", cause="0123456789ab")
        assert list(bringup.host_states) == ["one"]


@pytest.mark.usefixtures("kept")
def test_without_its_head_there_is_no_cluster(desk: Desk) -> None:
    with bringing_up(one=desk.host(7, env=str(desk.folder / "none")), two=desk.host(8)) as bringup:
        wired(bringup)
        with raises_problem("one: ", "/none", fix="--env vllm-cpu"):
            bringup.prepare_environments()


@pytest.mark.usefixtures("kept")
def test_a_port_of_ray_that_is_taken_keeps_its_host_out(desk: Desk) -> None:
    with bringing_up(one=desk.host(7), two=desk.host(8)) as bringup:
        wired(bringup)
        port = next(iter(ports.RayPorts.raylet))
        with socket.create_server(("127.40.0.8", port)):
            bringup.check_ports()
        assert_problem(bringup.fleet.failed["two"], "two: ", f"port {port} ")
        assert bringup.hosts_to_start == ["one"]


@pytest.mark.usefixtures("kept")
def test_a_host_where_ray_does_not_start_is_withdrawn_and_the_others_go_on(desk: Desk) -> None:
    broken = desk.folder / "broken"
    copytree(desk.folder / "env", broken)
    (broken / "bin/ray").write_text("#!/bin/sh\necho the moon is in the wrong house; exit 1\n")
    with bringing_up(one=desk.host(7), two=desk.host(8, env=str(broken))) as bringup:
        wired(bringup)
        bringup.start_ray()
        assert_problem(bringup.fleet.failed["two"], "two: ", "Ray", cause="the moon is in the wrong house")
        assert not (desk.state(8) / "units/medley-ray.json").exists()
        assert (desk.state(7) / "units/medley-ray.json").exists()


@pytest.mark.usefixtures("kept")
def test_a_host_that_ray_does_not_know_in_the_end_has_not_joined(desk: Desk) -> None:
    with bringing_up(one=desk.host(7), two=desk.host(8)) as bringup:
        wired(bringup)
        bringup.nodes = ({"address": "127.40.0.7", "alive": True}, {"address": "127.40.0.8", "alive": False})
        bringup.fail_absent_hosts()
        assert list(bringup.fleet.failed) == ["two"]
