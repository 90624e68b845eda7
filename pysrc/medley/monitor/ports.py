"""The counters of RDMA ports as drivers name them, and what each says of the wire."""

from collections.abc import Mapping

# port_rcv_data and port_xmit_data count words of 32 bits (InfiniBand's PortCounters), mlx5's of RoCE too.
WORD_BYTES = 4
WORDS = {"port_rcv_data": "rx_bytes", "port_xmit_data": "tx_bytes"}

# https://docs.kernel.org/admin-guide/abi-stable.html (sysfs-class-infiniband) and, of hw_counters, NVIDIA's
# "Understanding mlx5 Linux counters": of each what it is a sign of.
BAD: Mapping[str, str] = {
    "symbol_error": "cable",
    "link_error_recovery": "cable",
    "link_downed": "cable",
    "local_link_integrity_errors": "cable",
    "excessive_buffer_overrun_errors": "congestion",
    "port_rcv_errors": "cable",
    "port_rcv_remote_physical_errors": "cable",
    "port_rcv_constraint_errors": "switch",
    "port_xmit_constraint_errors": "switch",
    "port_xmit_discards": "congestion",
    "VL15_dropped": "congestion",
    "out_of_buffer": "receiver",
    "out_of_sequence": "loss",
    "duplicate_request": "loss",
    "packet_seq_err": "loss",
    "implied_nak_seq_err": "loss",
    "local_ack_timeout_err": "loss",
    "rnr_nak_retry_err": "receiver",
    "roce_adp_retrans": "loss",
    "roce_adp_retrans_to": "loss",
    "roce_slow_restart": "congestion",
    "rx_icrc_encapsulated": "cable",
    "np_cnp_sent": "congestion",
    "np_ecn_marked_roce_packets": "congestion",
    "rp_cnp_handled": "congestion",
}
FOLDERS = ("counters", "hw_counters")


def counters(said: Mapping[str, str]) -> dict[str, int]:
    """Of the files' texts by name; data in bytes, and only counters that we know."""
    found = {}
    for name, text in said.items():
        count = text.strip()
        if count.isdecimal() and len(count) <= 20:  # noqa: PLR2004 - digits of 2**64
            if name in WORDS:
                found[WORDS[name]] = int(count) * WORD_BYTES
            elif name in BAD:
                found[name] = int(count)
    return found
