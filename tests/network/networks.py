"""Hosts made by hand, as their networks are published; recordings may take their place.

Names, PCI functions and GID rows of a Spark follow NVIDIA's dgx-spark-playbooks and public outputs of owners,
Thor's lanes NVIDIA's Jetson documentation. None was recorded by us.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from medley.host.facts import Cpu, Facts, Memory
from medley.host.facts.gpu import Gpu
from medley.host.facts.network import Address, Interface, Net, Route
from medley.host.facts.rdma import Gid, RdmaPort
from medley.host.facts.system import Board

LAN, LAN_MTU = "10.0.0", 1500
GUID = "fc6a:1c03:00a1:b230"
LO = Interface("lo", "loopback", up=True, mtu=65536, addresses=(Address("127.0.0.1", 8),))
DOCKER = Interface("docker0", "container", up=True, mtu=1500, addresses=(Address("172.17.0.1", 16),))
BRIDGE_OF_DOCKER = Interface(
    "br-1a2b3c", "container", up=True, mtu=1500, addresses=(Address("172.18.0.1", 16),)
)
TAILSCALE = Interface("tailscale0", "tunnel", up=True, mtu=1280, addresses=(Address("100.64.0.7", 32),))
USB = Interface("l4tbr0", "gadget", up=True, mtu=1500, addresses=(Address("192.168.55.1", 24),))


def group(*hosts: Facts) -> dict[str, Facts]:
    """By the names h1, h2, ..."""
    return {f"h{nth}": facts for nth, facts in enumerate(hosts, 1)}


def link(name: str, *addresses: str, mbit: int | None = 10_000, **more: Any) -> Interface:
    """A wire that is up; addresses as in 10.0.0.1/24, the first of them primary."""
    found = tuple(
        Address(ip, int(prefix), secondary=nth > 0)
        for nth, (ip, _, prefix) in enumerate(each.partition("/") for each in addresses)
    )
    known = {"kind": "ethernet", "up": True, "mtu": LAN_MTU, **more}
    return Interface(name=name, addresses=found, mbit=mbit, **known)


def host(links: Iterable[Interface], *, gpus: int = 1, gpu: str = "NVIDIA RTX A6000", **more: Any) -> Facts:
    is_arm = gpu == "NVIDIA GB10" or "board" in more
    known: dict[str, Any] = {
        "cpu": Cpu(system="aarch64-linux" if is_arm else "x86_64-linux", threads=8),
        "memory": Memory(64 << 30, 60 << 30),
        "gpus": tuple(Gpu(n, gpu) for n in range(gpus)),
        "net": Net(links=(LO, *links), routes=more.pop("routes", ())),
    }
    return Facts(**{**known, **more})


def default(interface: str, gateway: str = "10.0.0.254") -> Route:
    return Route("default", interface, gateway)


def port(of: Interface, device: str, pci: str, *, gid: int = 3, width: int = 4, **more: Any) -> RdmaPort:
    """The RoCE port of a link, GIDs as the kernel lists them: fe80 in both versions, then IPv4 in both."""
    fe80 = "fe80:0000:0000:0000:0000:0000:0000:0001"
    rows = [Gid(0, fe80, "IB/RoCE v1", of.name, None), Gid(1, fe80, "RoCE v2", of.name, None)]
    for nth, address in enumerate(of.addresses):
        at, mapped = gid + 2 * nth, "0000:0000:0000:0000:0000:ffff:0000:0000"
        rows += [
            Gid(at - 1, mapped, "IB/RoCE v1", of.name, address.ip),
            Gid(at, mapped, "RoCE v2", of.name, address.ip),
        ]
    known = {
        "active": of.up,
        "link_layer": "Ethernet",
        "mbit": of.mbit if of.up else 40_000,
        "system_guid": GUID,
        "port_name": of.port_name,
        "gids": tuple(rows),
    }
    return RdmaPort(
        device=device, port=1, interface=of.name, pci=pci, pcie_width=width, pcie_gt=32.0, **{**known, **more}
    )


def spark(
    nth: int,
    *,
    first: str | None = "192.168.100",
    second: str | None = "192.168.101",
    cage: int = 0,
    lan: str | None = LAN,
    gids: tuple[int, int] = (3, 3),
    width: int = 4,
    mtu: int = 9000,
    second_up: bool = True,
    extra: tuple[Interface, ...] = (),
    routes: tuple[Route, ...] = (),
) -> Facts:
    """A DGX Spark with one cable in a cage, both halves of it up in the subnets `first` and `second`.

    `lan`: the subnet of its 10 GbE port. Its host number is `nth` everywhere.
    """
    ends, ports = half(nth, cage, (first, second), gids=gids, width=width, mtu=mtu, second_up=second_up)
    idle, _ = half(nth, 1 - cage, (None, None), mtu=mtu)
    rj45 = link("enP7s7", *([f"{lan}.{nth}/24"] if lan else []), driver="r8127")
    dark = tuple(each.replace(up=False) for each in idle)
    off = tuple(
        port(each, f"roce{each.name[2:-3]}", each.pci or "", port_name=f"p{1 - cage}") for each in dark
    )
    return host(
        (*ends, *dark, rj45, *extra),
        gpu="NVIDIA GB10",
        rdma=(*ports, *off),
        routes=routes or (default("enP7s7"),),
    )


def half(
    nth: int,
    cage: int,
    subnets: tuple[str | None, str | None],
    *,
    gids: tuple[int, int] = (3, 3),
    width: int = 4,
    mtu: int = 9000,
    second_up: bool = True,
) -> tuple[tuple[Interface, ...], tuple[RdmaPort, ...]]:
    """Both halves of one cage of a Spark; `width` is the second controller's."""
    links = tuple(
        link(
            f"en{domain}p1s0f{cage}np{cage}",
            *([f"{subnet}.{nth + (10 * n if subnets[0] == subnets[1] else 0)}/24"] if subnet else []),
            mbit=200_000,
            mtu=mtu,
            driver="mlx5_core",
            pci=f"000{2 * n}:01:00.{cage}",
            port_name=f"p{cage}",
            up=second_up or n == 0,
        )
        for n, (domain, subnet) in enumerate(zip(("", "P2"), subnets, strict=True))
    )
    ports = tuple(
        port(each, f"roce{each.name[2:-3]}", each.pci or "", gid=gid, width=lanes)
        for each, gid, lanes in zip(links, gids, (4, width), strict=True)
    )
    return links, ports


