"""Read cluster.toml, the hosts of a cluster."""

import os
import re
import socket
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from msgspec import Meta

from medley import config, storage, user
from medley.cluster import program_consent, user_variables
from medley.cluster.user_variables import VariableName, VariableValue
from medley.command import quote_path
from medley.environment.container import Runtime
from medley.errors import Problem
from medley.network.fabric.choice import NetworkOptions
from medley.schema import (
    DEFAULT_ENGINE,
    EngineName,
)
from medley.values import FileTable

CLUSTER_FILE = "cluster.toml"
_HOST_NAME_PATTERN = r"^[A-Za-z0-9_][A-Za-z0-9_.-]{0,62}\Z"
HostName = Annotated[str, Meta(pattern=_HOST_NAME_PATTERN)]
SshTarget = Annotated[str, Meta(pattern=r"^[^-\s\x00-\x1f\x7f][^\s\x00-\x1f\x7f]*\Z")]
"""A target of ssh: no space, and no word that begins as a switch does."""


_INIT_COMMAND = "medley init --force HOST HOST  # writes it, and keeps the old file"


class ClusterHost(FileTable):
    """A host of the cluster: [hosts.NAME]."""

    ssh: SshTarget | None = None
    """The target of ssh: HOST, USER@HOST or ssh://USER@HOST:PORT; absent: the host's name here."""
    role: Literal["head"] | None = None
    kind: str | None = None
    link: str | None = None
    """The link of this host: an interface, an address or a network."""
    exclude: tuple[str, ...] = ()
    """Interfaces that are never used."""
    slots: Annotated[int, Meta(ge=1, le=64)] | None = None
    env: str | None = None
    """An engine environment, or the user's own virtualenv."""
    image: str | None = None
    """The container image to use instead; `default`: the image of its kind."""
    container: Runtime | None = None
    nccl: str | None = None
    """The libnccl.so.2 of this host, instead of the one in the image or the engine environment."""
    environment: Mapping[VariableName, VariableValue] = {}
    """Variables of every engine process on this host."""
    mounts: tuple[str, ...] = ()
    """PATH, or PATH:INSIDE: folders to mount in the container."""
    medley: str | tuple[str, ...] | None = None
    """The command of medley on this host, where it is not on PATH."""

    def __post_init__(self) -> None:
        if self.env and self.image:
            raise ValueError("a host takes env or image, not both")


class Cluster(FileTable):
    """The content of cluster.toml."""

    hosts: Annotated[
        Mapping[HostName, ClusterHost],
        Meta(min_length=1, max_length=64, extra={"fix": _INIT_COMMAND}),
    ]
    link: str | None = None
    """The network of all hosts: an address or a network."""
    exclude: tuple[str, ...] = ()
    """Interfaces that are never used, on any host."""
    engine: EngineName = DEFAULT_ENGINE
    image: str | None = None
    """The image of every host without an image or an environment of its own."""
    environment: Mapping[VariableName, VariableValue] = {}
    """Variables of every engine process on every host."""
    on_event: str | None = None
    """The shell command that a server's host runs on each fault and recovery, or the file that holds it."""

    def merge_environment(self, name: str) -> dict[str, str]:
        return {**self.environment, **self.hosts[name].environment}

    def describe_image(self, name: str) -> Mapping[str, Any] | None:
        """Return the image of a host, in JSON; None where it has an engine environment."""
        host = self.merge_host(name)
        if not host.image:
            return None
        return {"image": host.image, "container": host.container, "nccl": host.nccl, "mounts": host.mounts}

    def merge_host(self, name: str) -> ClusterHost:
        """Return a host with the variables of all hosts, and their image where it has none."""
        host = self.hosts[name]
        shared: dict[str, Any] = {"environment": self.merge_environment(name)}
        if not host.image and host.env is None:
            shared["image"] = self.image
        return host.replace(**shared)

    @property
    def head(self) -> str:
        return next(
            (name for name, host in self.hosts.items() if host.role == "head"), next(iter(self.hosts))
        )

    def get_ssh_target(self, name: str) -> str:
        return self.hosts[name].ssh or name

    def drop_hosts(self, names: tuple[str, ...]) -> "Cluster":
        hosts = {name: host for name, host in self.hosts.items() if name not in names}
        return self.replace(hosts=hosts)

    @property
    def network_options(self) -> NetworkOptions:
        links = {name: host.link or self.link for name, host in self.hosts.items()}
        requested_links = {name: link for name, link in links.items() if link}
        excluded = frozenset(
            (*self.exclude, *(interface for host in self.hosts.values() for interface in host.exclude))
        )
        return NetworkOptions(requested_links or None, excluded)


