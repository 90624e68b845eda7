"""A spec says which hosts a rack has and how they are wired; names and addresses follow from it."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from typing import Any, Self

NETWORK = "10.78"  # of the private ranges; the third number is the link's, the fourth the host's


@dataclass(frozen=True)
class Link:
    """A switch between some hosts (all, if none are named), or a cable between two."""

    name: str = "lan"
    hosts: tuple[str, ...] = ()
    mbit: int | None = None
    mtu: int | None = None
    interface: str | None = None  # its name on the hosts; eth0, eth1, … otherwise
    direct: bool = False  # a cable: when one end goes, the other has no carrier
    shows_speed: bool = False  # its hosts read `mbit` as the interface's speed, as of a real port

    @classmethod
    def cable(
        cls,
        name: str,
        *hosts: str,
        mbit: int | None = None,
        mtu: int | None = None,
        interface: str | None = None,
        shows_speed: bool = False,
    ) -> Self:
        return cls(name, hosts, mbit=mbit, mtu=mtu, interface=interface, direct=True, shows_speed=shows_speed)


@dataclass(frozen=True)
class Port:
    """Where a host is plugged into a link."""

    host: str
    link: Link
    interface: str
    address: str
    switch_port: str  # the other end of the wire, which only the rack's keeper sees


@dataclass(frozen=True)
class Spec:
    """So many hosts, host1 first; their links; folders of /tmp they share; of some the share and the cores.

    `cpus` is a quota in processors (0.3: three tenths of one's time), `cores` the list of those that
    a host has (0 or 0-3), which its programs count. Hosts with the same cores slow each other down.
    """

    hosts: int
    links: tuple[Link, ...] = (Link(),)
    cpus: Mapping[str, float] = field(default_factory=dict)
    cores: Mapping[str, str] = field(default_factory=dict)
    share: tuple[str, ...] = ()
    name: str = "rack"
    cache: str | None = None
    """The hosts' MEDLEY_CACHE, where it is not the machine's."""

    def __post_init__(self) -> None:
        names = [link.name for link in self.links]
        _expect(1 <= self.hosts < 255, f"a rack has 1 to 254 hosts, not {self.hosts}")
        _expect(len(set(names)) == len(names), f"two links have one name: {', '.join(names)}")
        for link in self.links:
            known = set(link.hosts) <= set(self.names)
            _expect(known, f"{link.name} joins {', '.join(link.hosts)}; there are {', '.join(self.names)}")
            _expect(len(link.name) <= 11, f"{link.name} is longer than 11 letters")  # IFNAMSIZ
            _expect(not link.direct or len(link.hosts) == 2, f"the cable {link.name} has not two ends")
        for some in (self.cpus, self.cores):
            _expect(set(some) <= set(self.names), f"cpus of hosts not here: {', '.join(some)}")

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"host{number}" for number in range(1, self.hosts + 1))

    @cached_property
    def ports(self) -> tuple[Port, ...]:
        """All of them, in the order of the links."""
        made: list[Port] = []
        for third, link in enumerate(self.links):
            for host in link.hosts or self.names:
                number = self.names.index(host) + 1
                taken = sum(port.host == host for port in made)
                interface = link.interface or f"eth{taken}"
                address = f"{NETWORK}.{third}.{number}"
                made.append(Port(host, link, interface, address, f"{link.name}.{number}"))
        return tuple(made)

    def ports_of(self, host: str) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.host == host)

    def plugged(self, link: str) -> tuple[Port, ...]:
        return tuple(port for port in self.ports if port.link.name == link)

    @property
    def etc_hosts(self) -> str:
        """host2 is its address on its first link, host2.fast the one on the link `fast`."""
        lines = ["127.0.0.1 localhost"]
        seen: set[str] = set()
        for port in self.ports:
            first = [] if port.host in seen else [port.host]
            seen.add(port.host)
            lines.append(" ".join([port.address, *first, f"{port.host}.{port.link.name}"]))
        return "\n".join(lines) + "\n"

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """A rack of another checkout, whose keeper is seen too, may have settings that are not known here."""
        table = _known(cls, json.loads(text))
        links = (_known(Link, link) for link in table["links"])
        made = tuple(Link(**{**link, "hosts": tuple(link["hosts"])}) for link in links)
        return cls(**{**table, "links": made, "share": tuple(table["share"])})


def _known(kind: type[Spec | Link], table: dict[str, Any]) -> dict[str, Any]:
    names = {each.name for each in fields(kind)}
    return {name: value for name, value in table.items() if name in names}


def _expect(true: bool, otherwise: str) -> None:  # noqa: FBT001 - as assert, which -O would drop
    if not true:
        raise ValueError(otherwise)
