"""Decide where a host's engine comes from: a lock, an image or the user's own; and its versions."""

import os
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from msgspec import field

from medley import config
from medley.errors import Problem
from medley.host.kind import Kind
from medley.host.kind_image import get_default_image
from medley.schema import TITLES, EngineName, Model
from medley.values import Value

# Versions that all hosts of a cluster must share: Ray refuses another Ray or Python, ranks another engine.
_SHARED_TITLES: Mapping[str, str] = {**dict(TITLES.items()), "ray": "Ray", "python": "Python"}
_SHOWN_TITLES: Mapping[str, str] = {**_SHARED_TITLES, "cuda": "CUDA"}
USER_VIRTUALENV = "VENV"
NCCL_PATH_VARIABLE = "VLLM_NCCL_SO_PATH"
"""The variable of the NCCL that vLLM opens; torch takes the one that is preloaded."""
_PIN_PATTERN = re.compile(r"^([\w.-]+)==([^ ;\\]+)", re.MULTILINE)
_NCCL_PATTERN = re.compile(r"^nvidia-nccl-cu\d+$")

Versions = Mapping[str, str]
"""Versions by `vllm`, `sglang`, `ray`, `python`, `cuda` and `nccl`; unknown ones are missing."""


class EngineRequest(Value):
    image: str | None = None
    environment: str | None = None


class EngineSource(Value):
    switches: tuple[str, ...]
    """The command-line switches that choose it."""
    name: str = USER_VIRTUALENV
    versions: Versions = field(default_factory=dict)
    published_at: str = ""
    """The page where an image's versions are published; empty for other sources."""
    is_image: bool = False
    device: str = "cuda"
    upgrade_fix: str | None = None
    """The steps by which such a host could use one of medley's locks."""
    alone_reason: str | None = None
    """The reason why its host cannot be in a cluster."""
    join_fix: str | None = None
    """The command after which its host could be in a cluster."""
    lacking_reason: str | None = None
    """The reason why its engine cannot serve the requested model."""
    absent_reason: str | None = None
    """The reason why its host has no engine at all."""

    def __str__(self) -> str:
        titles = ", ".join(
            f"{_SHOWN_TITLES[key]} {value}" for key, value in self.versions.items() if key in _SHOWN_TITLES
        )
        return f"{self.name}: {titles}" if titles else self.name

    @property
    def unknown_versions(self) -> list[str]:
        """The titles of programs whose versions must be equal in a cluster, but are unknown here."""
        return [
            _SHARED_TITLES[key]
            for key in ("ray", "python")
            if key not in self.versions and not self.alone_reason
        ]

    def list_differences(self, other: "EngineSource") -> list[str]:
        """Return why the two cannot be in one cluster; empty if no known version forbids it."""
        reasons = dict.fromkeys(source.alone_reason for source in (self, other) if source.alone_reason)
        return [*reasons] or [
            f"{title} {self.versions[key]} and {other.versions[key]}"
            for key, title in _SHARED_TITLES.items()
            if key in self.versions and key in other.versions and self.versions[key] != other.versions[key]
        ]


def choose_engine_source(
    kind: Kind,
    engine: EngineName,
    request: EngineRequest,
    versions_by_lock: Mapping[str, Versions],
    *,
    can_use_image: bool = True,
    has_nix_toolkit: bool = False,
) -> EngineSource:
    """Return the source of a host's engine; `absent_reason` tells if it has none.

    `can_use_image`: an image is allowed. `has_nix_toolkit`: Nix brings the toolkit, with an NCCL where
    the wheels' NCCL fails.
    """
    table, name, image_versions = kind.table, request.environment, kind.table.container.holds
    offered_lock = table.environments.get(engine)
    if request.image not in {None, "default"}:
        return EngineSource(
            ("--image", str(request.image)), str(request.image), is_image=True, device=table.device
        )
    if name and name not in versions_by_lock:
        return EngineSource(("--env", name), name, device=table.device)
    # An image with engines, but without this one, is no image for it.
    has_engine = engine in image_versions or not any(title in image_versions for title in TITLES)
    is_image_default = (
        table.container.image
        and offered_lock is None
        and table.no_environment
        and can_use_image
        and has_engine
    )
    if not name and (request.image or is_image_default):
        return _describe_image_source(kind)
    if name or offered_lock:
        lock, switches = str(name or offered_lock), ("--env", name) if name else ()
        problem = build_missing_nccl_problem(kind) if needs_nccl(kind) and not has_nix_toolkit else None
        alone_reason, join_fix = (problem.cause, problem.fix) if problem else (None, None)
        return EngineSource(
            switches,
            lock,
            versions_by_lock.get(lock, {}),
            device=table.device,
            alone_reason=alone_reason,
            join_fix=join_fix,
        )
    absent_reason = (
        f"there is neither an engine environment nor an image of {TITLES[engine]} for {table.title}"
    )
    if table.container.image and has_engine and not can_use_image:
        absent_reason = f"{table.title} has {TITLES[engine]} in an image only, and images need Ray"
    if kind.no_image_reason:
        absent_reason = f"{absent_reason}: {kind.no_image_reason}"
    return EngineSource(
        ("--env", USER_VIRTUALENV),
        device=table.device,
        upgrade_fix=table.upgrade,
        absent_reason=absent_reason,
    )


