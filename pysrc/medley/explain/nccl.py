"""NCCL: transports that do not agree, wires that do not answer, and what a lost rank leaves behind.

Texts are those of NCCL 2.18 to 2.30 (in src/: misc/socket.cc, transport/net_ib*, bootstrap.cc, init.cc).
"""

import re

from medley.explain.known import LOW, MEDIUM, Known, shape

_PEER = r"(?P<peer>[\w.:%-]+<\d+>|[\w.:-]+)"

KNOWN = (
    Known(
        "nccl-mixed-transports",
        what="some ranks of NCCL use RDMA (NET/IB) and others TCP (NET/Socket)",
        cause="a socket of NCCL's got a message of type {got} where {wanted} was due: one host speaks"
        " NET/IB and another NET/Socket",
        fix="medley link show says which transport all of them have; without medley, on EVERY host of the "
        "group:"
        " export NCCL_IB_DISABLE=1",
        shapes=(
            shape("wrong type", r"wrong type (?P<got>\d+) != (?P<wanted>\d+)"),
            shape("returned incompatible", r"NET/(?:IB|Socket).*returned incompatible"),
        ),
        quiet=True,
    ),
    Known(
        "nccl-no-interface",
        what="NCCL finds no network interface",
        cause="NCCL_SOCKET_IFNAME[={name}] names none that is up here and has an address; names differ "
        "from host to"
        " host",
        fix="medley link show names this host's; then on this host: export NCCL_SOCKET_IFNAME=NAME",
        shapes=(
            shape("no socket interface found", r"Bootstrap : no socket interface found"),
            shape("no usable", r"no usable (?:socket )?interface"),
            shape("No interface found", r"No (?:IP )?interface found(?! in the same subnet)"),
        ),
    ),
    Known(
        "nccl-link-local",
        what="NCCL takes an interface that reaches no other host (a link-local address)",
        cause="{peer} is a link-local address: that interface has no other address",
        fix="medley link show names the wire; then on each host: export NCCL_SOCKET_IFNAME=NAME "
        "NCCL_SOCKET_FAMILY=AF_INET",
        shapes=(
            shape(
                "onnect",
                r"onnect\w* to (?P<peer>169\.254\.\d+\.\d+(?:<\d+>|:\d+)?).*(?:failed|returned|unreachable|r"
                r"oute)",
            ),
            shape(
                "Network is unreachable", r"(?P<peer>\[?fe80:[\w:%.-]+\]?(?:<\d+>)?).*Network is unreachable"
            ),
            shape(
                "onnect",
                r"onnect\w* to (?P<peer>\[?fe80:[\w:%.-]+\]?(?:<\d+>)?).*(?:failed|returned|unreachable)",
            ),
        ),
        quiet=True,
        over=(
            "nccl-connect",
            "host-unreachable",
        ),
    ),
    Known(
        "nccl-connect",
        what="a rank of NCCL does not reach another over TCP (connection refused or timed out)",
        cause="NCCL could not connect[ to {peer}]: {said}",
        fix="open every port between the hosts on the wire (medley ports --firewall ufw prints the "
        "rules), and see which"
        " wire they take: medley link show",
        shapes=(
            shape(
                "exceeded error retry count",
                r"(?P<call>socket\w+): connect(?: to (?P<peer>\S+))? returned (?P<said>[^,]+), exceeded erro"
                r"r retry count",
            ),
            shape(
                "onnect to ",
                rf"(?:ncclOsSocketPollConnect|[Cc]onnect)(?:ed)? to {_PEER}(?: on \S+)?"
                r" (?:failed(?: with error)? ?:? ?|returned )(?P<said>[^,(]+)",
            ),
        ),
        unless=re.compile(r"retrying|Operation now in progress"),
        confidence=MEDIUM,
        over=(
            "host-unreachable",
            "refused",
        ),
    ),
    Known(
        "nccl-same-gpu",
        what="two ranks were put on one GPU",
        cause="ranks {one} and {other} are both on the device at {device}: NCCL wants a GPU for each",
        fix="ask for as many ranks as there are GPUs: medley plan MODEL; unset CUDA_VISIBLE_DEVICES if it "
        "names one twice",
        shapes=(
            shape(
                "uplicate GPU",
                r"Duplicate GPU detected : rank (?P<one>\d+) and rank (?P<other>\d+) both on CUDA device "
                r"(?P<device>\w+)",
            ),
        ),
    ),
    Known(
        "nccl-versions",
        what="the hosts have unlike versions of NCCL",
        cause="[rank {one} has {mine} and rank {other} {theirs}]",
        fix="give all hosts one environment: medley env build on each (medley up compares them); with "
        "images, one tag",
        shapes=(
            shape(
                "Mismatched NCCL version",
                r"Mismatched NCCL version detected : rank (?P<one>\d+) version (?P<mine>\d+) rank "
                r"(?P<other>\d+) version (?P<theirs>\d+)",
            ),
            shape("ismatched NCCL version"),
        ),
    ),
    Known(
        "nccl-nvml-jetson",
        what="this NCCL cannot run on a Jetson",
        cause="NVML does not answer {call} there ({said}), and NCCL gives up",
        fix="take an NCCL made for Jetson: medley ray-head --nccl FILE, or an image that has one; see "
        "docs/containers.md",
        shapes=(
            shape("nvmlDeviceGetP2PStatus", r"(?P<call>nvmlDeviceGetP2PStatus)\S* failed: (?P<said>.+)"),
            shape(
                "nvmlDeviceGetHandleByPciBusId",
                r"(?P<call>nvmlDeviceGetHandleByPciBusId)\S* failed: (?P<said>Not Supported)",
            ),
        ),
    ),
    Known(
        "nccl-nvml",
        what="NCCL does not find this host's GPU where CUDA has it",
        cause="NVML says of its PCI address: {said}; so it is where a GPU is lent (WSL, a virtual machine, a "
        "container without all of NVML)",
        fix="nvidia-smi -L must show it in the same container: --gpus all; on WSL a newer driver and "
        "NCCL; one "
        "host with one GPU needs no NCCL: --tp 1 --pp 1",
        shapes=(
            shape(
                "nvmlDeviceGetHandleByPciBusId",
                r"nvmlDeviceGetHandleByPciBusId\S* failed: (?P<said>Not Found|Invalid Argument)",
            ),
        ),
    ),
    Known(
        "nccl-nvls",
        what="NCCL's NVLink SHARP does not work here",
        cause="the driver or fabric refuses multicast memory: {said}",
        fix="export NCCL_NVLS_ENABLE=0 on every host",
        shapes=(shape("nvls", r"transport/nvls\.cc.*(?P<said>Cuda failure .+|failed.*)"),),
    ),
    Known(
        "nccl-library",
        what="NCCL's library is not found",
        cause="libnccl.so.2 is in no place that this Python looks at",
        fix="medley env check proves the environment; medley env build makes it anew",
        shapes=(
            shape("Failed to load NCCL library", r"Failed to load NCCL library from (?P<file>\S+)"),
            shape("libnccl.so", r"libnccl\.so\S*: cannot open shared object file"),
        ),
        over=("library-missing",),
    ),
    Known(
        "nccl-unlike-ranks",
        what="ranks do not agree about what they send: unlike versions of NCCL, or unlike settings",
        cause="one sent {got} bytes where the other waited for {wanted}: they run other versions, layouts "
        "or settings",
        fix="start all ranks with the same flags and the same VLLM_/SGLANG_/NCCL_ variables: medley plan "
        "MODEL prints them",
        shapes=(
            shape(
                "Message truncated",
                r"Message truncated ?: received (?P<got>[\d,]+) bytes instead of (?P<wanted>[\d,]+)",
            ),
        ),
    ),
    Known(
        "nccl-lost",
        what="a rank lost the others (NCCL)",
        cause="NCCL says: {said}; why the other rank went stands in that rank's own log",
        fix="explain the logs of all hosts together: medley explain HOST-1.log HOST-2.log",
        shapes=(
            shape("NCCL error", r"NCCL error(?: in: \S+)?[:,] ?(?P<said>[^\n]{0,160})"),
            shape("ncclRemoteError", r"(?P<said>ncclRemoteError[^\n]{0,120})"),
            shape("ncclSystemError", r"(?P<said>ncclSystemError[^\n]{0,120})"),
            shape(
                "remote process exited or there was a network error",
                r"(?P<said>remote process exited or there was a network error)",
            ),
            shape(
                "Connection closed by remote peer", r"(?P<said>Connection closed by remote peer[^\n]{0,80})"
            ),
            shape("Failed to execute operation", r"(?P<said>Failed to execute operation \w+ from rank \d+)"),
            shape("communicator was aborted", r"(?P<said>NCCL communicator was aborted[^\n]{0,60})"),
            shape("unhandled cuda error", r"(?P<said>unhandled cuda error[^\n]{0,80})"),
            shape("Got completion", r"(?P<said>Got completion .*status=(?:\w+\()?5\b)"),
        ),
        confidence=LOW,
        symptom=True,
    ),
    Known(
        "nccl-waits",
        what="NCCL's watchdog: a collective timed out, a rank waited in vain for the others",
        cause="{operation} did not end within {limit} ms: one rank is gone, slow, or waits elsewhere",
        fix="explain the logs of all hosts together: medley explain HOST-1.log HOST-2.log; if none has an "
        "error, test the"
        " wire: medley collective-test",
        shapes=(
            shape(
                "collective operation timeout",
                r"Watchdog caught collective operation timeout: "
                r"WorkNCCL\((?:.*?OpType=(?P<operation>\w+))?(?:.*?Timeout\(ms\)=(?P<limit>\d+))?",
            ),
            shape("Received a dump signal", r"Received a dump signal"),
            shape("stuck", r"watchdog thread (?:got stuck|terminated)"),
        ),
        confidence=LOW,
        symptom=True,
    ),
)
