"""Detect the kind of a host (hosts/*.toml); read the answers of this host or of a transcript."""

import platform
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import NamedTuple

from medley import config, process, transcript
from medley.command import quote_path
from medley.errors import Problem, describe_error
from medley.host import facts
from medley.host.facts import Facts
from medley.host.facts.gpu import Gpu
from medley.host.kind_image import choose_image
from medley.host_schema import HostTable
from medley.transcript import Transcript
from medley.values import Value

_FIX_BY_MESSAGE = {
    "version mismatch": "reboot: the driver was upgraded under a running kernel module (sudo reboot)",
    "gave no answer": "look for NVRM and Xid lines in `sudo dmesg`, then: sudo reboot",
    "no devices were found": "look for NVRM lines in `sudo dmesg`; the module found no GPU that it can start",
    "couldn't communicate": "load the module (sudo modprobe nvidia), or reinstall the driver for this kernel",
}
"""The fix for each message of nvidia-smi, by a part of the message."""


class Kind(Value):
    """The kind of a host, with its table as it holds for this host."""

    name: str
    table: HostTable
    why: str
    warning: str | None = None
    """The text to print with this choice."""
    no_image_reason: str | None = None
    """The reason why no image of this kind runs on this host, if the kind has images."""


class SiteHost(NamedTuple):
    """A host that a model may run on: its facts, and the kind with these facts."""

    facts: Facts
    kind: Kind


class _KindSign(Value):
    """A property that the table of a kind requires."""

    text: str
    is_met: bool
    is_any_gpu: bool = False


def match_kind(facts: Facts, tables: Mapping[str, HostTable]) -> Kind:
    """Return the kind with the most signs, all of which hold; raise a Problem without one, or with two."""
    _require_answering_gpu(facts)
    signs = {
        name: tuple(_list_signs(facts, table))
        for name, table in tables.items()
        if facts.system in table.systems
    }
    scores: dict[str, tuple[int, int]] = {}
    for name, kind_signs in signs.items():
        # nvidia-smi shows a Jetson's GPU like any other, but its system runs nothing built for others.
        is_possible = bool(tables[name].recognise.soc) or not facts.is_jetson
        if is_possible and all(sign.is_met for sign in kind_signs):
            # More signs win; the sign of any NVIDIA GPU counts after every particular one.
            scores[name] = (sum(not sign.is_any_gpu for sign in kind_signs), len(kind_signs))
    best = [name for name in scores if scores[name] == max(scores.values())]
    if not best:
        raise _build_missing_kind_problem(facts, tables)
    if len(best) > 1:
        raise Problem(
            f"this host could be {' or '.join(best)}",
            cause="these tables have equally many signs, and all of them hold",
            fix="add a sign to one of them: " + ", ".join(f"hosts/{name}.toml" for name in best),
        )
    why = ", ".join(sign.text for sign in signs[best[0]])
    names = " and ".join(gpu.name for gpu in facts.gpus)
    if not why:
        why = "no sign of a usable NVIDIA GPU"
    elif names:
        why = f"{why} ({names})"
    table, no_image = choose_image(tables[best[0]], facts)
    return Kind(best[0], table, why, _find_warning(facts, table), no_image)


def find_table(facts: Facts) -> HostTable | None:
    """Return the table of the host's kind, shipped or the user's; None for a host of no kind."""
    with suppress(Problem):
        return match_kind(facts, _load_tables(config.list_config_folders())).table
    return None


@cache
def _load_tables(_: tuple[Path, ...]) -> Mapping[str, HostTable]:
    """Load the tables; their folders are only the cache's key, because MEDLEY_CONFIG may change them."""
    return config.load_hosts()


def has_gpudirect(facts: Facts) -> bool:
    """Return whether the host's GPUs may have GPUDirect RDMA: its table excludes none of them."""
    table = find_table(facts)
    words = table.network.no_gpudirect if table else ()
    return not any(word in gpu.name for word in words for gpu in facts.gpus)


def find_gpu_memory_bytes(gpu: Gpu, table: HostTable | None, facts: Facts) -> int | None:
    """Return a GPU's bytes of memory: its own, or the host's if its kind shares it; None if unknown."""
    return gpu.memory_bytes or (facts.memory.total_bytes if table and table.memory.unified else None)


def find_gpu_capability(gpu: Gpu, table: HostTable | None) -> str | None:
    """Return a GPU's compute capability from the driver, else from the kind's table; None if unknown."""
    return gpu.capability or (table.capability if table else None)


def _list_signs(facts: Facts, table: HostTable) -> Iterator[_KindSign]:
    required = table.recognise
    if required.system:
        yield _KindSign(f"system {required.system}", facts.system == required.system)
    if required.soc:
        yield _KindSign(f"SoC {required.soc}", facts.board.soc == required.soc)
    if required.l4t:
        major = facts.board.l4t.major if facts.board.l4t else None
        yield _KindSign(f"L4T r{' or r'.join(required.l4t)}", major in required.l4t)
    if required.gpu is not None:
        # Every GPU, because the toolchain is built for one sort: a mixed host is no `rtx`.
        # A whole word, because GB100 begins with GB10. `gpu = ""` in a table stands for any NVIDIA GPU.
        names = [re.sub(r"[()]", " ", gpu.name).split() for gpu in facts.gpus]
        has_gpu = bool(names) and all(not required.gpu or required.gpu in words for words in names)
        yield _KindSign(f"GPU {required.gpu or 'of NVIDIA'}", has_gpu, is_any_gpu=not required.gpu)
    if required.capability:
        capable = bool(facts.gpus) and all(gpu.capability in required.capability for gpu in facts.gpus)
        yield _KindSign(f"capability {' or '.join(required.capability)}", capable)


