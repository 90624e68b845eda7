"""Nix: a flake that is not whole, a package that may not or cannot be built here, and a store that "
"does not answer.

Texts are those of Nix 2.18 to 2.34 and of nixpkgs' pkgs/stdenv/generic/check-meta.nix.
"""

import re

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "nix-hash",
        what="Nix downloaded something else than its hash says",
        cause="[{name}: the source has changed since its hash was written][; it is {got} now]",
        fix="if it is yours and the change is right, write the hash after `got:` where the other stands; "
        "else take a revision that knows it: nix flake update",
        shapes=(
            shape(
                "hash mismatch in fixed-output derivation",
                r"hash mismatch in fixed-output derivation '(?:/nix/store/\w{32}-)?(?P<name>[^']+)'"
                r"(?:[^']*\n *got: +(?P<got>\S+))?",
            ),
            shape("NAR hash mismatch", r"NAR hash mismatch in input '(?P<name>[^']+)'(?P<got>)"),
        ),
        more=5,
    ),
    Known(
        "nix-untracked",
        what="Nix does not see a file of the flake: Git does not track it",
        cause="{file}: of a folder that is in Git, Nix takes what Git knows",
        fix="git add --intent-to-add FILE (a new one), then the same again; a flake that is no repository: "
        "nix build path:.",
        shapes=(
            shape(
                "is not tracked by Git",
                r"(?P<file>[Pp]ath '[^']+') (?:in the repository .{0,200} )?is not tracked by Git",
            ),
            shape(
                "' does not exist",
                r"^(?:error: )?path '(?P<file>/nix/store/\w{32}-source/[^']+)' does not exist",
            ),
            shape(
                "getting status of '/nix/store",
                r"getting status of '(?P<file>/nix/store/\w{32}-source/[^']+)': No such file",
            ),
        ),
        over=("file-missing",),
    ),
    Known(
        "nix-output-none",
        what="the flake has no such output for this host",
        cause="{said}",
        fix="see what it has: nix flake show; a name after # chooses one: nix build .#NAME",
        shapes=(
            shape(
                "does not provide attribute",
                r"(?P<said>flake '[^']+' does not provide attribute '[^']+'[^\n]{0,160})",
            ),
        ),
    ),
    Known(
        "nix-recursion",
        what="the Nix expression needs itself (infinite recursion)",
        cause="{said}[, {place}]",
        fix="see the way to it: the same command with --show-trace; in an overlay take prev.NAME, not "
        "final.NAME, of what it replaces",
        shapes=(
            shape(
                "infinite recursion encountered",
                r"(?P<said>infinite recursion encountered)(?:\s+(?P<place>at [^\n]+:\d+))?",
            ),
        ),
        more=3,
    ),
    Known(
        "nix-refused",
        what="nixpkgs refuses the package",
        cause="{name} {said}",
        fix="unfree (CUDA is): import nixpkgs with config.allowUnfree = true, or NIXPKGS_ALLOW_UNFREE=1 and "
        "--impure; another platform or broken: take another revision or package",
        shapes=(
            shape(
                "refusing to evaluate",
                r"[Pp]ackage [\u2018'](?P<name>[^\u2019']+)[\u2019'].{0,240}? (?P<said>(?:has an unfree "
                r"license|is marked as (?:broken|insecure)|is not (?:available on the requested "
                r"hostPlatform|supported))[^\n,:]{0,80})",
            ),
        ),
        more=8,
    ),
    Known(
        "nix-platform",
        what="Nix cannot build for another processor here",
        cause="{wanted} is needed for it, and this host is {has}",
        fix="build it on a host that is one (--builders 'ssh://HOST SYSTEM', here {wanted}), or let this "
        "one emulate: boot.binfmt.emulatedSystems, extra-platforms in nix.conf",
        shapes=(
            shape(
                ", but I am a",
                r"a '(?P<wanted>[\w-]+)' with features \{[^}]*\} is required to build .{0,200}, but I am a "
                r"'(?P<has>[^']+)'",
            ),
            shape(
                "Required system: ",
                r"Required system: '(?P<wanted>[^']+)'[^\n]*(?:\n[^\n]*)?Current system: '(?P<has>[^']+)'",
            ),
        ),
        more=2,
    ),
    Known(
        "nix-features",
        what="flakes are switched off in this Nix",
        cause="its experimental feature '{name}' is disabled",
        fix="echo 'experimental-features = nix-command flakes' | sudo tee -a /etc/nix/nix.conf",
        shapes=(
            shape("experimental Nix feature", r"experimental Nix feature '(?P<name>[\w-]+)' is disabled"),
        ),
    ),
    Known(
        "nix-daemon",
        what="Nix's daemon does not answer",
        cause="[{said}]",
        fix="sudo systemctl enable --now nix-daemon.socket; then try: nix store info",
        shapes=(
            shape(
                "daemon-socket",
                r"(?P<said>cannot connect to (?:socket|daemon) at '[^']*daemon-socket/socket'[^\n]{0,80})",
            ),
        ),
        over=("refused",),
    ),
    Known(
        "nix-builder",
        what="a package could not be built with Nix",
        cause="{name} failed[ with exit code {status}]: why stands in its log, of which Nix shows the end",
        fix="nix log /nix/store/…-NAME.drv shows all of it (Nix names the path)",
        shapes=(
            shape(
                "failed with exit code",
                r"[Bb]uilder for '(?:/nix/store/\w{32}-)?(?P<name>[^']+)' failed with exit code "
                r"(?P<status>\d+)",
            ),
            shape(
                "annot build '",
                r"[Cc]annot build '(?:/nix/store/\w{32}-)?(?P<name>[^']+)'(?:\.\s+Reason: builder failed with"
                r" exit code (?P<status>\d+))?",
            ),
            shape(
                "failed due to signal",
                r"[Bb]uilder for '(?:/nix/store/\w{32}-)?(?P<name>[^']+)' failed due to "
                r"(?P<status>signal \d+)",
            ),
        ),
        unless=re.compile(r"[Dd]ependency failed|dependencies of derivation"),
        more=2,
        confidence=LOW,
    ),
    Known(
        "nix-download",
        what="Nix cannot download what it needs",
        cause="{said}",
        fix="see the way out: curl -I https://cache.nixos.org; without a network bring the closure: nix copy "
        "--from ssh://HOST PATH",
        shapes=(
            shape("unable to download", r"(?P<said>unable to download '[^']+'[^\n]{0,120})"),
            shape("annot download", r"error: (?P<said>[Cc]annot download \S+ from any mirror)"),
        ),
        unless=re.compile(r"retrying in"),
        confidence=MEDIUM,
        over=("hub-unreachable",),
    ),
)
