"""Hub access, RDMA libraries, user settings, what medley left behind."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from medley.transcript import NO_ANSWER, Transcript, first, lines, number

# As huggingface_hub.constants has it (2.4): a host that is asked may have no Python.
HUB_HOME = "${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}"
HUB_CACHE = f"${{HF_HUB_CACHE:-${{HUGGINGFACE_HUB_CACHE:-{HUB_HOME}/hub}}}}"
HUB_TOKEN = f"${{HF_TOKEN_PATH:-{HUB_HOME}/token}}"
# A mirror's address may be a secret of somebody's network: it is asked, and not said.
ANSWER = (
    "command -v curl >/dev/null && curl -s -o /dev/null --connect-timeout 1.5 -m 2 -w '%{http_code}'"
    ' "${HF_ENDPOINT:-https://huggingface.co}"'
)
SETTINGS = (
    "printf '%s\\n' ${HF_ENDPOINT:+mirror} ${HF_TOKEN:+token} ${HUGGING_FACE_HUB_TOKEN:+token};"
    ' case "${HF_HUB_OFFLINE:-$TRANSFORMERS_OFFLINE}" in'
    " 1|[oO][nN]|[yY][eE][sS]|[tT][rR][uU][eE]) echo offline;; esac"
)
MODE = f'stat -c %a "{HUB_TOKEN}"'
LIBRARIES = (
    "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -oE '(libibverbs|libmlx5|librdmacm)\\.so\\.1' | sort -u"
)
MODULES = "grep -oE '^(nvidia_peermem|nv_peer_mem|ib_uverbs|mlx5_ib|rdma_cm|nvidia) ' /proc/modules"
OPEN_DRIVER = "grep -o 'Open Kernel Module' /proc/driver/nvidia/version"
# By name, for a token may be among the others.
_NAMES = (
    *("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "CUDA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH"),
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TORCH_CUDA_ARCH_LIST",
)
VARIABLES = f"env | grep -E '^({'|'.join(_NAMES)})='"
# Names alone: a value may be a secret, and the engine ignores some names by now.
VLLM_NAMES = "env | grep -oE '^VLLM_[A-Z0-9_]+' | sort"
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
_STATE = '"${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
# The names of keys are of people: one that others can read is enough.
SECRETS = (
    f"cd {_STATE} && {{ stat -c '%a %n' token api-key sglang-*.yaml;"
    " find keys -type f -perm /077 -printf '%m keys/*\\n' -quit; } 2>/dev/null; :"
)
MEMBERSHIP = f'cd {_STATE} && grep -ohE \'"(role|head|address|interface)": "[^"]*"\' ray.json'
# The ports of servers whose process is still there.
SERVING = (
    f"cd {_STATE}/serving && for f in *.json; do"
    ' p=$(grep -oE "\\"pid\\": [0-9]+" "$f" | grep -oE "[0-9]+");'
    ' [ -n "$p" ] && [ -d "/proc/$p" ] && echo "${f%.json}"; done'
)
# Of each environment the versions that hosts must have alike, by the names of its packages.
PACKAGES = (
    'cd "${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    " && ls -d */lib/python3*/site-packages/*.dist-info"
    " | grep -E '/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
# A virtualenv of the user's own, which cluster.toml names.
OWN = (
    '[ -n "$MEDLEY_OWN_ENV" ] && cd "$MEDLEY_OWN_ENV" && ls -d bin/python bin/ray bin/vllm'
    " lib/python3*/site-packages/*.dist-info 2>/dev/null"
    " | grep -E '^bin|/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
OWN_VARIABLE = "MEDLEY_OWN_ENV"

QUESTIONS = (
    *(ANSWER, SETTINGS, MODE, LIBRARIES, MODULES, OPEN_DRIVER, VARIABLES, MTUS, LINGERS, RUNTIMES),
    *(SECRETS, MEMBERSHIP, SERVING, PACKAGES, OWN, VLLM_NAMES),
)

_PACKAGE = re.compile(r"(?:([^/]+)/)?lib/python([0-9.]+)/site-packages/(\w+?)-([^-/]+)\.dist-info")
_WHY = {
    6: "its name does not resolve",
    7: "no connection",
    28: "no answer in 2 s",
    35: "TLS failed",
    60: "TLS failed",
}


@dataclass(frozen=True)
class HubAccess:
    status: int | None = None
    """HTTP's; None where it did not answer."""
    why: str | None = None
    mirror: bool = False
    """HF_ENDPOINT names another than the hub itself."""
    offline: bool = False
    token: bool = False
    mode: str | None = None
    """Of the file that `hf auth login` writes, as in `600`."""