def _find_warning(facts: Facts, table: HostTable) -> str | None:
    error = facts.driver.error
    if table.device != "cpu":
        return error and f"nvidia-smi says: {error}"
    if facts.driver.cards:
        return (
            f"the NVIDIA GPU at {', '.join(facts.driver.cards)} is not used: there is no nvidia-smi on PATH"
        )
    return error and f"nvidia-smi is installed, but there is no NVIDIA GPU: {error}"


def _require_answering_gpu(facts: Facts) -> None:
    """Raise a Problem for a GPU that is present and does not answer: the CPU must not be used unasked."""
    driver = facts.driver
    if facts.gpus or not (driver.installed and driver.error and driver.has_hardware):
        return
    fixes = (fix for trouble, fix in _FIX_BY_MESSAGE.items() if trouble in driver.error.lower())
    module_text = f"; the loaded module is {driver.version}" if driver.version else ""
    raise Problem(
        "this host's NVIDIA GPU does not answer",
        cause=driver.error + module_text,
        fix=next(fixes, "nvidia-smi  # then fix what it reports"),
    )


def _build_missing_kind_problem(facts: Facts, tables: Mapping[str, HostTable]) -> Problem:
    if not facts.is_jetson:
        return Problem(
            "no kind of host is like this one",
            cause=f"it is {facts.system}; hosts/ has {', '.join(tables) or 'no table'}",
            fix="add a table for it in ~/.config/medley/hosts (medley check validates it)",
        )
    jetsons = []
    for name, table in tables.items():
        if table.recognise.soc:
            l4t = f"L4T r{' or r'.join(table.recognise.l4t)}" if table.recognise.l4t else "any L4T"
            jetsons.append(f"{name} is {table.recognise.soc} with {l4t}")
    board = facts.board
    release = f"L4T {board.l4t.release}" if board.l4t else "no /etc/nv_tegra_release"
    fix = "move it to a release above, or add a table for it in ~/.config/medley/hosts"
    if board.soc is None and facts.software.container:
        fix = "run medley outside of the container, which hides /proc/device-tree and /etc/nv_tegra_release"
    return Problem(
        f"no kind of host is a Jetson with {board.soc or 'an unseen SoC'} and {release}",
        cause="; ".join(jetsons) or "hosts/ has no Jetson",
        fix=fix,
    )


def load_answers(file: str | None = None) -> Transcript:
    """Return the answers of this host, or of a transcript; raise a Problem if the file cannot be read."""
    if file is None:
        return process.ask_host(facts.QUESTIONS)
    try:
        return transcript.parse_transcript(Path(file).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise Problem(
            f"{file} cannot be read",
            cause=describe_error(error),
            fix="name a file that medley facts --transcript wrote",
        ) from error
    except Problem as problem:
        raise Problem(f"{file} is not a transcript", cause=problem.cause, fix=problem.fix) from problem


def detect_host(kind_name: str | None = None, recorded: Transcript | None = None) -> SiteHost:
    """Return the facts of this host and its kind; `kind_name` is the value of --kind.

    The host is asked now, unless `recorded` has its answers.
    """
    host_facts = facts.read_facts(load_answers() if recorded is None else recorded)
    return SiteHost(host_facts, find_kind(host_facts, kind_name))


def find_kind(host_facts: facts.Facts, kind_name: str | None = None) -> Kind:
    """Return the kind of a host with these facts; `kind_name` is the value of --kind.

    Raise a Problem if there is no such kind, or if the host cannot be one.
    """
    tables = config.load_hosts()
    if kind_name is None:
        return match_kind(host_facts, tables)
    if kind_name not in tables:
        close_names = get_close_matches(kind_name.lower(), tables, 1)
        raise Problem(
            f"there is no kind of host {kind_name!r}",
            cause=f"the kinds are {', '.join(tables)}",
            fix=f"write {close_names[0]!r} instead"
            if close_names
            else "leave it out: the host is recognized by itself",
        )
    table = tables[kind_name]
    if table.device == "cuda" and not host_facts.gpus:
        error = host_facts.driver.error or "not found"
        raise Problem(
            f"this host cannot be {kind_name}",
            cause=f"it needs an NVIDIA GPU, and nvidia-smi shows none: {error}",
            fix="nvidia-smi  # then fix what it reports; or name the kind cpu",
        )
    table, no_image = choose_image(table, host_facts)
    return Kind(kind_name, table, "as --kind says", no_image_reason=no_image)


def list_facts(files: Sequence[str]) -> Iterator[tuple[str, Facts]]:
    """Yield the name and the facts of each transcript; without one, of this host."""
    for file in files or (None,):
        yield file or platform.node(), facts.read_facts(load_answers(file))


def read_answers_by_host(files: Iterable[str]) -> dict[str, Transcript]:
    """Return the answers of each transcript by the name of its file; without a file, those of this host.

    A number follows if two names are equal.
    """
    by_host: dict[str, Transcript] = {}
    for file in files:
        name = stem = Path(file).stem
        if stem.startswith("-"):
            raise Problem(
                f"{file} names a host {stem}",
                cause="a host has its transcript's name, and ssh takes one that begins with - for an option",
                fix=f"mv {quote_path(file)} {quote_path(f'host{stem}.txt')}",
            )
        number = 1
        while name in by_host:
            number += 1
            name = f"{stem}-{number}"
        by_host[name] = load_answers(file)
    return by_host or {platform.node(): load_answers()}


def read_facts_by_host(files: Iterable[str]) -> dict[str, Facts]:
    """Return the facts of each transcript by the name of its file; without a file, those of this host."""
    return {
        name: facts.read_facts(host_answers) for name, host_answers in read_answers_by_host(files).items()
    }
