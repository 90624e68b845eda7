"""What is set by hand about the wire, in a shell's files or by a guide, beside what is there."""

from collections.abc import Iterator, Mapping

from medley.condition.settings import Settings
from medley.doctor.shapes import UNASKED, Case, Check, Host, better, ok, unknown, wrong
from medley.fabric import End

_FILES = "in ~/.bashrc, ~/.profile or /etc/environment"
_DECOYS = ("lo", "docker", "br-", "veth", "virbr", "cni", "tailscale", "wg", "tun", "zt")


def variables(case: Case) -> Iterator[Check]:
    """They name addresses, links and devices that are there, and do not keep RDMA from being used."""
    for name, host in case.hosts.items():
        settings = host.condition.settings
        if settings is None:
            yield unknown(name, UNASKED)
            continue
        found = [*_address(host, settings), *_links(host, settings), *_devices(host, settings)]
        found += _of_cuda(host, settings)
        end = case.fabric.ends.get(name) if case.fabric and case.fabric.transport == "rdma" else None
        found += _against_rdma(name, settings.variables, end) if end else ()
        yield from found or [ok(name, _fine(host, settings))]


def _address(host: Host, settings: Settings) -> Iterator[Check]:
    own = {at.ip for link in host.facts.net.links for at in link.addresses}
    address = settings.variables.get("VLLM_HOST_IP")
    if address and own and address not in own:
        yield wrong(
            host.name,
            f"VLLM_HOST_IP is {address}, which is no address of this host",
            cause=f"it has {', '.join(sorted(own))}; vLLM then waits half an hour for a node",
            fix=f"unset VLLM_HOST_IP  # and take it out where it is set: {_FILES}",
        )


def _links(host: Host, settings: Settings) -> Iterator[Check]:
    links = {link.name for link in host.facts.net.links}
    for variable in ("NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME"):
        value = settings.variables.get(variable, "")
        meant = [each for each in value.lstrip("=").split(",") if each]
        if value.startswith("^") or not meant or not links:
            continue
        exact = variable != "NCCL_SOCKET_IFNAME" or value.startswith("=")
        lost = [each for each in meant if not any(_means(link, each, exact=exact) for link in links)]
        decoys = all(each.startswith(_DECOYS) for each in meant)
        if lost or decoys:
            yield wrong(
                host.name,
                f"{variable}={value} names {'no link of this host' if lost else 'no wire'}",
                cause=f"its links are {', '.join(sorted(links))}",
                fix=f"unset {variable}  # medley sets it for each host; take it out {_FILES}",
            )


def _devices(host: Host, settings: Settings) -> Iterator[Check]:
    value = settings.variables.get("NCCL_IB_HCA", "")
    meant = [each.partition(":")[0] for each in value.lstrip("=").split(",") if each]
    devices = {port.device for port in host.facts.rdma}
    lost = [each for each in meant if not any(device.startswith(each) for device in devices)]
    if lost and not value.startswith("^"):
        yield wrong(
            host.name,
            f"NCCL_IB_HCA={value} names what is no RDMA device of this host",
            cause=f"it has {', '.join(sorted(devices)) or 'none'}",
            fix=f"unset NCCL_IB_HCA  # medley sets it for each host; take it out {_FILES}",
        )


def _of_cuda(host: Host, settings: Settings) -> Iterator[Check]:
    """GPUs that are hidden, and kernels that are compiled for another one."""
    seen = settings.variables.get("CUDA_VISIBLE_DEVICES")
    if host.facts.gpus and seen is not None and seen.strip() in {"", "-1", "NoDevFiles"}:
        yield wrong(
            host.name,
            f"CUDA_VISIBLE_DEVICES={seen} hides every GPU",
            cause=f"this host has {', '.join(gpu.name for gpu in host.facts.gpus)}",
            fix=f"unset CUDA_VISIBLE_DEVICES  # take it out {_FILES}",
        )
    archs = settings.variables.get("TORCH_CUDA_ARCH_LIST")
    lacking = {
        gpu.capability for gpu in host.facts.gpus if gpu.capability and gpu.capability not in (archs or "")
    }
    if archs and lacking:
        yield better(
            host.name,
            f"TORCH_CUDA_ARCH_LIST={archs} lacks {', '.join(sorted(lacking))}",
            cause="what an engine compiles while it runs has then no kernel for this GPU",
            fix=f"unset TORCH_CUDA_ARCH_LIST  # medley sets it for each kind of host; take it out {_FILES}",
        )


def _against_rdma(host: str, said: Mapping[str, str], end: End) -> Iterator[Check]:
    index = said.get("NCCL_IB_GID_INDEX")
    if index and end.gid_index is not None and index != str(end.gid_index):
        yield wrong(
            host,
            f"NCCL_IB_GID_INDEX is {index}, and the address is in row {end.gid_index}",
            cause="rows move when a link flaps, and differ between hosts",
            fix=f"unset NCCL_IB_GID_INDEX  # medley reads it at every start; take it out {_FILES}",
        )
    if said.get("NCCL_IB_DISABLE") == "1":
        yield better(
            host,
            "NCCL_IB_DISABLE=1 keeps NCCL from RDMA",
            cause="every host here can do RDMA, and TCP reaches a part of its speed",
            fix=f"unset NCCL_IB_DISABLE  # take it out {_FILES}",
        )


def _means(link: str, word: str, *, exact: bool) -> bool:
    """NCCL matches by the beginning of a name, unless its list begins with =."""
    return link == word if exact else link.startswith(word)


def _fine(host: Host, settings: Settings) -> str:
    links = host.facts.net.links
    never = [link.name for link in links if link.kind in {"container", "tunnel", "gadget"} and link.up]
    named = [each for each in settings.variables if each.startswith(("NCCL", "GLOO", "TP_", "UCX", "VLLM"))]
    more = f"; {', '.join(never)} {'are' if len(never) > 1 else 'is'} never taken" if never else ""
    return f"{', '.join(named) or 'nothing'} is set by hand{more}"