def hub_access(answers: Transcript) -> HubAccess | None:
    """None where there is no curl to ask with."""
    said = answers.get(ANSWER, NO_ANSWER)
    status = number(said.text.strip())
    if status is None and said.status in {1, 127}:
        return None
    words, mode = set(lines(answers, SETTINGS)), first(answers, MODE)
    return HubAccess(
        status=status or None,
        why=None if status else _WHY.get(said.status, f"curl ended with {said.status}"),
        mirror="mirror" in words,
        offline="offline" in words,
        token="token" in words or mode is not None,
        mode=mode,
    )


@dataclass(frozen=True)
class RdmaParts:
    libraries: frozenset[str] | None = frozenset()
    """None where ldconfig keeps no list, as on NixOS."""
    modules: frozenset[str] = frozenset()
    dmabuf: bool = False
    """The driver's open module, which gives GPU memory to RDMA without another one."""


def rdma_parts(answers: Transcript) -> RdmaParts:
    libraries = frozenset(re.sub(r"\.so\.1$", "", each.strip()) for each in lines(answers, LIBRARIES))
    unlisted = answers[LIBRARIES].status == 127  # noqa: PLR2004 - no ldconfig
    return RdmaParts(
        None if unlisted else libraries,
        frozenset(each.strip() for each in lines(answers, MODULES)),
        bool(lines(answers, OPEN_DRIVER)),
    )


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
    vllm_names: tuple[str, ...] = ()
    """Of vLLM's variables that are set."""


def settings(answers: Transcript) -> Settings:
    mtus, words = lines(answers, MTUS), lines(answers, RUNTIMES)
    lingers = answers.get(LINGERS, NO_ANSWER)
    return Settings(
        variables=dict(re.findall(r"^(\w+)=(.*)$", answers[VARIABLES].text, re.MULTILINE)),
        vllm_names=lines(answers, VLLM_NAMES),
        kept_mtus=frozenset(found for each in mtus if (found := number(each)) is not None),
        keeps=bool(mtus),
        all_read="closed" not in mtus,
        lingers=None if lingers.status else first(answers, LINGERS) == "yes",
        runtimes=frozenset(each for each in words if "/" not in each and '"' not in each),
        nvidia_runtime='"nvidia"' in words,
        cdi=any("/cdi/" in each for each in words),
    )


@dataclass(frozen=True)
class Leftovers:
    modes: Mapping[str, str] = field(default_factory=dict)
    """Of files that hold a secret, by name."""
    membership: Mapping[str, str] = field(default_factory=dict)
    """`role`, `head`, `address` and `interface` of its part in a cluster; empty where it has none."""
    serving: tuple[int, ...] = ()
    """Ports at which medley serves a model."""
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """By environment: versions by package, and `python`'s."""
    own: Mapping[str, str] | None = None
    """The same of the virtualenv that cluster.toml names; None where it names none, or there is none."""
    programs: frozenset[str] = frozenset()
    """Of that one."""


def leftovers(answers: Transcript) -> Leftovers:
    modes = (line.partition(" ") for line in lines(answers, SECRETS))
    said = answers.get(OWN, NO_ANSWER)
    return Leftovers(
        modes={name: mode for mode, _, name in modes if name},
        membership=dict(re.findall(r'"(\w+)": "([^"\\]*)"', answers.get(MEMBERSHIP, NO_ANSWER).text)),
        serving=tuple(port for each in lines(answers, SERVING) if (port := number(each)) is not None),
        packages=_packages(lines(answers, PACKAGES)),
        own=_packages(lines(answers, OWN)).get("", {}) if said.text else None,
        programs=frozenset(line[4:] for line in lines(answers, OWN) if line.startswith("bin/")),
    )


def _packages(said: tuple[str, ...]) -> dict[str, dict[str, str]]:
    found: dict[str, dict[str, str]] = {}
    for line in said:
        if match := _PACKAGE.fullmatch(line.strip()):
            found.setdefault(match[1] or "", {"python": match[2]})[match[3]] = match[4]
    return found
