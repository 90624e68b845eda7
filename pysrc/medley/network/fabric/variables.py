"""Set the network variables of NCCL, Gloo, UCX and vLLM.

Variables of a host differ from host to host: `ray start` sets them, and a driver must not carry its own to
others. Variables of the group are equal everywhere.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from medley.command import Variable, users
from medley.host.facts import Facts
from medley.host.kind import has_gpudirect
from medley.network.fabric import types
from medley.network.fabric.types import Endpoint, Fabric

NOT_CARRIED = (
    *("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
)
"""The names that of_host yields, for ray_non_carry_over_env_vars.json on the driver's host."""

LEFT_UNSET: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_P2P_DISABLE": "P2P is between GPUs of one host: unused with one GPU, and the fastest with two",
        "NCCL_SHM_DISABLE": "without shared memory the GPUs of one host use the network",
        "NCCL_PROTO": "NCCL skips protocols that a GPU cannot use; LL is the fastest for small messages",
    }
)
"""Variables that guides set by hand and medley usually does not."""

_USERS = ("NCCL_", "GLOO_", "UCX_", "TP_SOCKET_IFNAME")


def of_host(fabric: Fabric, name: str, facts: Facts) -> Iterator[Variable]:
    """Yield the variables of this host's `ray start`; none for a single host."""
    if fabric.transport == "none":
        return
    end = fabric.ends[name]
    yield Variable("VLLM_HOST_IP", end.address, "this host's address in Ray; vLLM waits for it")
    why = "the network all hosts share; the default is the address of the hostname, often the loopback"
    yield Variable("GLOO_SOCKET_IFNAME", end.interface, f"{why} (Gloo takes a bare name)")
    yield Variable("TP_SOCKET_IFNAME", end.interface, f"{why} (TensorPipe, PyTorch's RPC)")
    if types.nccl_speaks(facts):
        yield from _of_nccl(fabric, end)


