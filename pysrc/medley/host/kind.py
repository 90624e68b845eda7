"""Which kind of host (hosts/*.toml) this is; ask this host."""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path

from medley import config, process, transcript
from medley.errors import Problem, in_words
from medley.host import facts
from medley.host.facts import Facts
from medley.host.facts.gpu import Gpu
from medley.host_schema import HostTable, Image
from medley.transcript import Transcript

_GPU_TROUBLE = {
    "version mismatch": "reboot: the driver was upgraded under a running kernel module (sudo reboot)",
    "gave no answer": "look for NVRM and Xid lines in `sudo dmesg`, then: sudo reboot",
    "no devices were found": "look for NVRM lines in `sudo dmesg`; the module found no GPU that it can start",
    "couldn't communicate": "load the module (sudo modprobe nvidia), or reinstall the driver for this kernel",
}
"""By what nvidia-smi says, what helps."""


@dataclass(frozen=True)
class Kind:
    name: str
    host: HostTable
    why: str
    warning: str | None = None
    """What the user should know about this choice."""
    no_image: str | None = None
    """Why no image of this kind runs on this host, where its kind has some."""


@dataclass(frozen=True)
class _Sign:
    wanted: str
    holds: bool
    any_gpu: bool = False


def match_kind(facts: Facts, hosts: Mapping[str, HostTable]) -> Kind:
    """The kind with the most signs, all of which hold; a Problem where none or two would do."""
    _check_driver(facts)
    signs = {name: tuple(_signs(facts, host)) for name, host in hosts.items() if facts.system in host.systems}
    # To nvidia-smi a Jetson's GPU is like any other, but its system runs nothing that is built for others.
    # More signs win; that it is some NVIDIA GPU counts after every particular one.
    weight = {
        name: (sum(not sign.any_gpu for sign in each), len(each))
        for name, each in signs.items()
        if all(sign.holds for sign in each) and (hosts[name].recognise.soc or not facts.is_jetson)
    }
    best = [name for name in weight if weight[name] == max(weight.values())]
    if not best:
        raise _none(facts, hosts)
    if len(best) > 1:
        raise Problem(
            f"this host could be {' or '.join(best)}",
            cause="these tables have equally many signs, and all of them hold",
            fix="add a sign to one of them: " + ", ".join(f"hosts/{name}.toml" for name in best),
        )
    why = ", ".join(sign.wanted for sign in signs[best[0]])
    names = " and ".join(gpu.name for gpu in facts.gpus)
    why = f"{why} ({names})" if names and why else why or "no sign of a usable NVIDIA GPU"
    host, no_image = _with_image(hosts[best[0]], facts)
    return Kind(best[0], host, why, _warning(facts, host), no_image)


def table_of(facts: Facts) -> HostTable | None:
    """Return the table of the host's kind, shipped or the user's; None for a host of no kind."""
    with suppress(Problem):
        return match_kind(facts, _tables(config.folders())).host
    return None


@cache
def _tables(_: tuple[Path, ...]) -> Mapping[str, HostTable]:
    return config.hosts()


def has_gpudirect(facts: Facts) -> bool:
    """Whether the host's GPUs may have GPUDirect RDMA: no table has a word against one of them."""
    table = table_of(facts)
    words = table.network.no_gpudirect if table else ()
    return not any(word in gpu.name for word in words for gpu in facts.gpus)


def _with_image(host: HostTable, facts: Facts) -> tuple[HostTable, str | None]:
    """Return the table with the newest image that this host's L4T runs, or why there is none.

    An image for a newer L4T ends with "device kernel image is invalid" (jetson-containers issue 1655).
    """
    images, l4t = (host.container, *host.container.older), facts.board.l4t
    if l4t is None or host.container.l4t is None:
        return host, None
    release = (int(l4t.major), *_numbers(l4t.revision))
    oldest = min(_numbers(each.l4t) for each in images if each.l4t)
    found = next((each for each in images if _numbers(each.l4t or "") <= release), Image())
    values = found.model_dump() | {"nvidia_runtime": host.container.nvidia_runtime, "older": ()}
    fitted = host.model_copy(update={"container": host.container.model_copy(update=values)})
    if found.image:
        return fitted, None
    needs = ".".join(map(str, oldest))
    return fitted, f"its images need L4T {needs} or later, and this host has {l4t.release.removeprefix('r')}"


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))


def gpu_memory_bytes(gpu: Gpu, host: HostTable | None, facts: Facts) -> int | None:
    """A GPU's memory: its own, or the host's where its kind is known to share it."""
    return gpu.memory_bytes or (facts.memory.total_bytes if host and host.memory.unified else None)


def gpu_capability(gpu: Gpu, host: HostTable | None) -> str | None:
    """As the driver says, or as the kind's table does where the driver does not."""
    return gpu.capability or (host.capability if host else None)