def find_cluster_file(path_option: str | None = None) -> Path | None:
    """Return the path of cluster.toml; None if there is none.

    The order: `path_option`, $MEDLEY_CLUSTER, this folder, the user's own tables.
    """
    if written_path := _read_path_option(path_option):
        return user.expand_home(written_path)
    places = (Path(CLUSTER_FILE), config.list_config_folders()[0] / CLUSTER_FILE)
    visible_file = next((place for place in places if storage.is_visible_file(place)), None)
    # Nobody can change a file of Nix's store; in a build its owner, root, is shown as another user.
    if visible_file == places[0] and not visible_file.resolve().is_relative_to("/nix/store"):
        absolute_path, why = visible_file.absolute(), "a cluster.toml names programs that medley runs"
        require_own_file(
            absolute_path, why, f"read it, and then name it: --cluster {quote_path(absolute_path)}"
        )
    return visible_file


def _read_path_option(path_option: str | None) -> str | None:
    """Return the file that the user names, by --cluster or by the variable."""
    return path_option or os.environ.get("MEDLEY_CLUSTER")


def require_own_file(path: Path, why: str, fix: str) -> None:
    """Raise a Problem for a file that another user can write; `why`: the risk, for its cause."""
    for checked_path in (path, path.parent):
        status = checked_path.stat()
        if status.st_uid not in {0, os.geteuid()} or _is_open_to_others(status):
            mode = f"owner {status.st_uid} and mode {stat.S_IMODE(status.st_mode):o}"
            raise Problem(
                f"{path} may be somebody else's", cause=f"{checked_path} has {mode}, and {why}", fix=fix
            )


def _is_open_to_others(status: os.stat_result) -> bool:
    """Return whether others can write it; the user's own group may, and in /tmp nobody replaces a file."""
    is_sticky = stat.S_ISDIR(status.st_mode) and bool(status.st_mode & stat.S_ISVTX)
    is_group_writable = bool(status.st_mode & stat.S_IWGRP) and status.st_gid not in {0, os.getegid()}
    return not is_sticky and (is_group_writable or bool(status.st_mode & stat.S_IWOTH))


def read_cluster(path_option: str | None = None) -> Cluster:
    """Return the cluster; raise a Problem if there is none, or it has two heads.

    A file of the current folder that names programs needs the user's consent, unless the user names the file.
    """
    path = find_cluster_file(path_option)
    if path is None:
        raise Problem(
            "cluster.toml not found",
            cause=f"it is neither in this folder nor in {config.list_config_folders()[0]}",
            fix="medley init  # writes one; or name it: --cluster FILE",
        )
    cluster = config.read_table(path, Cluster)
    tables = {name: host.environment for name, host in cluster.hosts.items()}
    user_variables.require_allowed_variables(path, cluster.environment, tables)
    heads = [name for name, host in cluster.hosts.items() if host.role == "head"]
    if len(heads) > 1:
        raise Problem(
            f"{path}: a cluster has only one head",
            cause=f'role = "head" is set for {" and ".join(heads)}',
            fix=f"keep it only for {heads[0]}",
        )
    if (
        not _read_path_option(path_option)
        and path == Path(CLUSTER_FILE)
        and Path.cwd() != config.list_config_folders()[0].resolve()
    ):
        program_consent.require_consent(path, build_programs_table(cluster))
    return cluster


def build_programs_table(cluster: Cluster) -> Mapping[str, Any]:
    """Return the values that the file sets, as `program_consent` reads them."""
    return cluster.to_table(omit_defaults=True)


def build_local_cluster() -> Cluster:
    """Return a cluster of this host only."""
    name = socket.gethostname()
    host_name = name if re.fullmatch(_HOST_NAME_PATTERN, name) else "localhost"
    return Cluster(hosts={host_name: ClusterHost(ssh="127.0.0.1", role="head")})


def leave_out_hosts(cluster: Cluster, names: tuple[str, ...]) -> Cluster:
    """Return the cluster without the hosts that --without names."""
    if unknown := [name for name in names if name not in cluster.hosts]:
        raise Problem(
            f"the cluster has no host {', '.join(unknown)}",
            cause=f"its hosts are {', '.join(cluster.hosts)}",
            fix="name one of these hosts: --without HOST",
        )
    if cluster.head in names:
        raise Problem(
            f"{cluster.head} cannot be left out",
            cause="it is the head, which the others join",
            fix='give another host of cluster.toml role = "head"',
        )
    return cluster.drop_hosts(names)
