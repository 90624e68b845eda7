"""Set the network variables of NCCL, Gloo, UCX and vLLM.

Variables of a host differ from host to host: `ray start` sets them, and a driver must not carry its own to
others. Variables of the group are equal everywhere.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from types import MappingProxyType

from medley.command import Variable, prefer_user_value
from medley.host.facts import Facts
from medley.host.kind import has_gpudirect
from medley.network.fabric.choice import Endpoint, Fabric
from medley.network.fabric.nccl import SUBNET_AWARE_TEXT, has_nccl_gpu

NOT_CARRIED_VARIABLES = (
    *("VLLM_HOST_IP", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_IB_GID_INDEX"),
)
"""The names that list_host_variables yields, for ray_non_carry_over_env_vars.json on the driver's host."""

LEFT_UNSET: Mapping[str, str] = MappingProxyType(
    {
        "NCCL_P2P_DISABLE": "P2P is between GPUs of one host: unused with one GPU, and the fastest with two",
        "NCCL_SHM_DISABLE": "without shared memory the GPUs of one host use the network",
        "NCCL_PROTO": "NCCL skips protocols that a GPU cannot use; LL is the fastest for small messages",
    }
)
"""Variables that guides set by hand and medley usually does not."""

_USER_PREFIXES = ("NCCL_", "GLOO_", "UCX_", "TP_SOCKET_IFNAME")


def list_host_variables(fabric: Fabric, name: str, facts: Facts) -> Iterator[Variable]:
    """Yield the variables of this host's `ray start`; none for a single host."""
    if fabric.transport == "none":
        return
    endpoint = fabric.endpoints[name]
    yield Variable("VLLM_HOST_IP", endpoint.address, "this host's address in Ray; vLLM waits for it")
    why = "the network all hosts share; the default is the address of the hostname, often the loopback"
    yield Variable("GLOO_SOCKET_IFNAME", endpoint.interface, f"{why} (Gloo takes a bare name)")
    yield Variable("TP_SOCKET_IFNAME", endpoint.interface, f"{why} (TensorPipe, PyTorch's RPC)")
    if has_nccl_gpu(facts):
        yield from _list_nccl_variables(fabric, endpoint)