def needs_nccl(kind: Kind) -> bool:
    """Return whether the NCCL of the wheels fails on such a host."""
    return kind.table.toolkit is not None and kind.table.toolkit.nccl


def build_missing_nccl_problem(kind: Kind) -> Problem:
    """Return the Problem of ranks that would reach other hosts by the NCCL of the wheels."""
    return Problem(
        "an engine out of our lock cannot talk to other hosts here",
        cause=f"the NCCL that PyPI has crashes on {kind.table.title}: NVML knows no peer-to-peer there",
        fix="nix run .#ray-head, which compiles one that starts; or build one by hand "
        "(docs/how-to/jetson-orin.md): --nccl FILE, or nccl = in cluster.toml",
    )


def _describe_image_source(kind: Kind) -> EngineSource:
    table, container = kind.table, kind.table.container
    return EngineSource(
        ("--image", "default"),
        get_default_image(kind),
        {str(name): version for name, version in container.holds.items()},
        container.source or "",
        is_image=True,
        device=table.device,
        upgrade_fix=table.upgrade,
        alone_reason=f"{get_default_image(kind)} has no Ray" if "ray" in container.lacks else None,
        join_fix="one image with Ray in it on all of them: "
        f"{format_ray_image_command(get_default_image(kind))}",
    )


def format_ray_image_command(image: str) -> str:
    """Return the command that adds Ray to an image, in the version of medley's locks."""
    version = read_locked_versions()["vllm-cuda"]["ray"]
    lines = rf"FROM {image}\nRUN python3 -m pip install ray=={version}\n"
    return f"printf '{lines}' | docker build -t vllm-ray - && medley ray-head --image vllm-ray"


def read_locked_versions() -> dict[str, Versions]:
    """Return the versions in each lock, by the lock's name."""
    recipes, locks = config.load_recipes(), config.find_table_files("locks", ".txt")
    return {
        name: {
            **_find_engine_versions(locks[name].read_text(encoding="utf-8"), recipe.alias),
            "python": recipe.python,
        }
        for name, recipe in recipes.items()
        if name in locks
    }


def _find_engine_versions(lock: str, alias: Mapping[str, str]) -> dict[str, str]:
    versions = parse_pins(lock)
    engine_versions = {
        name: versions.get(name) or versions.get(alias.get(name, "")) for name in (*TITLES, "ray")
    }
    engine_versions["nccl"] = next(
        (version for name, version in versions.items() if _NCCL_PATTERN.match(name)), None
    )
    return {name: version.partition("+")[0] for name, version in engine_versions.items() if version}


@lru_cache(maxsize=16)
def parse_pins(lock: str) -> Mapping[str, str]:
    """Return every version in a lock's text; cached, because each hypothetical host needs some."""
    return dict(_PIN_PATTERN.findall(lock))


def has_nix_toolkit() -> bool:
    """Return whether Nix brings the CUDA toolkit of this process."""
    return any(os.environ.get(name) for name in ("MEDLEY_FLAKE", "MEDLEY_TOOLKIT"))


def has_matching_nvcc(lock: str) -> bool:
    """Return whether the nvcc of this lock accepts its CUDA headers: both of one minor version."""
    files = config.find_table_files("locks", ".txt")
    versions = parse_pins(files[lock].read_text(encoding="utf-8")) if lock in files else {}
    nvcc_version, headers_version = (
        parse_version(versions.get(f"nvidia-cuda-{name}", ""))[:2] for name in ("nvcc", "runtime")
    )
    return bool(nvcc_version) and nvcc_version == headers_version


def find_oldest_nccl(engine: EngineName, sources: Iterable[EngineSource] = ()) -> tuple[int, ...]:
    """Return the oldest NCCL of these hosts' engines; an unknown one counts as that of the lock."""
    lock = config.find_table_files("locks", ".txt")[f"{engine}-cuda"].read_text(encoding="utf-8")
    locked_nccl = _find_engine_versions(lock, {})["nccl"]
    return min(
        (parse_version(source.versions.get("nccl", locked_nccl)) for source in sources),
        default=parse_version(locked_nccl),
    )


def find_model_gap(model: Model | None, engine: EngineName, version: str | None) -> str | None:
    """Return why an engine of this version lacks the model; None if it has it, or that is unknown."""
    first_release = model.since.get(engine) if model else None
    if first_release is None or not version or not is_older(version, first_release):
        return None
    return f"{TITLES[engine]} {version} does not know this model, {first_release} is the first that does"


def is_older(version: str, release: str) -> bool:
    """Return whether a version comes before a release by PEP 440: a candidate comes before its release.

    An image's own name of a version, which PEP 440 does not know, counts by its numbers.
    """
    from packaging.version import InvalidVersion, Version  # noqa: PLC0415 - 30 ms, and few verbs compare

    try:
        return Version(version) < Version(release)
    except InvalidVersion:
        return parse_version(version) < parse_version(release)


def parse_version(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
