"""Complaints are what users of other launchers on these hosts have reported: each has a rule, or a reason.

The rules name them by number, in `Rule.complaints`.
"""

COMPLAINTS: dict[int, str] = {
    1: "a second fast port leads to a PC, and is used as if it led to the other host",
    2: "two ports of a host are in one subnet, and answer for each other",
    3: "the search for hosts is slow, or hangs",
    4: "one host alone does not start, because it has no RDMA",
    5: "Ray waits for a host by an address that it knows the host not by",
    6: "the cable is in another port on each host, and the head's variables are taken on both",
    7: "without the internet the interface is guessed, and is eth0",
    8: "the RoCE GID has another index on each host, or moves when the link falls",
    9: "it hangs when NCCL begins: one GPU is busy, the other idle",
    10: "NCCL says `wrong type 3 != 4`, or hangs: one rank takes RDMA, the other TCP",
    11: "the GPU's free memory is less than desired, though nothing runs",
    12: "the host freezes, and ssh with it, when unified memory is full",
    13: "the head gives no answer in time (`sample_tokens`) while its memory is nearly full",
    14: "`ray: command not found` in newer images",
    15: "the hosts have different versions of Ray or Python",
    16: "more ranks are asked for than there are GPUs",
    17: "a nightly build of the engine does not run",
    18: "a Jetson Thor is not known, and is told that it cannot join others",
    19: "the hosts have different images or engines",
    20: "it does not reach the speed that others publish",
    21: "three cores are fully busy while nobody asks anything",
    22: "the port that a template names is down",
    23: "half the speed: one half of the port has no address, or the card has two PCIe lanes",
    24: "the GPU's clock is held down, and costs a third of the speed",
    25: "a desktop holds the GPU's memory on a new host",
}

UNCHECKED: dict[int, str] = {
    3: "hosts are named and asked at once, each with a limit: nothing is scanned",
    13: "a head's Ray has 1 GiB of object store here; what is left beside it is `memory`",
    17: "engines come from hashed locks and are kept until `medley env clean`",
    21: "seen while it idles, not before: `medley status`; without Ray nothing spins (`--launcher mp`)",
}
"""Those that no check can answer before something runs, and what keeps them from coming up."""