def trio(nth: int, *, lan: str | None = LAN, bits: int = 24) -> Facts:
    """One of three Sparks, the first cage of each on a cable to the next's second (NVIDIA's playbook).

    Each half of a cable is in a subnet of its own.
    """
    cables = {1: (12, 13), 2: (23, 12), 3: (13, 23)}[nth]
    ends = {cage: (f"192.168.{cable}", f"192.168.{100 + cable}") for cage, cable in enumerate(cables)}
    return plugged(nth, ends, lan=lan, bits=bits)


def plugged(
    nth: int, ends: Mapping[int, tuple[str | None, str | None]], *, lan: str | None = LAN, bits: int = 24
) -> Facts:
    """A Spark by its cages: the subnets of both halves of each; a third is invented, for meshes."""
    links: tuple[Interface, ...] = ()
    ports: tuple[RdmaPort, ...] = ()
    for cage in sorted({0, 1, *ends}):
        both, theirs = half(nth, cage, ends.get(cage, (None, None)))
        both = tuple(
            each.replace(up=cage in ends, addresses=tuple(at.replace(prefix=bits) for at in each.addresses))
            for each in both
        )
        links = (*links, *both)
        ports = (*ports, *(each.replace(active=cage in ends) for each in theirs))
    rj45 = link("enP7s7", *([f"{lan}.{nth}/24"] if lan else []), driver="r8127")
    return host((*links, rj45), gpu="NVIDIA GB10", rdma=ports, routes=(default("enP7s7"),) if lan else ())


def wired(count: int, cables: str, *, lan: str | None = LAN) -> dict[str, Facts]:
    """So many Sparks, and cables as in `1.0-2.1`: the first cage of the first to the second of the second."""
    ends: dict[int, dict[int, tuple[str | None, str | None]]] = {nth: {} for nth in range(1, count + 1)}
    for number, cable in enumerate(cables.split(), 10):
        for end in cable.split("-"):
            nth, _, cage = end.partition(".")
            ends[int(nth)][int(cage)] = (f"192.168.{number}", f"192.168.{100 + number}")
    return group(*(plugged(nth, each, lan=lan) for nth, each in ends.items()))


def thor(
    nth: int, *, lan: str = LAN, lanes: tuple[str, ...] = ("10.1.0", "10.1.1", "10.1.2", "10.1.3")
) -> Facts:
    """A Jetson Thor: four lanes of 25 GbE, each in its own subnet, and a port of 5 GbE."""
    fast = (
        link(
            f"mgbe{n}_0",
            *([f"{lanes[n]}.{nth}/24"] if n < len(lanes) else []),
            mbit=25_000,
            driver="nvethernet",
        )
        for n in range(4)
    )
    rj45 = link("enP2p1s0", f"{lan}.{nth}/24", mbit=5_000, driver="r8126")
    board = Board(compatible=("nvidia,p3971", "nvidia,tegra264"))
    return host((*fast, rj45, USB), gpu="NVIDIA Thor", board=board)


def orin(nth: int, interface: str = "eno1") -> Facts:
    """A Jetson AGX Orin, whose nvidia-smi may be missing: no GPU shows."""
    board = Board(compatible=("nvidia,p3737", "nvidia,tegra234"))
    return host((link(interface, f"{LAN}.{nth}/24", driver="nvethernet"), USB, DOCKER), gpus=0, board=board)


def rtx(nth: int, *, gpus: int = 1, gid: int = 3) -> Facts:
    """A workstation with a single-port ConnectX on the cable that a Spark's cage leads to."""
    fast = link("enp65s0np0", f"192.168.100.{nth}/24", mbit=100_000, mtu=9000, driver="mlx5_core")
    lan = link("enp5s0", f"{LAN}.{nth}/24", mbit=2_500, driver="igc")
    card = port(fast, "mlx5_0", "0000:41:00.0", gid=gid, width=16, system_guid="b8ce:f603:00aa:0001")
    return host((fast, lan), gpus=gpus, gpu="NVIDIA RTX PRO 6000", rdma=(card,), routes=(default("enp5s0"),))


def server(nth: int, *links: Interface, **more: Any) -> Facts:
    """A host without a GPU."""
    return host(links or (link("eth0", f"{LAN}.{nth}/24"),), gpus=0, **more)
