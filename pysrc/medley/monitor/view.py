"""A view is what is shown of all hosts: a few tables, the same for a terminal and for a browser."""

from collections.abc import Iterator, Mapping

from medley.monitor import devices
from medley.monitor.cells import NOTHING, Cell, Column, Row, Table, memory, share
from medley.monitor.rates import Rates
from medley.monitor.sample import Ray
from medley.monitor.watching import Seen
from medley.picture import printable

_OLD_S = 10


def tables(seen: Mapping[str, Seen]) -> tuple[Table, ...]:
    """Those that have something to show."""
    told = {name: each.rates for name, each in seen.items() if each.rates and not each.problem}
    made = (
        Table("hosts", _HOSTS, tuple(_host(name, each) for name, each in seen.items()), urgent=True),
        Table("engines", devices.ENGINES, tuple(devices.engines(told)), urgent=True),
        Table("gpus", devices.GPUS, tuple(devices.gpus(told))),
        Table("links", devices.LINKS, tuple(devices.links(told))),
        Table("rdma ports", devices.PORTS, tuple(devices.ports(told))),
        Table("troubles", _TROUBLES, tuple(_troubles(seen)), urgent=True),
    )
    return tuple(each for each in made if each.rows)


def title(seen: Mapping[str, Seen], every_s: float) -> str:
    silent = sum(each.problem is not None for each in seen.values())
    hosts = f"{len(seen)} host{'s' if len(seen) > 1 else ''}"
    told = f", {silent} of them without an answer" if silent else ""
    return f"medley top: {hosts}{told}; every {every_s:g} s"


_HOSTS = (
    Column("host"),
    Column("cpu", right=True),
    Column("load", right=True, rank=3),
    Column("memory in use", right=True),
    Column("gpu memory", rank=1),
    Column("ray"),
    Column("seen", right=True, rank=2),
)


def _host(name: str, each: Seen) -> Row:
    """Of one that does not answer now its last values are dim, beside their age."""
    shown, age = Cell(printable(name), "bad" if each.problem else ""), _age(each)
    if each.rates is None:
        state = Cell("no answer", "bad") if each.problem else Cell("asked", "dim")
        return (shown, state, NOTHING, NOTHING, NOTHING, NOTHING, age)
    found = each.rates
    cells: Row = (
        share(found.cpu_busy),
        Cell(f"{found.load:.1f}/{found.threads}") if found.load is not None else NOTHING,
        memory(found.memory.total_bytes - found.memory.available_bytes, found.memory.total_bytes, warns=True),
        _gpu_memory(found),
        _ray(found.ray),
    )
    if each.problem:
        cells = (Cell(f"silent {each.age_s:.0f} s", "bad"), *(Cell(cell.text, "dim") for cell in cells[1:]))
    return (shown, *cells, age)


def _age(each: Seen) -> Cell:
    if each.age_s is None:
        return Cell("never", "bad" if each.problem else "dim")
    return Cell(f"{each.age_s:.0f} s ago", "bad" if each.problem or each.age_s > _OLD_S else "")


def _gpu_memory(found: Rates) -> Cell:
    if found.unified:
        return Cell("the same: one pool")
    own = [gpu for gpu in found.gpus if gpu.memory_total_bytes]
    if not own:
        return Cell("no GPU answers", "bad") if found.gpus_silent else Cell("no GPU", "dim")
    used = sum(gpu.memory_used_bytes or 0 for gpu in own)
    return memory(used, sum(gpu.memory_total_bytes or 0 for gpu in own))


def _ray(ray: Ray | None) -> Cell:
    if ray is None:
        return NOTHING
    if not ray.alive:
        return Cell(f"{ray.role}, gone", "bad")
    slots = f", {ray.taken:g} of {ray.slots:g}" if ray.slots is not None and ray.taken is not None else ""
    return Cell(f"{ray.role}{slots}", "good")


_TROUBLES = (Column("trouble"), Column("what, and what to do", wraps=True))


def _troubles(seen: Mapping[str, Seen]) -> Iterator[Row]:
    for host, each in seen.items():
        name = Cell(printable(host), "bad")
        if each.problem:
            yield (
                name,
                Cell(printable(f"{each.problem.what}: {each.problem.cause}; {each.problem.fix}"), "bad"),
            )
        if each.rates and each.rates.gpus_silent:
            yield (name, Cell(printable(each.rates.gpus_silent), "bad"))
        for served in each.rates.engines if each.rates else ():
            if served.silent:
                yield (name, Cell(printable(f"{served.model}: {served.silent}"), "warn"))
        if each.rates and each.rates.ray and not each.rates.ray.alive:
            yield (name, Cell("its Ray is gone: medley status says more", "bad"))
