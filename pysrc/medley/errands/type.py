"""Type: a verb of medley's as if it were typed on this host; what it says goes back as it comes."""

from collections.abc import Callable, Mapping
from typing import Any

from medley import machine, own
from medley.command import Command

_GRACE_S = 30


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`words` begin with the verb. Each line is noted with 1 or 2 before it, its stream's number."""
    command = Command((*own.command(), *asked["words"]))
    process = machine.Process(command, lambda line: note(f"1{line}"), lambda line: note(f"2{line}"))
    try:
        finished = process.wait()
    finally:
        process.stop(_GRACE_S)
    return {"status": finished.status if finished else 1}