def _signs(facts: Facts, host: HostTable) -> Iterator[_Sign]:
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
        # A whole word, for GB10 is also how GB100 begins; the empty word is in every name.
        words = [re.sub(r"[()]", " ", gpu.name).split() for gpu in facts.gpus]
        named = bool(words) and all(not wanted.gpu or wanted.gpu in each for each in words)
        yield _Sign(f"GPU {wanted.gpu or 'of NVIDIA'}", named, any_gpu=not wanted.gpu)
    if wanted.capability:
        capable = bool(facts.gpus) and all(gpu.capability in wanted.capability for gpu in facts.gpus)
        yield _Sign(f"capability {' or '.join(wanted.capability)}", capable)


def _warning(facts: Facts, host: HostTable) -> str | None:
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
    fixes = (fix for trouble, fix in _GPU_TROUBLE.items() if trouble in driver.error.lower())
    loaded = f"; the loaded module is {driver.version}" if driver.version else ""
    raise Problem(
        "this host's NVIDIA GPU does not answer",
        cause=driver.error + loaded,
        fix=next(fixes, "nvidia-smi  # then fix what it reports"),
    )


def _none(facts: Facts, hosts: Mapping[str, HostTable]) -> Problem:
    if not facts.is_jetson:
        return Problem(
            "no kind of host is like this one",
            cause=f"it is {facts.system}; hosts/ has {', '.join(hosts) or 'no table'}",
            fix="add a table for it in ~/.config/medley/hosts (medley check validates it)",
        )
    known = [
        f"{name} is {host.recognise.soc} with "
        + (f"L4T r{' or r'.join(host.recognise.l4t)}" if host.recognise.l4t else "any L4T")
        for name, host in hosts.items()
        if host.recognise.soc
    ]
    board = facts.board
    release = f"L4T {board.l4t.release}" if board.l4t else "no /etc/nv_tegra_release"
    return Problem(
        f"no kind of host is a Jetson with {board.soc or 'an unseen SoC'} and {release}",
        cause="; ".join(known) or "hosts/ has no Jetson",
        fix="run medley outside of the container, which hides /proc/device-tree and /etc/nv_tegra_release"
        if board.soc is None and facts.software.container
        else "move it to a release above, or add a table for it in ~/.config/medley/hosts",
    )


def answers(file: str | None = None) -> Transcript:
    """What this host answers now, or what a recorded one answered."""
    if file is None:
        return process.ask(facts.QUESTIONS)
    try:
        return transcript.parse(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=in_words(error),
            fix="name a file that medley facts --transcript wrote",
        ) from error
    except Problem as problem:
        raise Problem(f"{file} is not a transcript", cause=problem.cause, fix=problem.fix) from problem


def recognise(named: str | None = None, said: Transcript | None = None) -> tuple[facts.Facts, Kind]:
    """The facts of this host, asked now unless given, and its kind; `named` takes one on the user's word."""
    found = facts.facts(answers() if said is None else said)
    return found, kind_of(found, named)


def kind_of(found: facts.Facts, named: str | None = None) -> Kind:
    """The kind that these facts make a host, or that somebody says it is."""
    hosts = config.hosts()
    if named is None:
        return match_kind(found, hosts)
    if named not in hosts:
        near = get_close_matches(named.lower(), hosts, 1)
        raise Problem(
            f"there is no kind of host {named!r}",
            cause=f"the kinds are {', '.join(hosts)}",
            fix=f"write {near[0]!r} instead" if near else "leave it out: the host is recognized by itself",
        )
    host = hosts[named]
    if host.device == "cuda" and not found.gpus:
        raise Problem(
            f"this host cannot be {named}",
            cause=f"it needs an NVIDIA GPU, and nvidia-smi shows none: {found.driver.error or 'not found'}",
            fix="nvidia-smi  # then fix what it reports; or name the kind cpu",
        )
    host, no_image = _with_image(host, found)
    return Kind(named, host, "as --kind says", no_image=no_image)


def facts_of(files: Sequence[str]) -> Iterator[tuple[str, Facts]]:
    """Each file's facts, by its name; with no file, this host's."""
    for file in files or (None,):
        yield file or platform.node(), facts.facts(answers(file))


def answers_by_host(files: Iterable[str]) -> dict[str, Transcript]:
    """What the hosts of these transcripts answered, each called after its file; with no file, this host.

    A number follows where two would be called alike.
    """
    named: dict[str, Transcript] = {}
    for file in files:
        name = first = Path(file).stem
        number = 1
        while name in named:
            number += 1
            name = f"{first}-{number}"
        named[name] = answers(file)
    return named or {platform.node(): answers()}


def facts_by_host(files: Iterable[str]) -> dict[str, Facts]:
    """The same as facts."""
    return {name: facts.facts(said) for name, said in answers_by_host(files).items()}
