"""The rules: everything that the doctor looks at, in the order in which it tells it."""

from collections.abc import Iterator

from medley.doctor import group_rules, host_rules
from medley.doctor.shapes import Case, Check, Rule

RULES: tuple[Rule, ...] = (*group_rules.RULES, *host_rules.RULES)

GUIDES: tuple[tuple[str, str], ...] = (
    ("a Ray worker cannot connect to the head", "`firewall`, `reach`, `ports`"),
    (
        "NCCL times out while a model loads",
        "`reach`, `gid`, `mtu`, `rdma-libraries`; `medley collective-test` runs one",
    ),
    ("placement group errors; an actor is not placed", "`address`, `by-hand`, `versions`; `medley status`"),
    ("out of memory while a 72B model loads", "`model` with `--model`, `memory`"),
    ("ssh: connection refused", "`answers`"),
    ("a container has no RDMA", "`devices`; medley passes /dev/infiniband to images by itself"),
    ("wrong address in the Ray cluster", "`address`, `by-hand`, `one-subnet`, `twice`"),
    ("slow: NCCL takes the wrong interface", "`wire`, `by-hand`, `way`, `half-cage`, `pcie`"),
    ("NCCL: wrong type 3 != 4", "`wire`: one transport for all, so it cannot happen here; `rdma-libraries`"),
    ("Gloo: connection refused at 127.0.0.1", "`name`; medley tells Gloo the interface"),
    ("no kernel image is available", "`kernels`"),
    ("ptxas fatal: Value 'sm_110a' is not defined", "`ptxas`"),
    ("out of memory in torch.compile or graph capture", "`memory`, `guard`, `swap`"),
    ("free memory is less than desired", "`page-cache`, `gpu-memory`, `gpu-users`"),
    (
        "NCCL: network is unreachable at fe80::",
        "`by-hand`; medley names interfaces that have an IPv4 address",
    ),
    ("address already in use", "`ports`, `leftovers`"),
    ("Ethernet between Jetsons is slow", "`wire` says its speed; `medley link test` measures it"),
)
"""What the guides' own troubleshooting names, and the rules that look at it."""


def checks(case: Case) -> Iterator[tuple[Rule, Check]]:
    """All of them, by rule and then by host."""
    for rule in RULES:
        yield from ((rule, check) for check in rule.look(case))