def of_group(fabric: Fabric, hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    """Yield the variables that are equal on all hosts; without a GPU only those of faster sockets."""
    if fabric.rank_ends:
        yield from _sockets_of_ranks(fabric.rank_ends.values())
    if fabric.transport == "none" or not any(types.nccl_speaks(facts) for facts in hosts.values()):
        return
    if fabric.transport == "tcp":
        reason = next((each for each in fabric.why if each.startswith("TCP")), "TCP")
        yield Variable("NCCL_IB_DISABLE", "1", f"one transport for all ranks; {reason}")
        yield from _careful(hosts)
        return
    why = "a host that cannot load libibverbs stops instead of falling back to TCP (NCCL >= 2.10)"
    yield Variable("NCCL_NET", "IB", why)
    if fabric.hca:
        why = "the ports of all hosts, of which each uses its own; = for exact names"
        yield Variable("NCCL_IB_HCA", f"={fabric.hca}", why, everywhere=True)
    layers = {port.link_layer for end in fabric.ends.values() for port in end.ports}
    if fabric.gid_index is None and layers - {"InfiniBand"}:
        since = "the GID's index differs between hosts; NCCL >= 2.21 finds it by this"
        yield Variable("NCCL_IB_ROCE_VERSION_NUM", "2", since)
        yield Variable("NCCL_IB_ADDR_FAMILY", "AF_INET", since)
    yield from _ring(fabric) if fabric.ring else _rails(fabric)
    yield from _gpudirect(hosts)


def settled(ours: Iterable[Variable], environment: Mapping[str, str]) -> tuple[Variable, ...]:
    """Return medley's variables, overridden and extended by the user's.

    VLLM_HOST_IP is not overridden: with an address unknown to Ray, vLLM waits half an hour for it.
    """
    found = {each.name: each for each in ours}
    for name in sorted(each for each in environment if each.startswith(_USERS)):
        if name in found:
            found[name] = users(found[name], environment)
        else:
            reason = f": {LEFT_UNSET[name]}" if name in LEFT_UNSET else ""
            found[name] = Variable(name, environment[name], f"set by you; medley would not{reason}")
    return tuple(found.values())


def _of_nccl(fabric: Fabric, end: Endpoint) -> Iterator[Variable]:
    # NCCL matches by prefix, so that eth1 would take eth10 too, unless the list begins with =.
    lanes = ",".join(end.lanes)
    beside = f"{len(end.lanes)} lanes in parallel" if len(end.lanes) > 1 else "the network all hosts share"
    yield Variable("NCCL_SOCKET_IFNAME", f"={lanes}", f"{beside}; = for exact names")
    if not end.ports:
        yield Variable("UCX_NET_DEVICES", end.interface, "the same link for NIXL and other users of UCX")
        return
    ports = [port.named for port in end.ports]
    shown = ",".join((*ports, end.interface))
    yield Variable("UCX_NET_DEVICES", shown, "the same ports for UCX, and the interface for its bootstrap")
    all_of = "every port in use, both functions of a QSFP port" if len(ports) > 1 else "the port in use"
    if fabric.hca is None:
        yield Variable("NCCL_IB_HCA", f"={','.join(ports)}", f"{all_of}; = for exact names")
    if fabric.gid_index is not None:
        why = "the RoCE v2 GID of the IPv4 address, at one index on all hosts"
        yield Variable("NCCL_IB_GID_INDEX", str(fabric.gid_index), why)


def _sockets_of_ranks(ends: Collection[Endpoint]) -> Iterator[Variable]:
    """Yield what moves the ranks from the sockets of `ray start` to a faster network."""
    why = "a faster network of these hosts than Ray's"
    lanes = ",".join(dict.fromkeys(lane for end in ends for lane in end.lanes))
    yield Variable("NCCL_SOCKET_IFNAME", f"={lanes}", f"{why}; = for exact names", everywhere=True)
    first = {end.interface for end in ends}
    if len(first) > 1:
        return  # Gloo takes one name, which every host must have: it stays in Ray's network
    yield Variable("GLOO_SOCKET_IFNAME", first.pop(), f"{why} (Gloo takes a bare name)", everywhere=True)


def _rails(fabric: Fabric) -> Iterator[Variable]:
    if any(len(end.ports) > 1 for end in fabric.ends.values()):
        why = "ports to the same hosts may be merged (NCCL >= 2.20)"
        yield Variable("NCCL_IB_MERGE_NICS", "1", why)
        why = "each port has its own subnet, so data must leave and arrive at the same port"
        yield Variable("NCCL_CROSS_NIC", "0", why)


def _ring(fabric: Fabric) -> Iterator[Variable]:
    needs = f"NCCL >= {types.AWARE_TEXT}"
    yield Variable("NCCL_IB_SUBNET_AWARE_ROUTING", "1", f"each cable leads to only one host ({needs})")
    if fabric.subnet_bits not in {None, 24}:
        why = f"the cables' subnets differ in these bits ({needs})"
        yield Variable("NCCL_IB_SUBNET_PREFIX_LEN", str(fabric.subnet_bits), why)
    yield Variable("NCCL_IB_MERGE_NICS", "0", "ports of one card lead to different hosts (NCCL >= 2.20)")
    yield Variable("NCCL_CROSS_NIC", "1", "data arrives by one cable and leaves by the other")
    yield Variable("NCCL_NET_PLUGIN", "none", "a plugin's own transport ignores subnets")


def _gpudirect(hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    lacking = [host for host, facts in sorted(hosts.items()) if not has_gpudirect(facts)]
    if lacking:
        why = f"{', '.join(lacking)}: no GPUDirect RDMA, and probing for it only logs warnings"
        yield Variable("NCCL_NET_GDR_LEVEL", "LOC", f"{why} (LOC: never; numbers are discouraged)")
        yield Variable("NCCL_DMABUF_ENABLE", "0", why)


def _careful(hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    """Yield NCCL_PROTO for mixed GPUs over TCP, as in the published setup of Spark and Thor."""
    single = all(len(facts.gpus) <= 1 for facts in hosts.values())
    speaking = [facts for facts in hosts.values() if types.nccl_speaks(facts)]
    # A Jetson's GPU may be known only by its SoC.
    sorts = {
        name for facts in speaking for name in ({gpu.name for gpu in facts.gpus} or {facts.board.soc or ""})
    }
    if single and len(sorts) > 1:
        why = "different GPUs work with it over TCP, where other protocols gain little"
        yield Variable("NCCL_PROTO", "Simple", why)
