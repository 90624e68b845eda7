"""Faults of hosts and groups for the doctor: what is wrong in each case, and what must be found."""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from medley.cluster.cluster_file import ClusterHost
from medley.doctor.checks import Examination
from medley.doctor.examination import build_examination
from medley.errors import Problem
from medley.host import facts, health
from medley.host.facts import network, system
from medley.host.facts.gpu import CUDA_QUESTION, GPUS_QUESTION, MODULE_QUESTION
from medley.host.health import access, gpu, kernel, software
from medley.network.fabric.choice import NetworkOptions
from medley.transcript import Answer
from tests.host.health.cases import (
    CLOCKS,
    IDLE,
    NOTHING,
    REASONS,
    ROOM,
    case_of,
    df,
    driver,
    meminfo,
    old,
    smi,
    used_by,
)
from tests.host.recordings import HOSTS

HEALTHY = (
    *("spark", "spark-pair-a", "spark-pair-b", "thor-r38", "thor-mgbe-a", "orin-r39", "rtx-two", "rtx-roce"),
    *("debian-vm", "cpu-rack", "gb10-oem", "spark-air-gapped", "spark-gid-drift", "rtx-mixed"),
)
# What is better otherwise: they were recorded without Nix.
EXPECTED_SUMMARIES: Mapping[str, Mapping[str, str]] = {
    "orin-r39": {"kernels": "an engine out of our lock cannot talk to other hosts here; one host can serve"},
}
CUDA_12_8 = '"cuda" : {\n "name" : "CUDA SDK",\n "version" : "12.8.1"\n'
OWN_RTX = {"rtx-two": ClusterHost(env="/opt/own")}
AARCH64 = "/usr/lib/aarch64-linux-gnu"
GREETING = {"medley": "0123456789abcdef", "host": "x", "epoch_s": 0.0, "ahead_s": 0.1}
PAIR: Mapping[str, None] = {"spark-pair-a": None, "spark-pair-b": None}
GONE = Problem("spark-pair-b does not answer", cause="ssh: no route", fix="ssh spark-pair-b true")


class Fault(NamedTuple):
    rule: str
    summary: str
    """Words of the check's summary."""
    case: Callable[[], Examination]
    state: str = "wrong"
    fix: str = ""


def with_(name: str, **fields: Any) -> Callable[[], Examination]:
    """Return a case of one host; `overrides` replaces answers by their questions."""
    overrides = fields.pop("overrides", None)
    return lambda: case_of({name: overrides}, **fields)


def pair(overrides: Mapping[str, Any] | None = None, **fields: Any) -> Callable[[], Examination]:
    """Return a case of two Sparks on a cable; `overrides` are of the first."""
    return lambda: case_of({"spark-pair-a": overrides, "spark-pair-b": None}, **fields)


def cluster_pair(**fields: Any) -> Callable[[], Examination]:
    """Return the pair as a cluster that answered; `fields` are of the second's greeting."""
    greetings = {"spark-pair-a": GREETING, "spark-pair-b": {**GREETING, **fields}}
    return pair(greetings=greetings, digest=GREETING["medley"], head="spark-pair-a", connection_problems={})


def links(name: str, *changes: tuple[str, str]) -> dict[str, str]:
    """Return ip's output about a recorded host's links, with replacements."""
    text = (HOSTS / f"{name}.txt").read_text()
    output = text[text.index(f"$ {network.LINKS_QUESTION}\n") :].split("\n$ ")[0].split("\n", 1)[1]
    output = "\n".join(line.removeprefix("  ") for line in output.splitlines())
    for current, replacement in changes:
        assert current in output, current
        output = output.replace(current, replacement)
    return {network.LINKS_QUESTION: output}


def pair_without_gids() -> Examination:
    """The first of a pair, whose ports have no GID of an IPv4 address."""
    case = case_of(PAIR)
    first = case.hosts["spark-pair-a"]
    ports = tuple(port.replace(gids=port.gids[:2]) for port in first.facts.rdma)
    bare = first.replace(facts=first.facts.replace(rdma=ports))
    return case.replace(hosts={**case.hosts, "spark-pair-a": bare})


