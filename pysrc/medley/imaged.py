"""An image in the place of an engine environment, looked at before anything runs out of it."""

import itertools
import json
import os
import re
import resource
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from medley import container, hub, images, machine, passed, store
from medley.command import Command
from medley.container import Box, Image, Mount, Runtime, same
from medley.engine import Serving, guarded
from medley.engines import ENGINES
from medley.facts import Facts
from medley.kind import Kind
from medley.launch import Launch
from medley.origin import numbers, with_ray
from medley.passed import Limits
from medley.problem import Problem
from medley.reasoned import Reasoned
from medley.tables import Engine
from medley.variables import Variable
from medley.venv import Environment
from medley.watch import SILENT, Watch

_LOOK_LIMIT_S = 300  # importing torch, the first time, from a slow disk
_CAP_SYS_RESOURCE = 24
_TOKENS_SINCE = (2, 52)
"""The first Ray with RAY_AUTH_MODE=token (Ray's documentation, "Ray token authentication")."""
RAY = "ray"
"""The role of Ray's container."""
_COUNT = itertools.count(1)


@dataclass(frozen=True)
class Choice:
    """What was asked for, as it is noted while a cluster lasts."""

    runtime: Runtime
    image: Image
    nccl: str | None = None
    """A file of this host, in place of the image's own."""
    mounts: tuple[str, ...] = ()
    """PATH, or PATH:INSIDE."""
    engines: tuple[str, ...] = ()
    """Those that were found in it."""

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> "Choice":
        kept = table["image"]
        image = Image(
            kept["name"],
            kept["id"],
            *(tuple(kept[name]) for name in ("digests", "entrypoint", "names")),
        )
        return cls(table["runtime"], image, table["nccl"], tuple(table["mounts"]), tuple(table["engines"]))

    @property
    def table(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Imaged:
    """In the place of an engine environment."""

    choice: Choice
    box: Box
    held: Mapping[str, Any] = field(default_factory=dict)
    """What inside/image.py says."""

    python = Path("python3")

    @property
    def parts(self) -> Mapping[str, Any]:
        """What hosts that run it compare."""
        made = self.box.image
        image = {"name": made.name, "id": made.id, "digests": list(made.digests), "runtime": self.box.runtime}
        return {"image": image, "python": self.held["python"], "machine": self.held["machine"]}

    def versions(self, names: tuple[str, ...]) -> dict[str, str]:
        return {name: self.held["versions"].get(name, "") for name in names}

    def started(self, command: Command, *reads: Path) -> Command:
        """A question, in a container of its own: beside Ray's, where that runs."""
        beside = container.name(RAY, store.state())
        near = self.beside(beside) if images.runs(self.choice.runtime, beside) else self
        asks = f"{container.name('ask', store.state())}-{os.getpid()}-{next(_COUNT)}"
        return near.box.asked(command, asks, *reads)

    def beside(self, name: str) -> "Imaged":
        return replace(self, box=replace(self.box, beside=name))

    def launched(self, launch: Launch, serving: Serving, *, over_ray: bool) -> Launch:
        """The same model, served out of the image."""
        if over_ray:
            return self.beside(container.name(RAY, store.state())).launched(launch, serving, over_ray=False)
        target = Path(serving.target)
        mounts = (*self.box.mounts, same(target, "the model")) if target.is_absolute() else self.box.mounts
        box = replace(self, box=replace(self.box, mounts=mounts))
        inner = guarded(launch.reasoned, serving, str(self.python))
        return replace(launch, reasoned=box.contained(inner, role(serving.port)))

    def contained(self, inner: Reasoned, role: str, *, detached: bool = False) -> Reasoned:
        return self.box.contained(inner, container.name(role, store.state()), os.environ, detached=detached)


def role(port: int) -> str:
    return f"serve-{port}"


def expected(choice: Choice, kind: Kind, facts: Facts, allowed: Limits | None = None) -> Imaged:
    """As far as it can be said without looking into it; `allowed` is what this host is, unless given."""
    flags = tuple(passed.of_host(choice.runtime, kind.host, facts, allowed or limits()))
    return Imaged(choice, _box(choice, flags))


def ready(
    choice: Choice, kind: Kind, facts: Facts, *, engine: Engine = "vllm", watch: Watch = SILENT
) -> Imaged:
    """The image, looked at on this host, in the very container that the engine will have."""
    found = expected(
        replace(choice, image=images.ready(choice.runtime, choice.image.name, facts.system, watch=watch)),
        kind,
        facts,
    )
    for each in found.box.variables:
        if each.name in {*container.CACHES, "HF_HUB_CACHE"}:
            store.make(Path(each.value))
    store.make(store.state() / "ray")
    with watch.stage(f"look into {choice.image.name} ({found.box.image.short})"):
        held = asked(found)
    there = tuple(name for name, each in ENGINES.items() if held["programs"].get(each.PROGRAM))
    found = replace(found, held=held, choice=replace(found.choice, engines=there))
    _require(found, engine)
    return found


def noted(table: Mapping[str, Any]) -> Imaged:
    """That of a cluster which this host is in, for questions: without GPUs."""
    choice = Choice.of(table)
    return Imaged(choice, _box(choice, tuple(passed.own_limits(choice.runtime, limits()))))


def engines(where: Environment | Imaged) -> list[Engine]:
    """Those that are in an environment, or in an image."""
    if isinstance(where, Imaged):
        return [name for name in ENGINES if name in where.choice.engines]
    return [name for name, each in ENGINES.items() if (where.programs / each.PROGRAM).exists()]


def limits() -> Limits:
    def hard(which: int) -> int | None:
        value = resource.getrlimit(which)[1]
        return None if value == resource.RLIM_INFINITY else value

    return Limits(
        hard(resource.RLIMIT_NOFILE),
        hard(resource.RLIMIT_NPROC),
        hard(resource.RLIMIT_MEMLOCK),
        may_raise=_capable(Path("/proc/self/status").read_text(encoding="utf-8")),
    )


def _capable(status: str) -> bool:
    found = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return bool(found and int(found[1], 16) >> _CAP_SYS_RESOURCE & 1)


def _box(choice: Choice, flags: tuple[Any, ...]) -> Box:
    return Box(choice.runtime, choice.image, flags, tuple(_mounts(choice)), tuple(_variables()))


def _mounts(choice: Choice) -> Iterator[Mount]:
    yield same(store.state() / "ray", "Ray's logs and sockets", writable=True)
    yield same(Path(str(files("medley") / "inside")), "what of medley runs in the image's Python")
    for each in choice.mounts:
        source, _, target = each.partition(":")
        path = Path(source).expanduser().absolute()
        if not path.exists():
            raise Problem(
                f"{source} cannot be mounted", cause=f"{path} is not there", fix="--mount PATH or PATH:INSIDE"
            )
        yield Mount(path, Path(target or path), "as --mount says", writable=True)


def _variables() -> Iterator[Variable]:
    """Where it keeps what the next container shall find."""
    yield Variable(
        "HF_HUB_CACHE", str(hub.cache().absolute()), "models that this host has, and those to come"
    )
    cache, why = store.cache() / "images", "what it compiles outlives the container"
    yield from (Variable(name, str(cache / folder), why) for name, folder in container.CACHES.items())
    token = Path(os.environ.get("HF_TOKEN_PATH") or hub.cache().parent / "token")
    if token.is_file():
        yield Variable("HF_TOKEN_PATH", str(token.absolute()), "whom the model hub takes you for")


def asked(found: Imaged, *words: str) -> dict[str, Any]:
    script = files("medley") / "inside" / "image.py"
    command = found.started(Command((str(found.python), str(script), *words)))
    finished = machine.run(command, limit_s=_LOOK_LIMIT_S)
    said = next((line for line in reversed(finished.lines) if line.startswith("{")), None)
    if finished.status or said is None:
        raise images.refused(found.box.image, command, finished.lines)
    answer: dict[str, Any] = json.loads(said)
    return answer


def _require(found: Imaged, engine: Engine) -> None:
    """That what is to run is there; an engine alone on a host does without Ray, a cluster does not."""
    if engine not in found.choice.engines:
        raise Problem(
            f"{found.box.image.name} holds no {ENGINES[engine].TITLE}",
            cause=f"its PATH has no {ENGINES[engine].PROGRAM}; its Python is {found.held['python']}",
            fix=f"take an image with {ENGINES[engine].TITLE} in it",
        )


def require_ray(found: Imaged) -> None:
    name, what = found.box.image.name, f"{found.box.image.name} cannot take part in a cluster"
    if not found.held["programs"].get("ray"):
        raise Problem(what, cause="its PATH has no ray", fix=with_ray(name))
    version = found.versions(("ray",))["ray"]
    if numbers(version) < _TOKENS_SINCE:
        raise Problem(
            what,
            cause=f"its Ray is {version or 'of no known version'}; before 2.52 Ray asks nobody for a token "
            "and runs the code of anybody who reaches its ports",
            fix=with_ray(name),
        )
