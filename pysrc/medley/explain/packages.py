"""Packages of an index: versions that do not fit together, or are not there for this host."""

from medley.explain.known import Known, shape

KNOWN = (
    Known(
        "package-none",
        what="the package index has no such package for this host",
        cause="{name}: no wheel fits this Python, processor or system",
        fix="take the Python and the lock that fit: medley env build chooses both; medley env list shows "
        "what this host can have",
        shapes=(
            shape("No matching distribution found", r"No matching distribution found for (?P<name>\S+)"),
            shape(
                "Could not find a version that satisfies",
                r"Could not find a version that satisfies the requirement (?P<name>\S+)",
            ),
            shape("is not a supported wheel on this platform", r"(?P<name>\S+) is not a supported wheel"),
            shape(
                "requires a different Python", r"(?P<name>Package '[^']+' requires a different Python: \S+)"
            ),
        ),
    ),
    Known(
        "package-hash",
        what="a downloaded package is not the one that the lock names",
        cause="{said}",
        fix="try again with an empty cache: uv cache clean, medley env build; if it stays, the index "
        "serves another file",
        shapes=(
            shape("DO NOT MATCH THE HASHES", r"(?P<said>THESE PACKAGES DO NOT MATCH THE HASHES)"),
            shape("Hash mismatch for", r"(?P<said>Hash mismatch for `?[^\s`]+)"),
        ),
    ),
    Known(
        "nixos-loader",
        what="a program of another Linux was started on NixOS",
        cause="NixOS has no loader for it",
        fix="medley env build patches what an environment brings; for others: programs.nix-ld.enable = true",
        shapes=(
            shape("cannot run dynamically linked executables intended for generic"),
            shape("Could not start dynamically linked executable"),
        ),
    ),
    Known(
        "package-conflict",
        what="no versions of the packages fit together",
        cause="{said}",
        fix="take the lock that fits: medley env build; by hand look at what it names: another index (uv: "
        "--index-strategy unsafe-best-match), another Python, or a version less bound",
        shapes=(
            shape(
                "No solution found when resolving",
                r"No solution found when resolving [^\n]*\n\s*(?:╰─▶|`->|\\->)?\s*(?P<said>Because [^\n]+"
                r"(?:\n[^\n]+){0,2})",
            ),
            shape("No solution found when resolving", r"(?P<said>No solution found when resolving \w+)"),
            shape(
                "ResolutionImpossible",
                r"(?P<said>ResolutionImpossible)",
            ),
            shape(
                "conflicting dependencies",
                r"(?P<said>Cannot install [^\n]{0,200} because these package versions have conflicting "
                r"dependencies)",
            ),
        ),
        more=3,
    ),
    Known(
        "package-address",
        what="a package is not at the address that the index names",
        cause="{url}[: {said}]",
        fix="look whether there is one for this host: uname -m; then take a version that has it, or the "
        "lock: "
        "medley env build",
        shapes=(
            shape(
                "Failed to ",
                r"Failed to (?:fetch|download)[^\n`]{0,20}`[^\n`]{0,80}?(?P<url>https?://[^\s`]+)`"
                r"(?:[^\n]*\n\s*(?:Caused by: |├─▶ |╰─▶ )*(?P<said>HTTP status \w+ error \(\d+[^)]*\)))?",
            ),
            shape(
                "HTTP error 404 while getting",
                r"(?P<said>HTTP error 404) while getting (?P<url>https?://\S+)",
            ),
        ),
        more=2,
    ),
    Known(
        "build-without-cuda",
        what="vLLM's build finds no CUDA: its PyTorch is one for CPU, or there is no toolkit",
        cause="setup.py says: {said}; pip and uv build in an environment of their own, with a PyTorch of the "
        "index",
        fix="take a wheel: medley env build; to build it: torch of the CUDA index first, then uv pip install "
        "--no-build-isolation, with CUDA_HOME set",
        shapes=(shape("nknown runtime environment", r"RuntimeError: (?P<said>Unknown runtime environment)"),),
    ),
)
