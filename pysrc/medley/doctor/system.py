"""The host's system: disks, limits, the hub, containers, what RDMA needs besides its cards."""

from collections.abc import Iterator

from medley import agreement, limits
from medley.condition.access import Access
from medley.condition.clock import Clock
from medley.condition.disks import Disk
from medley.condition.hub_access import HubAccess
from medley.condition.rdma_parts import RdmaParts
from medley.condition.settings import Settings
from medley.doctor.shapes import UNASKED, Case, Check, Host, Mend, better, mended, ok, unknown, wrong

_GIB = 1 << 30
_ROOM = {"environments": 20 * _GIB, "models": 20 * _GIB, "temporary": 2 * _GIB}
"""An environment with CUDA takes some 10 GiB, and as much again while it is built."""
_NEEDS = {
    "environments": "an engine environment takes 10 GiB, and as much again while it is built",
    "models": "a model's weights are fetched to it",
    "temporary": "compilers and Ray write there",
    "state": "Ray's logs and sockets are there",
}
_PLACES = {
    "environments": '"${MEDLEY_CACHE:-$HOME/.cache/medley}"',
    "models": '"${HF_HOME:-$HOME/.cache/huggingface}"',
    "temporary": '"${TMPDIR:-/tmp}"',
    "state": '"${MEDLEY_STATE:-$HOME/.local/state/medley}"',
}
_LEAST_TEMPORARY = 256 << 20
_USUAL_MTU = 1500


def disks(host: Host, found: tuple[Disk, ...]) -> Iterator[Check]:
    fine = []
    for disk in found:
        if disk.what == "shm":
            continue
        said = f"{disk.what}: {_size(disk.free_bytes)} of {_size(disk.total_bytes)} left"
        place = _PLACES[disk.what]
        least = {"state": agreement.LEAST, "temporary": _LEAST_TEMPORARY}.get(disk.what, _GIB)
        if not disk.writable:
            yield wrong(
                host.name,
                f"this user may not write where {disk.what} are kept",
                cause=_NEEDS[disk.what],
                fix=f"sudo mkdir -p {place}; sudo chown $(id -u) {place}",
            )
        elif disk.free_bytes < least:
            yield wrong(host.name, said, cause=_NEEDS[disk.what], fix=_room(disk.what))
        elif disk.free_bytes < _ROOM.get(disk.what, 0):
            yield better(host.name, said, cause=_NEEDS[disk.what], fix=_room(disk.what))
        else:
            fine.append(said)
    if fine:
        yield ok(host.name, "; ".join(fine))


def _room(what: str) -> str:
    more = "medley env clean; " if what == "environments" else ""
    return f"{more}df -h {_PLACES[what]}; du -xsh {_PLACES[what]}/* | sort -h | tail  # make room"


def _size(count: int) -> str:
    return f"{count / _GIB:.1f} GiB" if count >= _GIB else f"{count >> 20} MiB"


def allowed(host: Host, access: Access) -> Iterator[Check]:
    """Memory that may be locked, and files that may be open, for what is started from here."""
    rdma = any(port.active for port in host.facts.rdma)
    low = list(limits.low(access.limits, "$USER", rdma=rdma))
    for each in low:
        state = wrong if "lock" in each.what else better
        # In single quotes a shell leaves $USER as it is.
        command, _, then = each.fix.replace("'", '"').partition(", then ")
        yield state(host.name, each.what, cause=each.cause, fix=f"{command}  # then {then}")
    if not low:
        files = access.limits.open_files or "any number of"
        locked = access.limits.locked_bytes
        yield ok(
            host.name, f"{files} files, {'any' if locked is None else f'{locked >> 10} KiB of'} locked memory"
        )


def hub(host: Host, found: HubAccess) -> Iterator[Check]:
    name = "the mirror that HF_ENDPOINT names" if found.mirror else "the hub"
    if found.mode and int(found.mode, 8) & 0o077:
        problem = wrong(
            host.name,
            f"others can read the hub's token: its file has mode {found.mode}",
            cause="who has it can read and write your repositories",
            fix="",
        )
        words = ("sh", "-c", 'chmod 600 "${HF_TOKEN_PATH:-${HF_HOME:-$HOME/.cache/huggingface}/token}"')
        yield mended(problem, Mend(host.name, words))
    token = "a token is here" if found.token else "no token is here: gated models cannot be had"
    if found.offline:
        yield ok(host.name, "HF_HUB_OFFLINE is set: only what is here already is used")
    elif found.status is None:
        yield better(
            host.name,
            f"{name} does not answer: {found.why}",
            cause="a model that is not on this host already cannot be fetched",
            fix="curl -sI ${HF_ENDPOINT:-https://huggingface.co}  # or from a host that has it: medley pull",
        )
    else:
        yield ok(host.name, f"{name} answers ({found.status}); {token}")


