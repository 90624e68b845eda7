"""A kind of host is the table in hosts/ all of whose signs this host bears."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from medley.facts import Facts
from medley.facts.gpu import Gpu
from medley.problem import Problem

if TYPE_CHECKING:  # pydantic is slow to import, and a host's table is only read here
    from medley.tables import Host

_GPU_TROUBLE = (
    # what nvidia-smi says, what helps
    ("version mismatch", "reboot: the driver was upgraded under a running kernel module (sudo reboot)"),
    ("gave no answer", "look for NVRM and Xid lines in `sudo dmesg`, then: sudo reboot"),
    (
        "No devices were found",
        "look for NVRM lines in `sudo dmesg`; the module found no GPU that it can start",
    ),
    (
        "couldn't communicate",
        "load the module (sudo modprobe nvidia), or reinstall the driver for this kernel",
    ),
)


@dataclass(frozen=True)
class Kind:
    name: str
    host: "Host"
    why: str
    warning: str | None = None
    """What the user should know about this choice."""


@dataclass(frozen=True)
class _Sign:
    wanted: str
    holds: bool
    any_gpu: bool = False


def kind(facts: Facts, hosts: Mapping[str, "Host"]) -> Kind:
    """The kind with the most signs, all of which hold; a Problem where none or two would do."""
    _check_driver(facts)
    signs = {name: tuple(_signs(facts, host)) for name, host in hosts.items()}
    fitting = [
        name for name in hosts if facts.system in hosts[name].systems and all(s.holds for s in signs[name])
    ]
    if facts.is_jetson:
        # To nvidia-smi its GPU is like any other, but its system runs nothing that is built for others.
        fitting = [name for name in fitting if hosts[name].recognise.soc]
    weight = {name: _weight(signs[name]) for name in fitting}
    best = [name for name in fitting if weight[name] == max(weight.values())]
    match best:
        case [name]:
            return Kind(name, hosts[name], _why(facts, signs[name]), _warning(facts, hosts[name]))
        case []:
            raise _none(facts, hosts)
        case _:
            raise _several(best)


def gpu_memory_bytes(gpu: Gpu, host: "Host", facts: Facts) -> int | None:
    """A GPU's memory: its own, or the host's where the two share it."""
    return gpu.memory_bytes or (facts.memory.total_bytes if host.memory.unified else None)


def gpu_capability(gpu: Gpu, host: "Host") -> str | None:
    """As the driver says, or as the kind's table does where the driver does not."""
    return gpu.capability or host.capability


def _signs(facts: Facts, host: "Host") -> Iterator[_Sign]:
    wanted = host.recognise
    if wanted.system:
        yield _Sign(f"system {wanted.system}", facts.system == wanted.system)
    if wanted.soc:
        yield _Sign(f"SoC {wanted.soc}", facts.board.soc == wanted.soc)
    if wanted.l4t:
        major = facts.board.l4t.major if facts.board.l4t else None
        yield _Sign(f"L4T r{' or r'.join(wanted.l4t)}", major in wanted.l4t)
    if wanted.gpu is not None:
        # Every GPU, because the toolchain is built for one sort: a mixed host is no `rtx`.
        named = bool(facts.gpus) and all(_has_word(gpu.name, wanted.gpu) for gpu in facts.gpus)
        yield _Sign(f"GPU {wanted.gpu or 'of NVIDIA'}", named, any_gpu=not wanted.gpu)
    if wanted.capability:
        capable = bool(facts.gpus) and all(gpu.capability in wanted.capability for gpu in facts.gpus)
        yield _Sign(f"capability {' or '.join(wanted.capability)}", capable)


def _has_word(name: str, word: str) -> bool:
    """A whole word, for GB10 is also how GB100 begins; the empty word is in every name."""
    return not word or word in name.replace("(", " ").replace(")", " ").split()


def _weight(signs: tuple[_Sign, ...]) -> tuple[int, int]:
    """More signs win; that it is some NVIDIA GPU counts after every particular one."""
    return sum(not sign.any_gpu for sign in signs), len(signs)


def _why(facts: Facts, signs: tuple[_Sign, ...]) -> str:
    seen = ", ".join(sign.wanted for sign in signs) or "no sign of a usable NVIDIA GPU"
    names = " and ".join(gpu.name for gpu in facts.gpus)
    return f"{seen} ({names})" if names and signs else seen


def _warning(facts: Facts, host: "Host") -> str | None:
    said = facts.driver.error
    if host.device != "cpu":
        return said and f"nvidia-smi says: {said}"
    if facts.driver.cards:
        return (
            f"the NVIDIA GPU at {', '.join(facts.driver.cards)} is not used: there is no nvidia-smi on PATH"
        )
    return said and f"nvidia-smi is installed, but there is no NVIDIA GPU: {said}"


def _check_driver(facts: Facts) -> None:
    """A GPU that is there and does not answer is no reason to go on with the CPU unasked."""
    driver = facts.driver
    if facts.gpus or not (driver.installed and driver.error and driver.has_hardware):
        return
    fixes = (fix for trouble, fix in _GPU_TROUBLE if trouble.lower() in (driver.error or "").lower())
    loaded = f"; the loaded module is {driver.version}" if driver.version else ""
    raise Problem(
        "this host's NVIDIA GPU does not answer",
        cause=driver.error + loaded,
        fix=next(fixes, "run nvidia-smi, and mend what it says"),
    )


def _none(facts: Facts, hosts: Mapping[str, "Host"]) -> Problem:
    if not facts.is_jetson:
        return Problem(
            "no kind of host is like this one",
            cause=f"it is {facts.system}; hosts/ has {', '.join(hosts) or 'no table'}",
            fix="add a table for it in ~/.config/medley/hosts (medley check validates it)",
        )
    known = [
        f"{name} is {host.recognise.soc} with {_releases(host)}"
        for name, host in hosts.items()
        if host.recognise.soc
    ]
    return Problem(
        f"no kind of host is a Jetson with {facts.board.soc or 'an unseen SoC'} and {_release(facts)}",
        cause="; ".join(known) or "hosts/ has no Jetson",
        fix=_jetson_fix(facts),
    )


def _releases(host: "Host") -> str:
    return f"L4T r{' or r'.join(host.recognise.l4t)}" if host.recognise.l4t else "any L4T"


def _release(facts: Facts) -> str:
    return f"L4T {facts.board.l4t.release}" if facts.board.l4t else "no /etc/nv_tegra_release"


def _jetson_fix(facts: Facts) -> str:
    if facts.board.soc is None and facts.software.container:
        return "run medley outside of the container, which hides /proc/device-tree and /etc/nv_tegra_release"
    return "move it to a release above, or add a table for it in ~/.config/medley/hosts"


def _several(names: list[str]) -> Problem:
    tables = ", ".join(f"hosts/{name}.toml" for name in names)
    return Problem(
        f"this host could be {' or '.join(names)}",
        cause="these tables have equally many signs, and all of them hold",
        fix=f"give one of them a further sign under [recognise]: {tables}",
    )