def pair_without_addresses() -> Examination:
    """The pair with its cable in, and no address on it."""
    fast = ("enp1s0f0np0", "enp1s0f1np1", "enP2p1s0f0np0", "enP2p1s0f1np1")
    hosts = {}
    for name, host in case_of(PAIR).hosts.items():
        links = tuple(
            link.replace(addresses=()) if link.name in fast else link for link in host.facts.net.links
        )
        net, ports = (
            host.facts.net.replace(links=links),
            tuple(port.replace(gids=()) for port in host.facts.rdma),
        )
        hosts[name] = host.replace(facts=host.facts.replace(net=net, rdma=ports))
    return build_examination(hosts)


def pair_with_slow_link() -> Examination:
    """The pair, of whose links the first's has agreed on a lower speed."""
    case = case_of(PAIR)
    first = case.hosts["spark-pair-a"]
    links = tuple(link.replace(mbit=40_000) if link.mbit else link for link in first.facts.net.links)
    slow = first.replace(facts=first.facts.replace(net=first.facts.net.replace(links=links)))
    return build_examination({**case.hosts, "spark-pair-a": slow})


def pair_with_crossed_addresses() -> Examination:
    """The pair with the addresses of the second's halves exchanged, and an NCCL that minds."""
    exchange = {
        "192.168.100.11": "(first)",
        "192.168.101.11": "192.168.100.11",
        "(first)": "192.168.101.11",
        "c0a8:640b": "(its GID)",
        "c0a8:650b": "c0a8:640b",
        "(its GID)": "c0a8:650b",
    }
    wishes = NetworkOptions(nccl_version=(2, 29, 7))
    return case_of(PAIR, moves={"spark-pair-b": exchange}, wishes=wishes)


def two_workstations(overrides: Mapping[str, Any]) -> Callable[[], Examination]:
    """Two with RoCE, and GPUs that RDMA can read."""
    second_addresses = {
        "192.168.100.30": "192.168.100.31",
        "192.168.1.30": "192.168.1.31",
        "c0a8:641e": "c0a8:641f",
    }
    return lambda: case_of(
        {"rtx-roce": overrides, "rtx-roce again": overrides}, moves={"rtx-roce again": second_addresses}
    )


def packages(*names: str, env: str = "vllm-cuda-0123456789ab") -> str:
    folder = f"{env}/lib/python3.12/site-packages" if env else "lib/python3.12/site-packages"
    return "".join(f"{folder}/{name}.dist-info\n" for name in names)


def capped(default: str, set_: str) -> dict[str, str]:
    """Clocks that somebody has set."""
    clocks = CLOCKS.replace(f"Graphics                          : {default} MHz", f"Graphics : {set_} MHz", 1)
    return {gpu.STATE_QUESTION: smi(IDLE, REASONS, clocks)}


def kib(total_gib: int, available_gib: int) -> str:
    return f"MemTotal: {total_gib << 20} kB\nMemAvailable: {available_gib << 20} kB\n"


def limits_of(locked: str, files: int) -> str:
    return f"Max open files 1024 {files} files\nMax locked memory {locked} {locked} bytes\n"


