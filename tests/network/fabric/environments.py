"""The environments of a group, and those of single hosts as they are written by hand."""

from medley.host.facts import Facts
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.network.fabric.nccl import LOCKED_NCCL
from medley.network.fabric.variables import list_group_variables, list_host_variables

OLDER_NCCL = (2, 29, 7)
"""One that knows no subnets; the locks have a newer one."""


def values(variables: object) -> dict[str, str]:
    assert isinstance(variables, (list, tuple))
    assert all(each.why for each in variables)
    return {each.name: each.value for each in variables}


def environments(
    *hosts: Facts, wishes: NetworkOptions | None = None, nccl: tuple[int, ...] = LOCKED_NCCL
) -> tuple[dict[str, str], list[dict[str, str]]]:
    """The group's, and each host's."""
    named = {f"h{nth}": facts for nth, facts in enumerate(hosts, 1)}
    found = choose_fabric(named, wishes or NetworkOptions(nccl_version=nccl))
    each = [values(tuple(list_host_variables(found, name, facts))) for name, facts in named.items()]
    return values(tuple(list_group_variables(found, named))), each


def cpu(address: str, interface: str) -> dict[str, str]:
    return {"VLLM_HOST_IP": address, "GLOO_SOCKET_IFNAME": interface, "TP_SOCKET_IFNAME": interface}


def tcp(address: str, interface: str, lanes: str = "") -> dict[str, str]:
    return {
        **cpu(address, interface),
        "NCCL_SOCKET_IFNAME": f"={lanes or interface}",
        "UCX_NET_DEVICES": interface,
    }


def rdma(address: str, interface: str, ports: str, *, gid: str | None = "3") -> dict[str, str]:
    return {
        **cpu(address, interface),
        "NCCL_SOCKET_IFNAME": f"={interface}",
        "UCX_NET_DEVICES": f"{ports},{interface}",
        "NCCL_IB_HCA": f"={ports}",
        **({"NCCL_IB_GID_INDEX": gid} if gid else {}),
    }