def containers(host: Host, settings: Settings) -> Iterator[Check]:
    """Where an image is to be run: NVIDIA's part in docker or podman."""
    programs = settings.runtimes & {"docker", "podman"}
    table = host.kind.host if host.kind else None
    if table is None or table.device == "cpu":
        return
    named = host.member.image is not None
    wanted = named or (table.no_environment is not None and not host.member.env)
    if wanted and not programs:
        why = f"engines for {host.kind.name if host.kind else ''} come as images"
        yield wrong(
            host.name,
            "there is no docker or podman",
            cause="cluster.toml names an image for it" if named else why,
            fix="sudo apt-get install -y docker.io nvidia-container-toolkit; sudo usermod -aG docker $USER",
        )
    elif programs and not (settings.nvidia_runtime or settings.cdi or "nvidia-ctk" in settings.runtimes):
        state = wrong if wanted else better
        yield state(
            host.name,
            f"{' and '.join(sorted(programs))} cannot give a container this GPU",
            cause="NVIDIA's container toolkit is not here",
            fix="sudo apt-get install -y nvidia-container-toolkit; "
            "sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker",
        )
    elif "docker" in programs and table.container.nvidia_runtime and not settings.nvidia_runtime:
        yield wrong(
            host.name,
            "docker does not know NVIDIA's runtime",
            cause="a Jetson's GPU comes into a container by it alone",
            fix="sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker",
        )
    else:
        yield ok(
            host.name,
            f"{' and '.join(sorted(programs))} with NVIDIA's part"
            if programs
            else "none is here, and none is needed",
        )


def rdma_libraries(host: Host, parts: RdmaParts) -> Iterator[Check]:
    active = [port.device for port in host.facts.rdma if port.active]
    if not active:
        return
    if parts.libraries is None:
        yield unknown(host.name, "there is no ldconfig that lists libraries")
        return
    lacking = sorted({"libibverbs"} - parts.libraries)
    if any(each.startswith(("mlx5", "roce")) for each in active):
        lacking += sorted({"libmlx5"} - parts.libraries)
    if lacking:
        yield wrong(
            host.name,
            f"{' and '.join(lacking)} cannot be loaded",
            cause=f"{', '.join(active)} can do RDMA, and NCCL without these goes by TCP and does not say so",
            fix="sudo apt-get install -y libibverbs1 ibverbs-providers librdmacm1",
        )
    else:
        yield ok(host.name, ", ".join(sorted(parts.libraries)))


def peer_memory(case: Case) -> Iterator[Check]:
    """GPU memory that RDMA reads by itself, where the GPUs of all hosts can give it."""
    if case.fabric is None or case.fabric.transport != "rdma":
        return
    lacking = [
        name
        for name, host in case.hosts.items()
        if host.unified or any("GeForce" in g.name for g in host.facts.gpus)
    ]
    for name, host in case.hosts.items():
        parts = host.condition.rdma
        if lacking:
            yield ok(
                name,
                f"not used: {', '.join(lacking)} {'have' if len(lacking) > 1 else 'has'} no GPUDirect RDMA",
            )
        elif parts is None:
            yield unknown(name, UNASKED)
        elif parts.dmabuf or parts.modules & {"nvidia_peermem", "nv_peer_mem"}:
            yield ok(
                name, "the open driver gives it by dma-buf" if parts.dmabuf else "nvidia_peermem is loaded"
            )
        else:
            problem = better(
                name,
                "RDMA cannot read GPU memory by itself",
                cause="neither nvidia_peermem nor the open driver is loaded, and all goes by the host",
                fix="",
            )
            yield mended(problem, Mend(name, ("modprobe", "nvidia-peermem"), root=True))


def boot_mtu(case: Case) -> Iterator[Check]:
    """Whether the MTU of a used link is one that something sets at each boot."""
    for name, host in case.hosts.items():
        settings = host.condition.settings
        end = case.fabric.ends.get(name) if case.fabric else None
        if settings is None or end is None or end.interface == "lo":
            if settings is None:
                yield unknown(name, UNASKED)
            continue
        if end.mtu == _USUAL_MTU or end.mtu in settings.kept_mtus:
            yield ok(name, f"{end.mtu} on {end.interface}{'' if end.mtu == _USUAL_MTU else ' is in a file'}")
        elif host.facts.software.nixos:
            yield unknown(name, "NixOS keeps it in its configuration, which is not read")
        elif not settings.all_read:
            yield unknown(name, "root alone can read the files that would keep it: sudo medley doctor")
        elif not settings.keeps:
            yield unknown(name, "neither netplan, systemd, NetworkManager nor ifupdown has a file here")
        else:
            network = next(
                (
                    f"{at.ip}/{at.prefix}"
                    for link in host.facts.net.links
                    if link.name == end.interface
                    for at in link.addresses
                    if at.ip == end.address
                ),
                end.address,
            )
            yield better(
                name,
                f"MTU {end.mtu} of {end.interface} is set by hand, and gone with the next boot",
                cause="no file of netplan, systemd, NetworkManager or ifupdown has it",
                fix=f"sudo medley link setup --interface {end.interface} --address {network} --mtu {end.mtu}",
            )


def charset(host: Host, clock: Clock) -> Iterator[Check]:
    said = (clock.charset or "").upper().replace("-", "")
    if said in {"", "UTF8"}:
        yield ok(host.name, clock.charset or "none is set, and Python then takes UTF-8")
    else:
        yield better(
            host.name,
            f"the character set is {clock.charset}",
            cause="engines write UTF-8, which is garbled there, and Python may refuse to print it",
            fix="export LANG=C.UTF-8  # and where it is set: /etc/default/locale, ~/.profile",
        )
