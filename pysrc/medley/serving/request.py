"""Define `LaunchRequest`, the options of a command that starts a model."""

from msgspec import field

from medley.engine.server_spec import Tls
from medley.environment.container_image import ImageRequest
from medley.errors import Problem
from medley.model.trust import Trust
from medley.network.ports import API_PORT, RENDEZVOUS_PORT
from medley.planner.placement import PlacementOptions
from medley.planner.plan import Launcher
from medley.planner.site import Site
from medley.schema import EngineName
from medley.serving.script import Script
from medley.values import Value

_MAX_HOSTS = 64


class ListenOptions(Value):
    """The user's options about the API: address, model name, key, origins and TLS."""

    address: str = "127.0.0.1"
    port: int = API_PORT
    name: str | None = None
    """The model's name in requests; None: the name of the model."""
    key: str | None = None
    """The value of --api-key: a file, or `none`."""
    origins: tuple[str, ...] = ()
    """Origins of web pages whose requests are answered."""
    tls: Tls | None = None


class LaunchRequest(Value):
    """The model to start, its hosts, its engine environment, and its API or script."""

    model: str
    placement: PlacementOptions
    """The user's options for the layout; `prepare_job` adds engine, launcher and the number of hosts."""
    engine_flags: tuple[str, ...] = ()
    user_command: tuple[str, ...] = ()
    """The user's command, from `medley` on."""
    trust: Trust = field(default_factory=Trust)
    engine: EngineName | None = None
    launcher: Launcher | None = None
    hosts: str | None = None
    """The value of --hosts: a number, or kinds of hypothetical hosts."""
    wait_s: float | None = None
    """Seconds to wait for the hosts."""
    join_port: int = RENDEZVOUS_PORT
    kind: str | None = None
    environment: str | None = None
    image: ImageRequest | None = None
    nccl: str | None = None
    """The path of a libnccl.so.2 to use instead of the engine environment's; not with an image."""
    is_unplanned: bool = False
    dry_run: bool = False
    other_site: Site | None = None
    """Recorded or hypothetical hosts, on which nothing can be started."""
    listen: ListenOptions = ListenOptions()
    script: Script | None = None
    """The user's script, which runs instead of a server."""

    @property
    def host_count(self) -> int | None:
        """The number of hosts, if --hosts or --launcher solo sets it; raise a Problem for an invalid one."""
        if self.hosts is None:
            return 1 if self.launcher == "solo" else None
        if self.other_site:
            return None
        if not self.hosts.isdecimal() or not 1 <= int(self.hosts) <= _MAX_HOSTS:
            raise Problem(
                f"--hosts {self.hosts} is not valid",
                cause=f"a cluster has 1 to {_MAX_HOSTS} hosts",
                fix="--hosts 2, or leave it out to let the plan decide",
            )
        return int(self.hosts)
