"""Check free disk space, hub, containers, secrets, lingering and charset; report the requested model."""

import re
from collections.abc import Iterator

from medley.cluster import checks
from medley.doctor.checks import (
    ALL_HOSTS,
    NOT_RECORDED,
    Check,
    Examination,
    ExaminedHost,
    all_hosts_check,
    health_check,
)
from medley.host.facts import GIB
from medley.host.health import Disk
from medley.host.health.access import Clock
from medley.host.health.software import HUB_HOME, HUB_TOKEN, HubAccess, MedleyFiles, Settings

_RECOMMENDED_FREE_BYTES = {"models": 20 * GIB, "temporary": 2 * GIB}
_CUDA_ENVIRONMENT_GIB, _CPU_ENVIRONMENT_GIB = 10, 3
"""Sizes of vllm-cuda, with as much again while it is built, and of vllm-cpu (docs/how-to/install.md)."""
_MIN_FREE_BYTES = {"state": checks.MIN_FREE_DISK_BYTES, "temporary": 256 << 20}
_PURPOSES = {
    "models": "model weights are downloaded there",
    "temporary": "compilers and Ray write there",
    "state": "Ray's logs and sockets are there",
}
_FOLDERS = {
    "environments": '"${MEDLEY_CACHE:-$HOME/.cache/medley}"',
    "models": f'"{HUB_HOME}"',
    "temporary": '"${TMPDIR:-/tmp}"',
    "state": '"${MEDLEY_STATE:-$HOME/.local/state/medley}"',
}
_STATE = '"${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
_LINGER = 'loginctl enable-linger "${SUDO_USER:-$(id -un)}"'
_SECRET_FILES, _MODE_PATTERN = {"token", "api-key", "keys/*"}, re.compile("[0-7]{3,4}")
_CLOSE_TOKEN = f'chmod 600 "{HUB_TOKEN}"'


@health_check("disk", "disk space", lambda health: health.disks)
def disks(host: ExaminedHost, host_disks: tuple[Disk, ...]) -> Iterator[Check]:
    summaries = []
    for disk in host_disks:
        if disk.what == "shm":
            continue
        free, total = _format_bytes(disk.free_bytes), _format_bytes(disk.total_bytes)
        summary = f"Disk for {disk.what}: {free} of {total} free"
        place, (enough_bytes, cause) = _FOLDERS[disk.what], _compute_need(host, disk.what)
        clean_command = "medley env clean; " if disk.what == "environments" else ""
        make_room = (
            f"{clean_command}df -h {place}; du -xsh {place}/* | sort -h | tail  "
            "# then delete what you do not need"
        )
        if not disk.is_writable:
            yield host.report_wrong(
                f"This user cannot write to the folder for {disk.what}",
                cause=cause,
                fix=f"sudo mkdir -p {place}; sudo chown $(id -u) {place}",
            )
        elif disk.free_bytes < _MIN_FREE_BYTES.get(disk.what, GIB):
            yield host.report_wrong(summary, cause=cause, fix=make_room)
        elif disk.free_bytes < enough_bytes:
            yield host.report_improvable(summary, cause=cause, fix=make_room)
        else:
            summaries.append(summary)
    if summaries:
        yield host.report_ok("; ".join(summaries))


def _compute_need(host: ExaminedHost, purpose: str) -> tuple[int, str]:
    """Return the bytes that should be free there, and why."""
    if purpose != "environments":
        return _RECOMMENDED_FREE_BYTES.get(purpose, 0), _PURPOSES[purpose]
    size_gib = _CUDA_ENVIRONMENT_GIB if host.gpu_kind or host.kind is None else _CPU_ENVIRONMENT_GIB
    if host.health.medley_files and host.health.medley_files.packages:
        return size_gib * GIB, f"it has an engine environment; the next version takes another {size_gib} GiB"
    reason = f"an engine environment takes {size_gib} GiB, and another {size_gib} GiB while it is built"
    return 2 * size_gib * GIB, reason


def _format_bytes(count: int) -> str:
    return f"{count / GIB:.1f} GiB" if count >= GIB else f"{count >> 20} MiB"


@health_check("hub", "model hub", lambda health: health.hub)
def hub(host: ExaminedHost, access: HubAccess) -> Iterator[Check]:
    name = "The mirror of HF_ENDPOINT" if access.has_mirror else "The model hub"
    if access.token_mode and _is_readable(access.token_mode):
        yield host.report_wrong(
            f"Other users can read the hub's token: its file has mode {access.token_mode}",
            cause="anyone with the token can read and write your repositories",
            fix=host.build_fix("sh", "-c", _CLOSE_TOKEN),
        )
    if access.is_offline:
        yield host.report_ok("HF_HUB_OFFLINE or TRANSFORMERS_OFFLINE is set: only downloaded models are used")
    elif access.status is None:
        yield host.report_improvable(
            f"{name} does not answer: {access.why}",
            cause="only models that are already on this host can be used",
            fix="export HF_HUB_OFFLINE=1  # where that is meant; models then come by medley pull from a host",
        )
    else:
        token = (
            "with a token" if access.has_token else "without a token, so gated models cannot be downloaded"
        )
        yield host.report_ok(f"{name} answers ({access.status}); {token}")


