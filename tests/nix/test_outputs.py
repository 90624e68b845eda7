"""Every output instantiates on both systems, and what can be built here is."""

import json
import re
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.nix.conftest import Tree

pytestmark = pytest.mark.nix

KINDS = {
    "x86_64-linux": {"cpu", "cuda", "rtx"},
    "aarch64-linux": {"cpu", "cuda", "orin", "orin-r39", "spark", "thor"},
}
JETSONS = {"orin", "orin-r39", "thor"}
SYSTEMS = pytest.mark.parametrize("system", KINDS)
VERBS = {
    *(
        "batch",
        "bench",
        "chat",
        "check",
        "completion",
        "connect",
        "doctor",
        "env",
        "explain",
        "facts",
        "help",
        "init",
        "key",
        "link",
        "logs",
        "models",
        "plan",
        "ports",
        "pull",
        "run",
        "serve",
        "service",
        "status",
        "stop",
        "up",
        "down",
    ),
    *("top", "collective-test", "join", "ray-head", "ray-stop", "ray-worker"),
}


@SYSTEMS
def test_shells_exist_where_the_kind_does(tree: "Tree", system: str) -> None:
    paths = tree.eval(f"devShells.{system}", "--apply", "builtins.mapAttrs (_: shell: shell.drvPath)")
    assert set(paths) == KINDS[system] | {"default"}
    assert paths["default"] == paths["cpu"]


@SYSTEMS
def test_packages_instantiate(tree: "Tree", system: str) -> None:
    paths = tree.eval(f"packages.{system}", "--apply", "builtins.mapAttrs (_: package: package.drvPath)")
    jetsons = {f"nccl-{kind}" for kind in KINDS[system] & JETSONS}
    kinds = {f"{what}-{kind}" for what in ("toolkit", "image") for kind in KINDS[system]}
    assert set(paths) == {"medley", "default"} | kinds | jetsons


@SYSTEMS
def test_apps_checks_and_formatter_instantiate(tree: "Tree", system: str) -> None:
    assert set(tree.eval(f"apps.{system}")) == VERBS | {"default"}
    checks = tree.eval(f"checks.{system}", "--apply", "builtins.mapAttrs (_: check: check.drvPath)")
    assert checks.keys() >= {"tests", "tables", "readers", "syntax", "medley"}
    of_kinds = {name for name in checks if name.startswith(("shell-", "toolkit-"))}
    assert of_kinds == {"shell-cpu", "toolkit-cpu"}
    needed = tree.nix_store("--query", "--requisites", *checks.values())
    assert not re.search("cuda|nccl", needed), "no check fetches CUDA"
    assert tree.nix("eval", "--raw", f".#formatter.{system}.drvPath").stdout.endswith(".drv")


@pytest.mark.parametrize(
    ("system", "kind"), [(system, kind) for system in KINDS for kind in sorted(KINDS[system])]
)
def test_a_toolkit_is_one_complete_file(tree: "Tree", system: str, kind: str) -> None:
    toolkit = json.loads((tree.build(f"packages.{system}.toolkit-{kind}") / "toolkit.json").read_text())
    assert set(toolkit) == {"kind", "variables", "path", "preload", "pythons", "uv", "loader"}
    assert toolkit["kind"] == kind
    assert set(toolkit["pythons"]) == {"3.11", "3.12"}
    assert set(toolkit["loader"]) == {"interpreter", "patchelf", "libraries"}
    names = [path.rpartition("/")[2] for path in toolkit["preload"]]
    assert names[:4] == ["libgcc_s.so.1", "libstdc++.so.6", "libz.so.1", "libnuma.so.1"]
    assert names[4:] == (["libibverbs.so.1", "libmlx5.so.1"] if kind != "cpu" else [])
    assert ("CUDA_HOME" in toolkit["variables"]) == (kind != "cpu")
    assert all(path.startswith("/nix/store/") for path in [*toolkit["path"], *toolkit["pythons"].values()])


def test_a_toolkit_keeps_what_it_names(tree: "Tree") -> None:
    """Its link is the garbage-collection root of the whole toolchain."""
    toolkit = tree.build("toolkit-rtx")
    kept = tree.nix("path-info", "--recursive", str(toolkit)).stdout.split()
    named = (
        word for word in (toolkit / "toolkit.json").read_text().split('"') if word.startswith("/nix/store/")
    )
    assert {"/".join(word.split("/")[:4]) for word in named} <= set(kept)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        pytest.param("bash-completion/completions/medley.bash", "complete -F _medley medley", id="bash"),
        pytest.param("zsh/site-functions/_medley", "#compdef medley", id="zsh"),
        pytest.param("fish/vendor_completions.d/medley.fish", "complete -c medley", id="fish"),
        pytest.param("man/man1/medley.1", ".TH MEDLEY 1", id="the manual"),
    ],
)
def test_the_package_carries_completion_and_the_manual(tree: "Tree", path: str, words: str) -> None:
    text = (tree.build("medley") / "share" / path).read_text(encoding="utf-8")
    assert words in text
    assert "thor" in text or path.startswith("man")  # the package's own tables


_CARRIED = {".toml", ".txt", ".md"}


def test_the_package_carries_the_tables_and_the_pages(tree: "Tree") -> None:
    data = next(tree.build("medley").glob("lib/python3*/site-packages/medley/data"))
    carried = {path.relative_to(data) for path in data.rglob("*") if path.suffix in _CARRIED}
    written = {
        path.relative_to(tree.folder)
        for folder in ("hosts", "models", "locks", "failures", "docs")
        for path in (tree.folder / folder).rglob("*")
        if path.suffix in _CARRIED
    }
    assert carried == written