OWN_ENVIRONMENT = {"spark": ClusterHost(env="/opt/own")}
UNREACHED = Problem(
    "spark-pair-b does not reach spark-pair-a",
    cause="timed out",
    fix="on spark-pair-a: sudo ufw allow from x",
)
DROPS = """\
table inet rack {
	chain input {
		type filter hook input priority filter; policy accept;
		iifname != "lo" tcp dport 24000-24999 drop
"""
NO_PEER = {software.OPEN_DRIVER_QUESTION: NOTHING, software.MODULES_QUESTION: "nvidia \nib_uverbs \n"}
BUSY = "0, NVIDIA GeForce RTX 4090, GPU-1, 00000000:01:00.0, 24564, 10000, 8.9, 580.95.05\n"
DESKTOP = {gpu.STATE_QUESTION: smi(used_by((2211, "G", "Xorg", 180)), REASONS, CLOCKS)}
COMPUTES = {gpu.STATE_QUESTION: smi(used_by((6330, "C", "python3", 96073)), REASONS, CLOCKS)}
RAYS = "own 40 gcs_server\nown 41 raylet\nother 812 earlyoom\n"
LEFT_RAYS = {health.PROCESSES_QUESTION: RAYS, health.CLUSTERS_QUESTION: "40 here\n41 here\n"}
SPEEDS = tuple(
    json.dumps(
        {
            "when": f"2026-11-0{day}T03:00:00+00:00",
            "kind": "spark",
            "speeds": [
                {"host": "spark", "index": 0, "name": "NVIDIA GB10", "memory_bytes": 128 << 30, "gb_s": gb_s}
                | {"few_tflops": 3.0, "tflops": 60.0, "dtype": "bfloat16", "threads": 20, "torch": "2.13.0"}
                | {"when": f"2026-11-0{day}T03:00:00+00:00"}
            ],
        }
    )
    + "\n"
    for day, gb_s in enumerate((230.0, 228.0, 152.0), 1)
)
"""Three measurements of a GB10; the last is from its slow state."""
SMALL_SHM = "Filesystem 1024-blocks Used Available Capacity Mounted on\nshm 65536 0 65536 0% /dev/shm\n"
HOT = {
    gpu.STATE_QUESTION: smi(
        IDLE,
        REASONS.replace("HW Thermal Slowdown           : Not Active", "HW Thermal Slowdown : Active"),
        CLOCKS,
    )
}
MODE_30W = {gpu.POWER_QUESTION: "NV Power Mode: MODE_30W\n2\n"}
SUPER = {
    gpu.POWER_QUESTION: "NV Power Mode: 25W\n3\n",
    kernel.POWER_MODES_QUESTION: "15W=0\n25W=1\nMAXN_SUPER=2\n",
}
LOW_CLOCKS = CLOCKS.replace("208 MHz", "507 MHz")
BUSY_REASONS = REASONS.replace("Idle                              : Active", "Idle : Not Active")
STUCK = {gpu.STATE_QUESTION: smi(used_by((6330, "C", "sglang::scheduler", 96073)), BUSY_REASONS, LOW_CLOCKS)}
AER = (
    "[ 811.641] pcieport 0000:00:00.0: AER: Uncorrectable (Fatal) error message received from 0000:00:00.0\n"
    "[ 811.642] pcieport 0000:00:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal)\n"
)
PEERS = " \tGPU0\tGPU1\t\n GPU0\tX\tOK\t\n GPU1\tOK\tX\t\n"
LENT = {kernel.CMA_QUESTION: "CmaTotal: 0 kB\nCmaFree: 9752576 kB\n"}
OLD_PTXAS = "/usr/local/cuda/bin/ptxas 12.8\n"
TOLD_OLD = {
    software.VARIABLES_QUESTION: "TRITON_PTXAS_PATH=/opt/ptxas\n",
    gpu.PTXAS_QUESTION: "/opt/ptxas 12.8\n/usr/local/cuda/bin/ptxas 13.0\n",
}
TOLD_NONE = {software.VARIABLES_QUESTION: "TRITON_PTXAS_PATH=/opt/gone\n"}
OWN_CU128 = {
    software.USER_ENVIRONMENT_QUESTION: f"bin/python\nbin/ray\n{packages('torch-2.9.0+cu128', env='')}"
}
FULL = "environments yes 1000000000 800000000\nstate yes 1000000 102400\n"
TIGHT = df(**{**ROOM, "environments": ("yes", 100, 9)})
FAULTS = (
    Fault(
        "answers",
        "does not answer",
        lambda: case_of({"spark-pair-a": None}, silent_hosts={"spark-pair-b": GONE}),
    ),
    Fault(
        "medley", "run different versions of medley", cluster_pair(medley="fedcba9876543210"), fix="git pull"
    ),
    Fault(
        "time",
        "clock of spark-pair-b is off",
        cluster_pair(ahead_s=-3600.0),
        fix="sudo timedatectl set-ntp true",
    ),
    Fault(
        "ntp",
        "Clock is not synchronized",
        with_("spark", overrides={access.SYNCHRONISED_QUESTION: "NTP=no\nNTPSynchronized=no\n"}),
        "better",
        "sudo timedatectl set-ntp true",
    ),
    Fault("kind", "GPU does not answer", with_("spark-nvml-mismatch"), fix="reboot"),
    Fault("kind", "GPU does not answer", with_("rtx-stuck"), fix="dmesg"),
    Fault("kind", "no kind of host is a Jetson", with_("orin-r35-no-nvidia-smi"), fix="move it to a release"),
    Fault("kind", "infoROM is corrupted", with_("rtx-4090"), "better"),
    Fault(
        "driver",
        "is too old",
        with_("spark", overrides={CUDA_QUESTION: "CUDA Version        : 12.8\n"}),
        fix="driver",
    ),
    Fault(
        "driver",
        "have different drivers",
        pair(
            {
                MODULE_QUESTION: "NVRM version: NVIDIA UNIX Open Kernel Module for aarch64  "
                "580.95.05  Release\n"
            }
        ),
        "better",
    ),
    Fault(
        "driver-libraries",
        "half upgraded",
        with_("spark", overrides={gpu.FILES_QUESTION: driver(AARCH64, nvml="580.126.09")}),
        fix="sudo reboot",
    ),
    Fault(
        "driver-libraries",
        "is not found",
        with_(
            "spark", overrides={gpu.FILES_QUESTION: f"{AARCH64}/libcuda.so.1 /usr/cuda/compat/libcuda.so.1\n"}
        ),
        fix="ubuntu-drivers install",
    ),
    Fault(
        "driver-libraries",
        "is not found",
        with_("orin-r39", overrides={gpu.FILES_QUESTION: "", gpu.TOOLKIT_QUESTION: "toolkit\n"}),
        fix="nvidia-l4t-cuda",
    ),
    Fault(
        "versions", "Ray differs", pair({software.PACKAGES_QUESTION: packages("ray-2.59.0", "vllm-0.32.0")})
    ),
    Fault(
        "versions",
        "NCCL differs",
        pair(
            {
                software.PACKAGES_QUESTION: packages(
                    "ray-2.60.0", "vllm-0.32.0", "torch-2.13.0", "nvidia_nccl_cu13-2.30.7"
                )
            }
        ),
        "better",
    ),
    Fault("own-environment", "is not a virtualenv", with_("spark", members=OWN_ENVIRONMENT)),
    Fault(
        "own-environment",
        "has no ray",
        with_(
            "spark",
            overrides={
                software.USER_ENVIRONMENT_QUESTION: f"bin/python\nbin/vllm\n{packages('vllm-0.32.0', env='')}"
            },
            members=OWN_ENVIRONMENT,
        ),
        fix="pip install 'ray",
    ),
    Fault("wire", "have no network in common", lambda: case_of({"spark-air-gapped": None, "rtx-wifi": None})),
    Fault(
        "wire",
        "spark-pair-b",
        pair(wishes=NetworkOptions({"spark-pair-a": "192.168.100.0/24", "spark-pair-b": "10.9.9.0/24"})),
    ),
    Fault(
        "down",
        "enp1s0f1np1 is down",
        pair(
            links(
                "spark-pair-a",
                (
                    '"ifname":"enp1s0f1np1","flags":["BROADCAST","MULTICAST","UP","LOWER_UP"]',
                    '"ifname":"enp1s0f1np1","flags":["NO-CARRIER","BROADCAST","MULTICAST","UP"]',
                ),
            )
        ),
        fix="sudo ip link set enp1s0f1np1 up",
    ),
    Fault(
        "twice",
        "192.168.1.10 is the address of",
        lambda: case_of({"spark-pair-a": None, "spark-gid-drift": None}),
    ),
    Fault("one-subnet", "are both in 192.168.100.0/24", with_("spark-twins-one-subnet"), fix="link setup"),
    Fault(
        "half-cage", "half the speed", with_("spark-one-half-down"), "better", "ip link set enP2p1s0f1np1 up"
    ),
    Fault("order", "order the interfaces", pair_with_crossed_addresses, "better", "PCI domain 0000"),
    Fault(
        "ring",
        "cables between the hosts",
        lambda: case_of(
            dict.fromkeys(("spark-ring-a", "spark-ring-b", "spark-ring-c")),
            wishes=NetworkOptions(nccl_version=(2, 29, 7)),
        ),
        "better",
    ),
    Fault("pcie", "2 of 4 PCIe lanes", with_("spark-pcie-x2"), "better", "fwupdmgr"),
    Fault(
        "way",
        "wlp2s0 (wifi)",
        lambda: case_of({"rtx-wifi": None, "rtx-vpn-docker": None}),
        "better",
        "cable",
    ),
    Fault(
        "idle-port",
        "have fast ports that are up and unused (200 Gbit/s)",
        lambda: case_of({"spark-link-local": None, "spark-pair-b": None}),
        "better",
        "sudo $(command -v medley) link setup --interface enp1s0f1np1 --address 192.168.100.1/24",
    ),
    Fault(
        "idle-port",
        "spark-pair-a and spark-pair-b have fast ports that are up and unused",
        pair_without_addresses,
        "better",
        "on each of spark-pair-a, spark-pair-b: sudo $(command -v medley) link setup",
    ),
    Fault(
        "mtu",
        "enp1s0f1np1 has MTU 1500",
        lambda: case_of({"spark-mtu-mismatch": None, "spark-pair-b": None}),
        fix="sudo $(command -v medley) link setup"
        " --interface enp1s0f1np1 --address 192.168.100.10/24 --mtu 9000",
    ),
    Fault(
        "link-speed",
        "enp1s0f1np1 has 40 Gbit/s, and spark-pair-b, of the same kind, has 200 Gbit/s",
        pair_with_slow_link,
        "better",
        "ethtool enp1s0f1np1",
    ),
    Fault(
        "boot-mtu",
        "is lost at the next boot",
        pair({software.MTUS_QUESTION: "none\n1500\n"}),
        "better",
        "sudo $(command -v medley) link setup",
    ),
    Fault(
        "gid",
        "rocep1s0f1 has no RoCE v2 GID",
        pair_without_gids,
        fix="sudo ip link set enp1s0f1np1 down; sudo ip link set enp1s0f1np1 up",
    ),
    Fault(
        "by-hand",
        "is not an address",
        pair({software.VARIABLES_QUESTION: "VLLM_HOST_IP=192.168.50.192\n"}),
        fix="unset",
    ),
    Fault(
        "by-hand",
        "that this host does not have",
        with_("spark", overrides={software.VARIABLES_QUESTION: "GLOO_SOCKET_IFNAME=eth0\n"}),
    ),
    Fault(
        "by-hand",
        "does not reach other hosts",
        with_("rtx-vpn-docker", overrides={software.VARIABLES_QUESTION: "NCCL_SOCKET_IFNAME=docker0\n"}),
    ),
    Fault(
        "by-hand",
        "a device that this host does not have",
        pair({software.VARIABLES_QUESTION: "NCCL_IB_HCA=mlx5_0,mlx5_1\n"}),
    ),
    Fault(
        "by-hand",
        "hides every GPU",
        with_("spark", overrides={software.VARIABLES_QUESTION: "CUDA_VISIBLE_DEVICES=\n"}),
    ),
    Fault(
        "by-hand",
        "lacks 12.1",
        with_("spark", overrides={software.VARIABLES_QUESTION: "TORCH_CUDA_ARCH_LIST=9.0\n"}),
        "better",
    ),
    Fault(
        "by-hand",
        "does not read VLLM_USE_FLASHINFER_MOE_FP4",
        with_(
            "spark",
            overrides={software.VLLM_NAMES_QUESTION: "VLLM_LOGGING_LEVEL\nVLLM_USE_FLASHINFER_MOE_FP4\n"},
        ),
        fix="--moe-backend",
    ),
    Fault(
        "by-hand",
        "does not read VLLM_NVFP4_GEMM_BACKEND",
        with_("spark", members={"spark": ClusterHost(environment={"VLLM_NVFP4_GEMM_BACKEND": "cutlass"})}),
        fix="remove VLLM_NVFP4_GEMM_BACKEND from cluster.toml",
    ),
    Fault("by-hand", "NCCL_IB_GID_INDEX is 5", pair({software.VARIABLES_QUESTION: "NCCL_IB_GID_INDEX=5\n"})),
    Fault(
        "by-hand",
        "keeps NCCL from RDMA",
        pair({software.VARIABLES_QUESTION: "NCCL_IB_DISABLE=1\n"}),
        "better",
    ),
    Fault(
        "address",
        "is no longer on this host",
        with_(
            "spark",
            overrides={software.MEMBERSHIP_QUESTION: '"role": "worker"\n"address": "192.168.50.192"\n'},
        ),
        fix="medley ray-stop",
    ),
    Fault("reach", "does not reach", pair(connection_problems={"spark-pair-b": UNREACHED}), fix="ufw allow"),
    Fault(
        "firewall",
        "ufw is on",
        with_("spark", overrides={access.UFW_QUESTION: "ENABLED=yes\n"}),
        "better",
        "medley ports",
    ),
    Fault(
        "firewall",
        "drops",
        with_("spark", overrides={access.NFT_QUESTION: DROPS}),
        "better",
        "nft insert rule inet rack input ip saddr NETWORK accept",
    ),
    Fault(
        "firewall",
        "drops",
        with_("spark", overrides={access.IPTABLES_QUESTION: "-P INPUT DROP\n"}),
        "better",
        "iptables",
    ),
    Fault(
        "firewall",
        "drops",
        pair({access.NFT_QUESTION: DROPS}, connection_problems={"spark-pair-b": UNREACHED}),
    ),
    Fault(
        "firewall",
        "firewalld is running",
        with_(
            "spark",
            overrides={
                access.NFT_QUESTION: NOTHING,
                access.IPTABLES_QUESTION: NOTHING,
                health.PROCESSES_QUESTION: "other 700 firewalld\nother 812 earlyoom\n",
            },
        ),
        "better",
    ),
    Fault(
        "ports",
        "Port 24000 is in use",
        with_("spark", overrides={access.LISTENING_QUESTION: "5DC0 all\n"}),
        fix="ss -ltnp",
    ),
    Fault(
        "ports",
        "Port 8000 is already in use",
        with_("spark", overrides={access.LISTENING_QUESTION: "1F40 all\n"}),
        "better",
    ),
    Fault(
        "name",
        "does not resolve",
        with_("spark", overrides={access.LOCAL_ADDRESSES_QUESTION: NOTHING}),
        "better",
        "/etc/hosts",
    ),
    Fault(
        "name",
        "not to an address of this host",
        with_("spark", overrides={access.LOCAL_ADDRESSES_QUESTION: "192.168.9.9\n"}),
        fix="/etc/hosts",
    ),
    Fault(
        "rdma-libraries",
        "libibverbs",
        with_("spark-pair-a", overrides={software.LIBRARIES_QUESTION: NOTHING}),
        fix="libibverbs1",
    ),
    Fault(
        "peer-memory",
        "cannot read GPU memory",
        two_workstations(NO_PEER),
        "better",
        "sudo modprobe nvidia-peermem",
    ),
    Fault(
        "pcie-errors",
        "0000:00:00.0, 0002:00:00.0",
        pair({kernel.PCIE_FATAL_QUESTION: "0002:00:00.0 1\n", kernel.PCIE_LOG_QUESTION: AER}),
        fix="fwupdmgr",
    ),
    Fault(
        "peer-access",
        "translates: 0000:41:00.0",
        with_(
            "rtx-two",
            overrides={kernel.PEERS_QUESTION: PEERS, kernel.IOMMU_QUESTION: "0000:41:00.0 DMA-FQ\n"},
        ),
        "better",
        "iommu=pt",
    ),
    Fault("rdma-kernel", "refuses memory to RDMA", pair(LENT), fix="kho=off"),
    Fault(
        "rdma-kernel",
        "Kernel 7.0.0-1019-nvidia",
        lambda: old("spark-pair-a", {"6.14.0-1013-nvidia": "7.0.0-1019-nvidia"}),
        "better",
        "update-grub",
    ),
    Fault(
        "memory",
        "GiB available",
        with_("spark", overrides={facts.MEMINFO_QUESTION: kib(121, 60)}),
        "better",
        "ps -eo",
    ),
    Fault(
        "memory",
        "GiB available",
        with_("cpu-rack", overrides={facts.MEMINFO_QUESTION: kib(124, 2)}),
        fix="ps -eo",
    ),
    Fault(
        "page-cache",
        "Page cache holds",
        with_("spark", overrides={health.PAGES_QUESTION: meminfo(3, 60)}),
        "better",
        "drop_caches",
    ),
    Fault(
        "swap",
        "GiB used",
        with_("spark", overrides={health.PAGES_QUESTION: meminfo(100, 5, 16, 9)}),
        "better",
        "swapoff",
    ),
    Fault(
        "guard",
        "No guard ends",
        with_("spark", overrides={health.PROCESSES_QUESTION: ""}),
        "better",
        "earlyoom",
    ),
    Fault(
        "gpu-memory",
        "GPU 0: 9.8 of 24.0 GiB",
        with_("rtx-4090", overrides={GPUS_QUESTION: BUSY}),
        "better",
        "nvidia-smi",
    ),
    Fault(
        "gpu-users",
        "A desktop uses the GPU: Xorg (2211, 0.2 GiB)",
        with_("spark", overrides=DESKTOP),
        "better",
        "isolate",
    ),
    Fault(
        "gpu-users",
        "A desktop",
        with_("thor-r38", overrides={health.PROCESSES_QUESTION: "other 90 Xorg\n"}),
        "better",
    ),
    Fault("gpu-users", "python3 (6330, 93.8 GiB)", with_("spark", overrides=COMPUTES), "better", "kill 6330"),
    Fault(
        "leftovers",
        "Another Ray is running: gcs_server (40), raylet (41)",
        with_("spark", overrides={health.PROCESSES_QUESTION: RAYS}),
        "better",
        "ps -o pid,user,lstart,args -p 40,41",
    ),
    Fault("leftovers", "was left running", with_("spark", overrides=LEFT_RAYS), "better", "medley ray-stop"),
    Fault(
        "leftovers",
        "An engine is already running",
        with_("spark", overrides={health.PROCESSES_QUESTION: "own 7 ollama\n"}),
        "better",
    ),
    Fault(
        "shm",
        "(/dev/shm) has only 64 MiB",
        with_("thor-r38", overrides={facts.SHM_QUESTION: SMALL_SHM}),
        fix="remount",
    ),
    Fault(
        "clocks",
        "is limited to 2200 MHz of 2418",
        with_("spark", overrides=capped("2418", "2200")),
        "better",
        "-rgc",
    ),
    Fault("clocks", "HW Thermal Slowdown", with_("spark", overrides=HOT), "better", "TEMPERATURE"),
    Fault("clocks", "computes at 507 of 3003 MHz", with_("spark", overrides=STUCK), "better", "poweroff"),
    Fault(
        "speed",
        "is slower than its own past",
        with_("spark", overrides={health.SPEEDS_QUESTION: "".join(SPEEDS)}),
        "better",
        "unplug the power supply at both ends",
    ),
    Fault(
        "speed",
        "is slower than its equal in spark-pair-b",
        lambda: case_of(PAIR).replace(
            hosts={
                name: host.replace(health=host.health.replace(speeds=lines))
                for (name, host), lines in zip(
                    case_of(PAIR).hosts.items(),
                    ((SPEEDS[2].replace("152.0", "100.0"),), (SPEEDS[0],)),
                    strict=True,
                )
            },
        ),
        "better",
        "unplug the power supply at both ends",
    ),
    Fault("power", "is MODE_30W", with_("orin-r39", overrides=MODE_30W), "better", "sudo nvpmodel -m 0"),
    Fault("power", "is 25W", with_("orin-r39", overrides=SUPER), "better", "sudo nvpmodel -m 2"),
    Fault(
        "power",
        "is 120W",
        with_(
            "thor-r38",
            overrides={gpu.POWER_QUESTION: "NV Power Mode: 120W\n1\n", kernel.POWER_MODES_QUESTION: NOTHING},
        ),
        "better",
        "grep POWER_MODEL",
    ),
    Fault(
        "power",
        "follows the load",
        with_("orin-r36", overrides={kernel.GPU_CLOCKS_QUESTION: "17000000.gpu 306000000 1300500000\n"}),
        "better",
        "sudo jetson_clocks",
    ),
    Fault(
        "devices",
        "/dev/nvidiactl",
        with_("spark", overrides={access.DEVICES_QUESTION: "/dev/nvidiactl no\n"}),
        fix="usermod",
    ),
    Fault(
        "devices",
        "uverbs0",
        with_("spark", overrides={access.DEVICES_QUESTION: "/dev/infiniband/uverbs0 no\n"}),
        fix="chmod",
    ),
    Fault(
        "limits",
        "is 8192 KiB",
        with_("spark-pair-a", overrides={access.LIMITS_QUESTION: limits_of("8388608", 1048576)}),
        fix="memlock",
    ),
    Fault(
        "limits",
        "is 4,096",
        with_("spark", overrides={access.LIMITS_QUESTION: limits_of("unlimited", 4096)}),
        "better",
        "nofile",
    ),
    Fault(
        "ptxas",
        "No ptxas here knows sm_110",
        with_("thor-r38", overrides={gpu.PTXAS_QUESTION: OLD_PTXAS}),
        "better",
        "13-0",
    ),
    Fault(
        "ptxas",
        "does not know sm_121",
        with_("spark", overrides=TOLD_OLD),
        fix="export TRITON_PTXAS_PATH=/usr/local",
    ),
    Fault(
        "ptxas",
        "does not know sm_110",
        with_("thor-r38", overrides=TOLD_NONE),
        fix="export TRITON_PTXAS_PATH=/usr/local",
    ),
    Fault(
        "compiler",
        "gcc is not installed",
        with_("spark", overrides={system.PROGRAMS_QUESTION: "/usr/bin/python3.12\n"}),
        fix="build",
    ),
    Fault(
        "compiler",
        "Python of vllm-cuda-0123456789ab has no headers",
        with_("spark", overrides={gpu.HEADERS_QUESTION: "/x/envs/vllm-cuda-0123456789ab False\n"}),
        fix="python3-dev",
    ),
    Fault(
        "compiler",
        "CUDA toolkit is not installed",
        with_("orin-r39", members={"orin-r39": ClusterHost(env="/opt/own")}),
        "better",
        "cuda-toolkit-13-0",
    ),
    Fault(
        "compiler",
        "CUDA toolkit is not installed",
        lambda: case_of({"rtx-two": None}, members=OWN_RTX).replace(engine="sglang"),
        "wrong",
        "cuda-toolkit-13-0",
    ),
    Fault(
        "compiler",
        "CUDA toolkit 12.8.1 is too old",
        with_(
            "rtx-two",
            members=OWN_RTX,
            overrides={system.CUDA_QUESTION: '"cuda" : {\n "name" : "CUDA SDK",\n "version" : "12.8.1"\n'},
        ),
        fix="cuda-toolkit-13-0",
    ),
    Fault("kernels", "No engine environment can be built", with_("orin-r36"), "better", "--image default"),
    Fault(
        "kernels",
        "no image runs on this orin",
        with_(
            "orin-r36",
            overrides={system.L4T_RELEASE_FILE: "# R36 (release), REVISION: 3.0, GCID: 36923193\n"},
        ),
        "better",
        "upgrade to JetPack 7.2",
    ),
    Fault(
        "kernels",
        "has no kernels",
        with_("spark", overrides={software.PACKAGES_QUESTION: packages("torch-2.13.0+cpu")}),
    ),
    Fault(
        "kernels",
        "/opt/own has no kernels",
        with_("thor-r38", overrides=OWN_CU128, members={"thor-r38": ClusterHost(env="/opt/own")}),
        fix="13.0",
    ),
    Fault("disk", "state: 100 MiB", with_("spark", overrides={health.DISKS_QUESTION: FULL}), fix="df -h"),
    Fault(
        "disk",
        "cannot write",
        with_("spark", overrides={health.DISKS_QUESTION: df(**{**ROOM, "models": ("no", 9, 9)})}),
        fix="chown",
    ),
    Fault(
        "disk",
        "environments: 9.0 GiB",
        with_("spark", overrides={health.DISKS_QUESTION: TIGHT}),
        "better",
        "medley env clean",
    ),
    Fault(
        "hub",
        "does not answer",
        with_("spark", overrides={software.ANSWER_QUESTION: Answer("000", 28)}),
        "better",
        "export HF_HUB_OFFLINE=1",
    ),
    Fault(
        "hub", "has mode 644", with_("spark", overrides={software.MODE_QUESTION: "644\n"}), fix="chmod 600"
    ),
    Fault(
        "containers",
        "cannot pass this GPU",
        with_("spark", overrides={software.RUNTIMES_QUESTION: "docker\n"}),
        "better",
    ),
    Fault(
        "containers",
        "Docker and Podman are not installed",
        with_("orin-r36", overrides={software.RUNTIMES_QUESTION: ""}),
        fix="docker.io",
    ),
    Fault(
        "containers",
        "does not have NVIDIA's",
        with_("orin-r36", overrides={software.RUNTIMES_QUESTION: "docker\nnvidia-ctk\n"}),
    ),
    Fault(
        "secrets",
        "Other users can read token",
        with_("spark", overrides={software.SECRETS_QUESTION: "644 token\n"}),
        fix="chmod 600",
    ),
    Fault(
        "secrets",
        "Other users can read keys/*",
        with_("spark", overrides={software.SECRETS_QUESTION: "600 token\n640 keys/*\n"}),
        fix="/keys/*",
    ),
    Fault(
        "lingers",
        "does not start again",
        pair({software.LINGERS_QUESTION: "no\n"}),
        "better",
        "loginctl enable-linger",
    ),
    Fault(
        "charset",
        "ISO-8859-1",
        with_("spark", overrides={access.CHARSET_QUESTION: "de_DE.ISO-8859-1\n"}),
        "better",
        "LANG",
    ),
    Fault(
        "model",
        "does not fit",
        with_("spark", model_fit=("", Problem("it does not fit", cause="x", fix="y"))),
    ),
)
