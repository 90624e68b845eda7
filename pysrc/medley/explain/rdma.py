"""RDMA as NCCL sees it: GIDs that reach nobody, transfers that are not answered, ports that fail."""

from medley.explain.known import Known, shape

KNOWN = (
    Known(
        "nccl-rdma-connect",
        what="RDMA cannot reach the other host: a wrong GID index, or rails that are not connected",
        cause="ibv_modify_qp failed: {said}[ on {dev}][, local GID index {index}][ ({gid})]: that GID is "
        "not one by which the peer is "
        "reached",
        fix="medley link show says which devices share a network; leave NCCL_IB_GID_INDEX unset, name the "
        "devices that"
        " reach each other in NCCL_IB_HCA, and NCCL_CROSS_NIC=0 where rails are apart",
        shapes=(
            shape(
                "ibv_modify_qp",
                r"ibv_modify_qp\w* failed with (?:error )?(?P<said>[^(,\n]+)(?:, on dev (?P<dev>[^\s,]+))?"
                r"(?:.*?local GID index (?P<index>\d+))?(?:.*?local GID (?P<gid>[\da-fA-F:.]+))?",
            ),
            shape("ibv_modify_qp", r"ibv_modify_qp\w* failed.*?(?P<said>(?:errno|error) \d+[^,]*|timed out)"),
            shape("o valid GID", r"(?P<said>[Nn]o valid GID[^\n]{0,80})"),
            shape("ibv_query_gid", r"(?P<said>Call to ibv_query_gid\w* failed[^\n]{0,60})"),
        ),
    ),
    Known(
        "nccl-rdma-lost",
        what="an RDMA transfer to another host failed (retries exceeded, IBV_WC_RETRY_EXC_ERR)",
        cause="[{peer}: ]the other host did not answer (status {status}[ {name}]): a cable, a switch or "
        "the host behind it "
        "is gone, or flow"
        " control drops packets",
        fix="look at the errors of the wire on both hosts: medley link watch; then measure it: medley "
        "link test HOST",
        shapes=(
            shape(
                "Got completion",
                r"Got completion (?:with error|from peer (?P<peer>\S+)).*?status=(?:(?P<name>\w+)\()?(?P<s"
                r"tatus>12|13|10|4|9)\b",
            ),
            shape(
                "Got completion",
                r"Got completion(?: from peer (?P<peer>\S+))? with error (?P<status>12|13|10|4|9), opcode",
            ),
        ),
    ),
    Known(
        "nccl-rdma-port",
        what="an RDMA port failed while it was in use",
        cause="{port}: {event}",
        fix="see the cable and the other end: medley link watch; sudo dmesg | grep -i 'link down'",
        shapes=(
            shape(
                "async event",
                r"NET/IB ?: (?P<port>\S+) Got (?:non-fatal )?async event ?: (?P<event>port error|device "
                r"fatal\w*|device error)",
            ),
            shape(
                "async fatal event",
                r"NET/IB ?: (?P<port>\S+) (?:Got )?async fatal event(?: on \w+[^:]*)?: (?P<event>.+)",
            ),
        ),
    ),
    Known(
        "nccl-rdma-kinds",
        what="the RDMA devices of two hosts are of unlike kinds",
        cause="NCCL will not join an InfiniBand port with a RoCE port",
        fix="name only devices of one kind on every host: NCCL_IB_HCA=…; medley link show lists them",
        shapes=(shape("incompatible devices"), shape("incompatible with the local")),
    ),
)
