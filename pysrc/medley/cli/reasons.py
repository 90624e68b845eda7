"""What `--dry-run` prints: a command on stdout, and why it is as it is on stderr."""

import json
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from medley.command import Command

if TYPE_CHECKING:
    from medley.wiring import Wiring


def show(command: Command, why: Iterable[tuple[str, str]], *, as_json: bool) -> None:
    if as_json:
        reasons = [{"what": what, "why": reason} for what, reason in why]
        parts = {"argv": command.argv, "env": command.env, "unset": command.unset}
        print(json.dumps({"command": str(command), **parts, "why": reasons}))
        return
    for what, reason in why:
        print(f"medley: {what}: {reason}", file=sys.stderr)
    print(command)


def tell(wiring: "Wiring") -> None:
    """Which wire was taken, on stderr."""
    for line in wiring.said():
        print(f"medley: {line}", file=sys.stderr)