def list_group_variables(fabric: Fabric, hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    """Yield the variables that are equal on all hosts; without a GPU only those of faster sockets."""
    if fabric.rank_endpoints:
        yield from _list_rank_socket_variables(fabric.rank_endpoints.values())
    if fabric.transport == "none" or not any(has_nccl_gpu(facts) for facts in hosts.values()):
        return
    if fabric.transport == "tcp":
        reason = next((line for line in fabric.why if line.startswith("TCP")), "TCP")
        yield Variable("NCCL_IB_DISABLE", "1", f"one transport for all ranks; {reason}")
        yield from _list_mixed_gpu_variables(hosts)
        return
    why = "a host that cannot load libibverbs stops instead of falling back to TCP (NCCL >= 2.10)"
    yield Variable("NCCL_NET", "IB", why)
    if fabric.hca:
        why = "the ports of all hosts, of which each uses its own; = for exact names"
        yield Variable("NCCL_IB_HCA", f"={fabric.hca}", why, everywhere=True)
    layers = {port.link_layer for end in fabric.endpoints.values() for port in end.ports}
    if fabric.gid_index is None and layers - {"InfiniBand"}:
        why_gid = "the GID's index differs between hosts; NCCL >= 2.21 finds it by this"
        yield Variable("NCCL_IB_ROCE_VERSION_NUM", "2", why_gid)
        yield Variable("NCCL_IB_ADDR_FAMILY", "AF_INET", why_gid)
    yield from _list_ring_variables(fabric) if fabric.is_ring else _list_rail_variables(fabric)
    yield from _list_gpudirect_variables(hosts)


def merge_user_variables(
    variables: Iterable[Variable], environment: Mapping[str, str]
) -> tuple[Variable, ...]:
    """Return medley's variables, overridden and extended by the user's.

    VLLM_HOST_IP is not overridden: with an address unknown to Ray, vLLM waits half an hour for it.
    """
    keep_last_values = {variable.name: variable for variable in variables}
    for name in sorted(name for name in environment if name.startswith(_USER_PREFIXES)):
        if name in keep_last_values:
            keep_last_values[name] = prefer_user_value(keep_last_values[name], environment)
        else:
            reason = f": {LEFT_UNSET[name]}" if name in LEFT_UNSET else ""
            keep_last_values[name] = Variable(
                name, environment[name], f"set by you; medley would not{reason}"
            )
    return tuple(keep_last_values.values())


def _list_nccl_variables(fabric: Fabric, endpoint: Endpoint) -> Iterator[Variable]:
    # NCCL matches by prefix, so that eth1 would take eth10 too, unless the list begins with =.
    lanes = ",".join(endpoint.lanes)
    reason = (
        f"{len(endpoint.lanes)} lanes in parallel"
        if len(endpoint.lanes) > 1
        else "the network all hosts share"
    )
    yield Variable("NCCL_SOCKET_IFNAME", f"={lanes}", f"{reason}; = for exact names")
    if not endpoint.ports:
        yield Variable("UCX_NET_DEVICES", endpoint.interface, "the same link for NIXL and other users of UCX")
        return
    ports = [port.nccl_name for port in endpoint.ports]
    devices = ",".join((*ports, endpoint.interface))
    yield Variable("UCX_NET_DEVICES", devices, "the same ports for UCX, and the interface for its bootstrap")
    port_reason = "every port in use, both functions of a QSFP port" if len(ports) > 1 else "the port in use"
    if fabric.hca is None:
        yield Variable("NCCL_IB_HCA", f"={','.join(ports)}", f"{port_reason}; = for exact names")
    if fabric.gid_index is not None:
        why = "the RoCE v2 GID of the IPv4 address, at one index on all hosts"
        yield Variable("NCCL_IB_GID_INDEX", str(fabric.gid_index), why)


def _list_rank_socket_variables(endpoints: Collection[Endpoint]) -> Iterator[Variable]:
    """Yield the variables that move the ranks from the sockets of `ray start` to a faster network."""
    why = "a faster network of these hosts than Ray's"
    lanes = ",".join(dict.fromkeys(lane for endpoint in endpoints for lane in endpoint.lanes))
    yield Variable("NCCL_SOCKET_IFNAME", f"={lanes}", f"{why}; = for exact names", everywhere=True)
    interfaces = {endpoint.interface for endpoint in endpoints}
    if len(interfaces) > 1:
        return  # Gloo takes one name, which every host must have: it stays in Ray's network
    yield Variable("GLOO_SOCKET_IFNAME", interfaces.pop(), f"{why} (Gloo takes a bare name)", everywhere=True)


def _list_rail_variables(fabric: Fabric) -> Iterator[Variable]:
    if any(len(endpoint.ports) > 1 for endpoint in fabric.endpoints.values()):
        why = "ports to the same hosts may be merged (NCCL >= 2.20)"
        yield Variable("NCCL_IB_MERGE_NICS", "1", why)
        why = "each port has its own subnet, so data must leave and arrive at the same port"
        yield Variable("NCCL_CROSS_NIC", "0", why)


def _list_ring_variables(fabric: Fabric) -> Iterator[Variable]:
    requirement = f"NCCL >= {SUBNET_AWARE_TEXT}"
    yield Variable("NCCL_IB_SUBNET_AWARE_ROUTING", "1", f"each cable leads to only one host ({requirement})")
    if fabric.subnet_bits not in {None, 24}:
        why = f"the cables' subnets differ in these bits ({requirement})"
        yield Variable("NCCL_IB_SUBNET_PREFIX_LEN", str(fabric.subnet_bits), why)
    yield Variable("NCCL_IB_MERGE_NICS", "0", "ports of one card lead to different hosts (NCCL >= 2.20)")
    yield Variable("NCCL_CROSS_NIC", "1", "data arrives by one cable and leaves by the other")
    yield Variable("NCCL_NET_PLUGIN", "none", "a plugin's own transport ignores subnets")


def _list_gpudirect_variables(hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    hosts_without = [host for host, facts in sorted(hosts.items()) if not has_gpudirect(facts)]
    if hosts_without:
        why = f"{', '.join(hosts_without)}: no GPUDirect RDMA, and probing for it only logs warnings"
        yield Variable("NCCL_NET_GDR_LEVEL", "LOC", f"{why} (LOC: never; numbers are discouraged)")
        yield Variable("NCCL_DMABUF_ENABLE", "0", why)


def _list_mixed_gpu_variables(hosts: Mapping[str, Facts]) -> Iterator[Variable]:
    """Yield NCCL_PROTO for mixed GPUs over TCP, as in the published setup of Spark and Thor."""
    has_one_gpu_each = all(len(facts.gpus) <= 1 for facts in hosts.values())
    facts_with_gpu = [facts for facts in hosts.values() if has_nccl_gpu(facts)]
    names: set[str] = set()
    for facts in facts_with_gpu:
        # A Jetson's GPU may be known only by its SoC.
        names |= {gpu.name for gpu in facts.gpus} or {facts.board.soc or ""}
    if has_one_gpu_each and len(names) > 1:
        why = "different GPUs work with it over TCP, where other protocols gain little"
        yield Variable("NCCL_PROTO", "Simple", why)
