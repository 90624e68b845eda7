"""Variables set by hand."""

from collections.abc import Iterator, Mapping

from medley.cluster import FILE
from medley.doctor.checks import UNASKED, Case, Check, ExaminedHost, case_check
from medley.engine.unread_variables import require_read
from medley.environment import engine_source
from medley.errors import Problem
from medley.network.fabric.types import Endpoint

_FILES = "in ~/.bashrc, ~/.profile or /etc/environment"
_DECOYS = ("lo", "docker", "br-", "veth", "virbr", "cni", "tailscale", "wg", "tun", "zt")


@case_check("by-hand", "variables set by hand")
def variables(case: Case) -> Iterator[Check]:
    """They name addresses, links and devices that are there, and do not keep RDMA from being used."""
    for name, host in case.hosts.items():
        if host.health.settings is None:
            yield host.unknown(UNASKED)
            continue
        said = host.health.settings.variables
        found = [*_address(host, said), *_links(host, said), *_devices(host, said), *_of_cuda(host, said)]
        found += _unread(case, host)
        if case.fabric and case.fabric.transport == "rdma" and (end := case.fabric.ends.get(name)):
            found += _against_rdma(host, said, end)
        yield from found or [host.ok(_fine(host, said))]


def _address(host: ExaminedHost, said: Mapping[str, str]) -> Iterator[Check]:
    address, own = said.get("VLLM_HOST_IP"), host.facts.net.ips
    if address and own and address not in own:
        yield host.wrong(
            f"VLLM_HOST_IP is {address}, which is not an address of this host",
            cause=f"it has {', '.join(sorted(own))}; vLLM then waits half an hour for a node",
            fix=f"unset VLLM_HOST_IP  # and take it out where it is set: {_FILES}",
        )


def _links(host: ExaminedHost, said: Mapping[str, str]) -> Iterator[Check]:
    links = {link.name for link in host.facts.net.links}
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = said.get(variable, "")
        meant = [each for each in value.lstrip("=").split(",") if each]
        if value.startswith("^") or not meant or not links:
            continue
        # NCCL matches by the beginning of a name, unless its list begins with =.
        exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
        lost = any(
            each not in links if exact else not any(link.startswith(each) for link in links) for each in meant
        )
        if lost or all(each.startswith(_DECOYS) for each in meant):
            which = "this host does not have" if lost else "does not reach other hosts"
            yield host.wrong(
                f"{variable}={value} names a link that {which}",
                cause=f"this host's links are {', '.join(sorted(links))}",
                fix=f"unset {variable}  # medley sets it for each host; take it out {_FILES}",
            )


def _devices(host: ExaminedHost, said: Mapping[str, str]) -> Iterator[Check]:
    value = said.get("NCCL_IB_HCA", "")
    meant = [each.partition(":")[0] for each in value.lstrip("=").split(",") if each]
    devices = {port.device for port in host.facts.rdma}
    lost = any(not any(device.startswith(each) for device in devices) for each in meant)
    if lost and not value.startswith("^"):
        yield host.wrong(
            f"NCCL_IB_HCA={value} names a device that this host does not have",
            cause=f"it has {', '.join(sorted(devices)) or 'none'}",
            fix=f"unset NCCL_IB_HCA  # medley sets it for each host; take it out {_FILES}",
        )


def _of_cuda(host: ExaminedHost, said: Mapping[str, str]) -> Iterator[Check]:
    """GPUs that are hidden, and kernels that are compiled for another one."""
    gpus, seen = host.facts.gpus, said.get("CUDA_VISIBLE_DEVICES")
    if gpus and seen is not None and seen.strip() in {"", "-1", "NoDevFiles"}:
        yield host.wrong(
            f"CUDA_VISIBLE_DEVICES={seen} hides every GPU",
            cause=f"this host has {', '.join(gpu.name for gpu in gpus)}",
            fix=f"unset CUDA_VISIBLE_DEVICES  # take it out {_FILES}",
        )
    archs = said.get("TORCH_CUDA_ARCH_LIST") or ""
    lacking = {gpu.capability for gpu in gpus if gpu.capability and gpu.capability not in archs}
    if archs and lacking:
        yield host.better(
            f"TORCH_CUDA_ARCH_LIST={archs} lacks {', '.join(sorted(lacking))}",
            cause="kernels that an engine compiles at run time then do not fit this GPU",
            fix=f"unset TORCH_CUDA_ARCH_LIST  # medley sets it for each kind of host; take it out {_FILES}",
        )


def _unread(case: Case, host: ExaminedHost) -> Iterator[Check]:
    """Of vLLM's: serve refuses those that the release in its lock ignores."""
    settings, kind = host.health.settings, host.kind
    if kind is None or host.member.image or host.member.env:
        return
    locked = engine_source.locked().get(kind.host.environments.get(case.engine, ""), {})
    version = locked.get(case.engine)
    for names, file in ((settings.vllm_names if settings else (), None), (host.member.environment, FILE)):
        try:
            require_read(names, case.engine, version, file=file)
        except Problem as problem:
            yield host.failed(problem)


def _against_rdma(host: ExaminedHost, said: Mapping[str, str], end: Endpoint) -> Iterator[Check]:
    index = said.get("NCCL_IB_GID_INDEX")
    if index and end.gid_index is not None and index != str(end.gid_index):
        yield host.wrong(
            f"NCCL_IB_GID_INDEX is {index}, and the address is in row {end.gid_index}",
            cause="rows move when a link flaps, and differ between hosts",
            fix=f"unset NCCL_IB_GID_INDEX  # medley reads it at every start; take it out {_FILES}",
        )
    if said.get("NCCL_IB_DISABLE") == "1":
        yield host.better(
            "NCCL_IB_DISABLE=1 keeps NCCL from RDMA",
            cause="every host here can do RDMA, and TCP reaches a part of its speed",
            fix=f"unset NCCL_IB_DISABLE  # take it out {_FILES}",
        )


def _fine(host: ExaminedHost, said: Mapping[str, str]) -> str:
    links = host.facts.net.links
    never = [link.name for link in links if link.kind in {"container", "tunnel", "gadget"} and link.up]
    named = [each for each in said if each.startswith(("NCCL", "GLOO", "TP_", "UCX", "VLLM"))]
    more = f"; {', '.join(never)} {'are' if len(never) > 1 else 'is'} never taken" if never else ""
    return f"{', '.join(named) or 'nothing'} is set by hand{more}"