@health_check("containers", "Docker and Podman", lambda health: health.settings)
def containers(host: ExaminedHost, settings: Settings) -> Iterator[Check]:
    """Check NVIDIA's container toolkit for docker and podman; only some hosts need containers."""
    if (kind := host.gpu_kind) is None:
        return
    programs, table = settings.runtimes & {"docker", "podman"}, kind.table
    program_names = " and ".join(sorted(programs))
    has_image = host.member.image is not None
    needs_container = has_image or (table.no_environment is not None and not host.member.env)
    if needs_container and not programs:
        yield host.report_wrong(
            "Docker and Podman are not installed",
            cause="cluster.toml names an image for it"
            if has_image
            else f"engines for {kind.name} come as images",
            fix="sudo apt-get install -y docker.io nvidia-container-toolkit; sudo usermod -aG docker $USER",
        )
    elif programs and not (
        settings.has_nvidia_runtime or settings.has_cdi or "nvidia-ctk" in settings.runtimes
    ):
        yield host.report(
            "wrong" if needs_container else "better",
            f"{program_names} cannot pass this GPU to a container",
            cause="NVIDIA's container toolkit is not installed",
            fix="sudo apt-get install -y nvidia-container-toolkit; "
            "sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker",
        )
    elif "docker" in programs and table.container.nvidia_runtime and not settings.has_nvidia_runtime:
        yield host.report_wrong(
            "docker does not have NVIDIA's runtime",
            cause="a Jetson's GPU reaches a container only through it",
            fix="sudo nvidia-ctk runtime configure --runtime=docker; sudo systemctl restart docker",
        )
    else:
        yield host.report_ok(
            f"{program_names} with NVIDIA's toolkit" if programs else "not installed, and not needed"
        )


@health_check("secrets", "modes of secret files", lambda health: health.medley_files)
def secrets(host: ExaminedHost, medley_files: MedleyFiles) -> Iterator[Check]:
    """Find secret files that other users can read; the token lets anyone run programs on all hosts."""
    # A bug report may hold any text here, and users paste the fix: use known names only.
    modes = {name: mode for name, mode in medley_files.modes.items() if name in _SECRET_FILES}
    readable = {name: mode for name, mode in modes.items() if _is_readable(mode)}
    for name, mode in readable.items():
        cluster_risk = "anyone with it can run programs on every host of the cluster"
        yield host.report_wrong(
            f"Other users can read {name}: its file has mode {mode}",
            cause=cluster_risk if name == "token" else "it opens the API",
            fix=host.build_fix("sh", "-c", f"chmod 600 {_STATE}/{name}"),
        )
    if not readable:
        yield host.report_ok(", ".join(f"{name} {mode}" for name, mode in modes.items()) or "none yet")


def _is_readable(mode: str) -> bool:
    return bool(_MODE_PATTERN.fullmatch(mode) and int(mode, 8) & 0o077)


@all_hosts_check("lingers", "services after logout")
def lingering(examination: Examination) -> Iterator[Check]:
    """Check that medley's services outlast a logout and start again after a boot."""
    for host in examination.hosts.values():
        settings = host.health.settings
        if settings is None:
            yield host.report_unknown(NOT_RECORDED)
        elif settings.is_lingering is None:
            yield host.report_unknown("systemd is not running")
        elif settings.is_lingering:
            yield host.report_ok("medley's services start again after a reboot")
        elif examination.has_several_hosts:
            yield host.report_improvable(
                "The cluster does not start again here after a reboot",
                cause="systemd stops a user's services at the last logout, unless lingering is on",
                fix=host.build_fix("sh", "-c", _LINGER, needs_root=True),
            )
        else:
            yield host.report_ok("not needed on one host")


@health_check("charset", "character set", lambda health: health.clock)
def charset(host: ExaminedHost, clock: Clock) -> Iterator[Check]:
    if (clock.charset or "").upper().replace("-", "") in {"", "UTF8"}:
        yield host.report_ok(clock.charset or "not set, so Python uses UTF-8")
    else:
        yield host.report_improvable(
            f"Character set is {clock.charset}, not UTF-8",
            cause="engines print UTF-8, which appears garbled, and Python may refuse to print it",
            fix="export LANG=C.UTF-8  # and change it where it is set: /etc/default/locale, ~/.profile",
        )


@all_hosts_check("model", "requested model")
def model(examination: Examination) -> Iterator[Check]:
    if examination.model_fit:
        summary, problem = examination.model_fit
        yield ALL_HOSTS.report_problem(problem) if problem else ALL_HOSTS.report_ok(summary)
