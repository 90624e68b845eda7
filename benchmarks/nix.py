"""How long the flake takes to evaluate, against its budgets: every shell in 2 s, `lib` in 0.2 s.

    .venv/bin/python benchmarks/nix.py [ROUNDS]       # 15 rounds: about half a minute

`start` is `nix eval --expr 1`, of which every other figure has one. `lib` is `nix eval .#lib.hosts` in a
clean clone with the real lock, because it needs no nixpkgs; `lib, edited` is the same after a file has
changed, so that Nix copies the tree anew. `shells` are the derivations of every shell on both systems, over
the stand-in for nixpkgs (tests/nix/standin.py): that is what our own files take, and not nixpkgs'.
`outputs` is all that `nix flake check --no-build --all-systems` instantiates. Nix's cache of evaluations is
off.

All take turns in every round; a figure is the median, with the lowest and the highest, and its ratio to
`start`.
"""

import os
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROUNDS = int(sys.argv[1]) if len(sys.argv) > 1 else 15
BUDGET_S = {"lib": 0.2, "lib, edited": 0.2, "shells": 2.0}
EVAL = ("nix", "eval", "--json", "--option", "eval-cache", "false")
DERIVATIONS = "builtins.mapAttrs (_: builtins.mapAttrs (_: shell: shell.drvPath))"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        clone = folder / "clone"
        subprocess.run(["git", "clone", "--quiet", ROOT, clone], check=True)
        edited = folder / "edited"
        subprocess.run(["git", "clone", "--quiet", ROOT, edited], check=True)
        over = standin(folder)
        runs = {
            "start": ((*EVAL, "--expr", "1"), folder),
            "lib": ((*EVAL, ".#lib.hosts"), clone),
            "lib, edited": ((*EVAL, ".#lib.hosts"), edited),
            "shells": ((*EVAL, ".#devShells", "--apply", DERIVATIONS), folder / "medley"),
            "outputs": (
                ("nix", "flake", "check", "--no-build", "--all-systems", *EVAL[3:]),
                folder / "medley",
            ),
        }
        for command, place in runs.values():
            timed(command, place, over)  # the file cache, and what is copied to the store once
        rounds = []
        for _ in range(ROUNDS):
            # Never the same twice, or the copy is in the store already.
            (edited / "README.md").write_text(str(time.time_ns()))
            rounds.append({name: timed(command, place, over) for name, (command, place) in runs.items()})
    report(rounds)


def report(rounds: list[dict[str, float]]) -> None:
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} processors, {ROUNDS} rounds\n")
    late = []
    for name in rounds[0]:
        taken = sorted(each[name] for each in rounds)
        ratio = statistics.median(each[name] / each["start"] for each in rounds)
        middle, budget = statistics.median(taken), BUDGET_S.get(name)
        says = "" if budget is None else f"   budget {budget} s: {'kept' if middle <= budget else 'NOT KEPT'}"
        print(f"{name:12} {middle:.3f} s ({taken[0]:.3f} to {taken[-1]:.3f})  {ratio:5.1f} x start{says}")
        late += [name] if budget is not None and middle > budget else []
    if late:
        sys.exit(f"over budget: {', '.join(late)}")


def standin(folder: Path) -> dict[str, str]:
    """Make folder/medley, whose lock has the stand-in; returns the variables that its Nix needs."""
    command = [sys.executable, str(ROOT / "tests/nix/standin.py"), str(folder)]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    words = [word.partition("=") for word in shlex.split(said)]
    return {name: value for name, equals, value in words if equals}


def timed(command: tuple[str, ...], folder: Path, variables: Mapping[str, str]) -> float:
    began = time.monotonic()
    subprocess.run(command, cwd=folder, env=os.environ | variables, capture_output=True, check=True)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
