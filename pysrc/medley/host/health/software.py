"""Read the health of hub access, RDMA libraries, user settings, and medley's own files."""

import re
from collections.abc import Mapping

from msgspec import field

from medley.transcript import NO_ANSWER, Transcript, parse_number, read_first_line, read_lines
from medley.values import Value

# The rules of huggingface_hub.constants (2.4), in shell: a host that is asked may have no Python.
HUB_HOME = "${HF_HOME:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface}"
HUB_CACHE = f"${{HF_HUB_CACHE:-${{HUGGINGFACE_HUB_CACHE:-{HUB_HOME}/hub}}}}"
HUB_TOKEN = f"${{HF_TOKEN_PATH:-{HUB_HOME}/token}}"
# The address of a mirror may be a secret of the user's network: it is used, and not printed.
ANSWER_QUESTION = (
    "command -v curl >/dev/null && curl -s -o /dev/null --connect-timeout 1.5 -m 2 -w '%{http_code}'"
    ' "${HF_ENDPOINT:-https://huggingface.co}"'
)
SETTINGS_QUESTION = (
    "printf '%s\\n' ${HF_ENDPOINT:+mirror} ${HF_TOKEN:+token} ${HUGGING_FACE_HUB_TOKEN:+token};"
    ' case "${HF_HUB_OFFLINE:-$TRANSFORMERS_OFFLINE}" in'
    " 1|[oO][nN]|[yY][eE][sS]|[tT][rR][uU][eE]) echo offline;; esac"
)
MODE_QUESTION = f'stat -c %a "{HUB_TOKEN}"'
LIBRARIES_QUESTION = (
    "PATH=$PATH:/usr/sbin:/sbin; ldconfig -p | grep -oE '(libibverbs|libmlx5|librdmacm)\\.so\\.1' | sort -u"
)
MODULES_QUESTION = "grep -oE '^(nvidia_peermem|nv_peer_mem|ib_uverbs|mlx5_ib|rdma_cm|nvidia) ' /proc/modules"
OPEN_DRIVER_QUESTION = "grep -o 'Open Kernel Module' /proc/driver/nvidia/version"
# Only these names, because others may hold a token.
_NAMES = (
    *("VLLM_HOST_IP", "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "TP_SOCKET_IFNAME", "UCX_NET_DEVICES"),
    *("NCCL_IB_HCA", "NCCL_IB_GID_INDEX", "NCCL_IB_DISABLE", "CUDA_VISIBLE_DEVICES", "TRITON_PTXAS_PATH"),
    "TRITON_PTXAS_BLACKWELL_PATH",
    "TORCH_CUDA_ARCH_LIST",
)
VARIABLES_QUESTION = f"env | grep -E '^({'|'.join(_NAMES)})='"
# Only names: a value may be a secret, and newer engines ignore some names.
VLLM_NAMES_QUESTION = "env | grep -oE '^VLLM_[A-Z0-9_]+' | sort"
# The files that set an MTU at boot. Only root reads those of netplan on newer systems.
MTUS_QUESTION = (
    "for f in /etc/netplan/*.yaml /etc/systemd/network/*.network /etc/network/interfaces"
    " /etc/network/interfaces.d/* /etc/NetworkManager/system-connections/*; do"
    ' [ -e "$f" ] || continue; if [ -r "$f" ]; then'
    " grep -hioE '\\bmtu(bytes)?[ :=]+[0-9]+' \"$f\" |"
    " grep -oE '[0-9]+' || echo none; else echo closed; fi; done; :"
)
LINGERS_QUESTION = (
    "[ -d /run/systemd/system ] || exit 3;"
    ' ls /var/lib/systemd/linger 2>/dev/null | grep -qx "$(id -un)" && echo yes || echo no'
)
RUNTIMES_QUESTION = (
    "for p in docker podman nvidia-ctk nvidia-container-runtime; do"
    " command -v $p >/dev/null && echo $p; done;"
    " grep -hso '\"nvidia\"' /etc/docker/daemon.json | head -n 1;"
    " ls /etc/cdi/nvidia.yaml /var/run/cdi/nvidia.yaml 2>/dev/null; :"
)
_STATE = '"${MEDLEY_STATE:-${XDG_STATE_HOME:-$HOME/.local/state}/medley}"'
# Keys are named after people: one that others can read is enough.
SECRETS_QUESTION = (
    f"cd {_STATE} && {{ stat -c '%a %n' token api-key sglang-*.yaml;"
    " find keys -type f -perm /077 -printf '%m keys/*\\n' -quit; } 2>/dev/null; :"
)
MEMBERSHIP_QUESTION = f'cd {_STATE} && grep -ohE \'"(role|head|address|interface)": "[^"]*"\' ray.json'
# The ports of servers whose process is still there.
SERVING_QUESTION = (
    f"cd {_STATE}/serving && for f in *.json; do"
    ' p=$(grep -oE "\\"pid\\": [0-9]+" "$f" | grep -oE "[0-9]+");'
    ' [ -n "$p" ] && [ -d "/proc/$p" ] && echo "${f%.json}"; done'
)
# The versions in each environment that must be equal on all hosts, from the names of its packages.
PACKAGES_QUESTION = (
    'cd "${MEDLEY_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/medley}/envs"'
    " && ls -d */lib/python3*/site-packages/*.dist-info"
    " | grep -E '/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
# A virtualenv of the user's own, which cluster.toml names.
USER_ENVIRONMENT_QUESTION = (
    '[ -n "$MEDLEY_OWN_ENV" ] && cd "$MEDLEY_OWN_ENV" && ls -d bin/python bin/ray bin/vllm'
    " lib/python3*/site-packages/*.dist-info 2>/dev/null"
    " | grep -E '^bin|/(ray|vllm|sglang|torch|nvidia_nccl_cu[0-9]+|triton)-[^/]*$'"
)
USER_ENVIRONMENT_VARIABLE = "MEDLEY_OWN_ENV"

QUESTIONS = (
    *(
        ANSWER_QUESTION,
        SETTINGS_QUESTION,
        MODE_QUESTION,
        LIBRARIES_QUESTION,
        MODULES_QUESTION,
        OPEN_DRIVER_QUESTION,
        VARIABLES_QUESTION,
        MTUS_QUESTION,
        LINGERS_QUESTION,
        RUNTIMES_QUESTION,
    ),
    *(
        SECRETS_QUESTION,
        MEMBERSHIP_QUESTION,
        SERVING_QUESTION,
        PACKAGES_QUESTION,
        USER_ENVIRONMENT_QUESTION,
        VLLM_NAMES_QUESTION,
    ),
)

_PACKAGE_PATH_PATTERN = re.compile(
    r"(?:([^/]+)/)?lib/python([0-9.]+)/site-packages/(\w+?)-([^-/]+)\.dist-info"
)
_CURL_ERRORS = {
    6: "its name does not resolve",
    7: "no connection",
    28: "no answer in 2 s",
    35: "TLS failed",
    60: "TLS failed",
}


class HubAccess(Value):
    """The access of this host to the hub."""

    status: int | None = None
    """The HTTP status; None if the hub did not answer."""
    why: str | None = None
    """The reason why it did not answer."""
    has_mirror: bool = False
    """Whether HF_ENDPOINT names a mirror."""
    is_offline: bool = False
    has_token: bool = False
    token_mode: str | None = None
    """The mode of the file that `hf auth login` writes, as in `600`."""


def read_hub_access(answers: Transcript) -> HubAccess | None:
    """Return the access to the hub; None where there is no curl."""
    answer = answers.get(ANSWER_QUESTION, NO_ANSWER)
    status = parse_number(answer.text.strip())
    if status is None and answer.status in {1, 127}:
        return None
    words, mode = set(read_lines(answers, SETTINGS_QUESTION)), read_first_line(answers, MODE_QUESTION)
    return HubAccess(
        status=status or None,
        why=None if status else _CURL_ERRORS.get(answer.status, f"curl ended with {answer.status}"),
        has_mirror="mirror" in words,
        is_offline="offline" in words,
        has_token="token" in words or mode is not None,
        token_mode=mode,
    )


class RdmaParts(Value):
    """The libraries and kernel modules of RDMA."""

    libraries: frozenset[str] | None = frozenset()
    """The names of the libraries; None without a list of ldconfig, as on NixOS."""
    modules: frozenset[str] = frozenset()
    has_open_driver: bool = False
    """Whether the driver's module is the open one, which needs no other to give GPU memory to RDMA."""


def read_rdma_parts(answers: Transcript) -> RdmaParts:
    """Return the libraries and kernel modules of RDMA."""
    libraries = frozenset(
        re.sub(r"\.so\.1$", "", line.strip()) for line in read_lines(answers, LIBRARIES_QUESTION)
    )
    has_no_list = answers[LIBRARIES_QUESTION].status == 127  # noqa: PLR2004 - no ldconfig
    return RdmaParts(
        None if has_no_list else libraries,
        frozenset(line.strip() for line in read_lines(answers, MODULES_QUESTION)),
        bool(read_lines(answers, OPEN_DRIVER_QUESTION)),
    )


class Settings(Value):
    """The user's variables, and settings of the system."""

    variables: Mapping[str, str] = field(default_factory=dict)
    kept_mtus: frozenset[int] = frozenset()
    """The MTUs that files of netplan, systemd, NetworkManager or ifupdown set at each boot."""
    has_mtu_files: bool = False
    """Whether there is any such file."""
    is_all_read: bool = True
    """Whether this user could read all these files."""
    is_lingering: bool | None = None
    """Whether this user's processes outlast a logout; None without systemd."""
    runtimes: frozenset[str] = frozenset()
    """The programs of docker, podman and NVIDIA's runtime that are installed."""
    has_nvidia_runtime: bool = False
    has_cdi: bool = False
    vllm_names: tuple[str, ...] = ()
    """The names of vLLM's variables that are set."""


def read_settings(answers: Transcript) -> Settings:
    mtus, words = read_lines(answers, MTUS_QUESTION), read_lines(answers, RUNTIMES_QUESTION)
    lingers = answers.get(LINGERS_QUESTION, NO_ANSWER)
    return Settings(
        variables=dict(re.findall(r"^(\w+)=(.*)$", answers[VARIABLES_QUESTION].text, re.MULTILINE)),
        vllm_names=read_lines(answers, VLLM_NAMES_QUESTION),
        kept_mtus=frozenset(mtu for word in mtus if (mtu := parse_number(word)) is not None),
        has_mtu_files=bool(mtus),
        is_all_read="closed" not in mtus,
        is_lingering=None if lingers.status else read_first_line(answers, LINGERS_QUESTION) == "yes",
        runtimes=frozenset(word for word in words if "/" not in word and '"' not in word),
        has_nvidia_runtime='"nvidia"' in words,
        has_cdi=any("/cdi/" in word for word in words),
    )


class MedleyFiles(Value):
    """The files of medley on this host."""

    modes: Mapping[str, str] = field(default_factory=dict)
    """The modes of files that hold a secret, by name."""
    membership: Mapping[str, str] = field(default_factory=dict)
    """`role`, `head`, `address` and `interface` of its part in a cluster; empty outside a cluster."""
    serving: tuple[int, ...] = ()
    """The ports at which medley serves a model."""
    packages: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """The versions of the packages and of `python`, by environment."""
    user_packages: Mapping[str, str] | None = None
    """The versions in the virtualenv that cluster.toml names; None without one."""
    user_programs: frozenset[str] = frozenset()
    """The programs in that virtualenv."""


def read_medley_files(answers: Transcript) -> MedleyFiles:
    """Return the files of medley on this host."""
    modes = (line.partition(" ") for line in read_lines(answers, SECRETS_QUESTION))
    user_answer = answers.get(USER_ENVIRONMENT_QUESTION, NO_ANSWER)
    return MedleyFiles(
        modes={name: mode for mode, _, name in modes if name},
        membership=dict(
            re.findall(r'"(\w+)": "([^"\\]*)"', answers.get(MEMBERSHIP_QUESTION, NO_ANSWER).text)
        ),
        serving=tuple(
            port for line in read_lines(answers, SERVING_QUESTION) if (port := parse_number(line)) is not None
        ),
        packages=_group_packages(read_lines(answers, PACKAGES_QUESTION)),
        user_packages=_group_packages(read_lines(answers, USER_ENVIRONMENT_QUESTION)).get("", {})
        if user_answer.text
        else None,
        user_programs=frozenset(
            line[4:] for line in read_lines(answers, USER_ENVIRONMENT_QUESTION) if line.startswith("bin/")
        ),
    )


def _group_packages(paths: tuple[str, ...]) -> dict[str, dict[str, str]]:
    """Return by environment the versions of its packages and of `python`."""
    versions: dict[str, dict[str, str]] = {}
    for path in paths:
        if match := _PACKAGE_PATH_PATTERN.fullmatch(path.strip()):
            versions.setdefault(match[1] or "", {"python": match[2]})[match[3]] = match[4]
    return versions
