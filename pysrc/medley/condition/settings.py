"""Settings are what the user's environment says that an engine hears, and what outlasts a boot."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from medley.facts.answers import first, lines, number
from medley.transcript import NO_ANSWER, Transcript

# By name, for a token may be among the others.
_NAMES = (
    *("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "CUDA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH"),
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TORCH_CUDA_ARCH_LIST",
)
VARIABLES = f"env | grep -E '^({'|'.join(_NAMES)})='"
# Who keeps an MTU over a boot. Netplan's files are root's alone on newer systems.
MTUS = (
    "for f in /etc/netplan/*.yaml /etc/systemd/network/*.network /etc/network/interfaces"
    " /etc/network/interfaces.d/* /etc/NetworkManager/system-connections/*; do"
    ' [ -e "$f" ] || continue; if [ -r "$f" ]; then'
    " grep -hioE '\\bmtu(bytes)?[ :=]+[0-9]+' \"$f\" |"
    " grep -oE '[0-9]+' || echo none; else echo closed; fi; done; :"
)
LINGERS = (
    "[ -d /run/systemd/system ] || exit 3;"
    ' ls /var/lib/systemd/linger 2>/dev/null | grep -qx "$(id -un)" && echo yes || echo no'
)
RUNTIMES = (
    "for p in docker podman nvidia-ctk nvidia-container-runtime; do"
    " command -v $p >/dev/null && echo $p; done;"
    " grep -hso '\"nvidia\"' /etc/docker/daemon.json | head -n 1;"
    " ls /etc/cdi/nvidia.yaml /var/run/cdi/nvidia.yaml 2>/dev/null; :"
)

QUESTIONS = (VARIABLES, MTUS, LINGERS, RUNTIMES)


@dataclass(frozen=True)
class Settings:
    variables: Mapping[str, str] = field(default_factory=dict)
    kept_mtus: frozenset[int] = frozenset()
    """What files of netplan, systemd, NetworkManager or ifupdown give to some link at each boot."""
    keeps: bool = False
    """Whether there is any such file."""
    all_read: bool = True
    """Whether this user could read them all."""
    lingers: bool | None = None
    """Whether what this user starts outlasts a logout; None without systemd."""
    runtimes: frozenset[str] = frozenset()
    """docker, podman and NVIDIA's part in them, by program."""
    nvidia_runtime: bool = False
    cdi: bool = False


def settings(answers: Transcript) -> Settings | None:
    if VARIABLES not in answers:
        return None
    mtus, words = lines(answers, MTUS), lines(answers, RUNTIMES)
    lingers = answers.get(LINGERS, NO_ANSWER)
    return Settings(
        variables=dict(re.findall(r"^(\w+)=(.*)$", answers[VARIABLES].text, re.MULTILINE)),
        kept_mtus=frozenset(found for each in mtus if (found := number(each)) is not None),
        keeps=bool(mtus),
        all_read="closed" not in mtus,
        lingers=None if lingers.status else first(answers, LINGERS) == "yes",
        runtimes=frozenset(each for each in words if "/" not in each and '"' not in each),
        nvidia_runtime='"nvidia"' in words,
        cdi=any("/cdi/" in each for each in words),
    )
