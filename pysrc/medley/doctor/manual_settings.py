"""Check environment variables that the user has set by hand."""

from collections.abc import Iterator, Mapping

from medley.cluster.cluster_file import CLUSTER_FILE
from medley.doctor.checks import NOT_RECORDED, Check, Examination, ExaminedHost, all_hosts_check
from medley.engine.unread_variables import require_read_variables
from medley.environment import engine_source
from medley.errors import Problem
from medley.network.fabric.choice import Endpoint

_FILES_TEXT = "in ~/.bashrc, ~/.profile or /etc/environment"
_LOCAL_LINK_PREFIXES = ("lo", "docker", "br-", "veth", "virbr", "cni", "tailscale", "wg", "tun", "zt")
"""Beginnings of the names of links that do not reach other hosts."""


@all_hosts_check("by-hand", "variables set by hand")
def variables(examination: Examination) -> Iterator[Check]:
    """Check that they name existing addresses, links and devices, and do not switch RDMA off."""
    for name, host in examination.hosts.items():
        if host.health.settings is None:
            yield host.report_unknown(NOT_RECORDED)
            continue
        values = host.health.settings.variables
        results = [
            *_check_address(host, values),
            *_check_links(host, values),
            *_check_devices(host, values),
            *_check_cuda(host, values),
            *_check_unread(examination, host),
        ]
        if (
            examination.fabric
            and examination.fabric.transport == "rdma"
            and (end := examination.fabric.endpoints.get(name))
        ):
            results += _check_rdma(host, values, end)
        yield from results or [host.report_ok(_summarize_variables(host, values))]


def _check_address(host: ExaminedHost, values: Mapping[str, str]) -> Iterator[Check]:
    address, host_ips = values.get("VLLM_HOST_IP"), host.facts.net.ips
    if address and host_ips and address not in host_ips:
        yield host.report_wrong(
            f"VLLM_HOST_IP is {address}, which is not an address of this host",
            cause=f"it has {', '.join(sorted(host_ips))}; vLLM then waits half an hour for a node",
            fix=f"unset VLLM_HOST_IP  # and take it out where it is set: {_FILES_TEXT}",
        )


def _check_links(host: ExaminedHost, values: Mapping[str, str]) -> Iterator[Check]:
    links = {link.name for link in host.facts.net.links}
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = values.get(variable, "")
        listed_links = [name for name in value.lstrip("=").split(",") if name]
        if value.startswith("^") or not listed_links or not links:
            continue
        # NCCL matches by the beginning of a name, unless its list begins with =.
        is_exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
        is_missing = any(not _matches_link(name, links, is_exact=is_exact) for name in listed_links)
        if is_missing or all(name.startswith(_LOCAL_LINK_PREFIXES) for name in listed_links):
            fault = "this host does not have" if is_missing else "does not reach other hosts"
            yield host.report_wrong(
                f"{variable}={value} names a link that {fault}",
                cause=f"this host's links are {', '.join(sorted(links))}",
                fix=f"unset {variable}  # medley sets it for each host; take it out {_FILES_TEXT}",
            )


def _matches_link(name: str, links: set[str], *, is_exact: bool) -> bool:
    return name in links if is_exact else any(link.startswith(name) for link in links)


def _check_devices(host: ExaminedHost, values: Mapping[str, str]) -> Iterator[Check]:
    value = values.get("NCCL_IB_HCA", "")
    listed_devices = [name.partition(":")[0] for name in value.lstrip("=").split(",") if name]
    devices = {port.device for port in host.facts.rdma}
    is_missing = any(not any(device.startswith(name) for device in devices) for name in listed_devices)
    if is_missing and not value.startswith("^"):
        yield host.report_wrong(
            f"NCCL_IB_HCA={value} names a device that this host does not have",
            cause=f"it has {', '.join(sorted(devices)) or 'none'}",
            fix=f"unset NCCL_IB_HCA  # medley sets it for each host; take it out {_FILES_TEXT}",
        )


def _check_cuda(host: ExaminedHost, values: Mapping[str, str]) -> Iterator[Check]:
    """Find variables that hide the GPUs, or compile kernels for other ones."""
    gpus, visible_devices = host.facts.gpus, values.get("CUDA_VISIBLE_DEVICES")
    if gpus and visible_devices is not None and visible_devices.strip() in {"", "-1", "NoDevFiles"}:
        yield host.report_wrong(
            f"CUDA_VISIBLE_DEVICES={visible_devices} hides every GPU",
            cause=f"this host has {', '.join(gpu.name for gpu in gpus)}",
            fix=f"unset CUDA_VISIBLE_DEVICES  # take it out {_FILES_TEXT}",
        )
    archs = values.get("TORCH_CUDA_ARCH_LIST") or ""
    missing_archs = {gpu.capability for gpu in gpus if gpu.capability and gpu.capability not in archs}
    if archs and missing_archs:
        advice = f"medley sets it for each kind of host; take it out {_FILES_TEXT}"
        yield host.report_improvable(
            f"TORCH_CUDA_ARCH_LIST={archs} lacks {', '.join(sorted(missing_archs))}",
            cause="kernels that an engine compiles at run time then do not fit this GPU",
            fix=f"unset TORCH_CUDA_ARCH_LIST  # {advice}",
        )


def _check_unread(examination: Examination, host: ExaminedHost) -> Iterator[Check]:
    """Find engine variables that the release in the lock ignores; `serve` refuses them."""
    settings, kind = host.health.settings, host.kind
    if kind is None or host.member.image or host.member.env:
        return
    locked = engine_source.read_locked_versions().get(kind.table.environments.get(examination.engine, ""), {})
    version = locked.get(examination.engine)
    for names, file in (
        (settings.vllm_names if settings else (), None),
        (host.member.environment, CLUSTER_FILE),
    ):
        try:
            require_read_variables(names, examination.engine, version, file=file)
        except Problem as problem:
            yield host.report_problem(problem)


def _check_rdma(host: ExaminedHost, values: Mapping[str, str], end: Endpoint) -> Iterator[Check]:
    index = values.get("NCCL_IB_GID_INDEX")
    if index and end.gid_index is not None and index != str(end.gid_index):
        yield host.report_wrong(
            f"NCCL_IB_GID_INDEX is {index}, and the address is in row {end.gid_index}",
            cause="rows move when a link flaps, and differ between hosts",
            fix=f"unset NCCL_IB_GID_INDEX  # medley reads it at every start; take it out {_FILES_TEXT}",
        )
    if values.get("NCCL_IB_DISABLE") == "1":
        yield host.report_improvable(
            "NCCL_IB_DISABLE=1 keeps NCCL from RDMA",
            cause="every host here can do RDMA, and TCP reaches a part of its speed",
            fix=f"unset NCCL_IB_DISABLE  # take it out {_FILES_TEXT}",
        )


def _summarize_variables(host: ExaminedHost, values: Mapping[str, str]) -> str:
    """Name the variables that are set, and the links that medley never uses."""
    links = host.facts.net.links
    unused_links = [link.name for link in links if link.kind in {"container", "tunnel", "gadget"} and link.up]
    names = [name for name in values if name.startswith(("NCCL", "GLOO", "TP_", "UCX", "VLLM"))]
    summary = f"{', '.join(names) or 'nothing'} is set by hand"
    if not unused_links:
        return summary
    return f"{summary}; {', '.join(unused_links)} {'are' if len(unused_links) > 1 else 'is'} never taken"
