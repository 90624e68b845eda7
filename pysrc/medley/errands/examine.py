"""Examine: what this host is and how it is today, for the doctor."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from medley import condition, facts, machine, transcript
from medley.condition.keeping import OWN_VARIABLE

_LIMIT_S = 15
"""A hub that does not answer and a driver that wakes up take seconds each, and are no reason to ask anew."""


def run(asked: Mapping[str, Any], note: Callable[[str], None]) -> Mapping[str, Any]:
    """`env`: a virtualenv of the user's own, where cluster.toml names one."""
    del note
    return {"transcript": transcript.text(examined(asked["env"]))}


def examined(env: str | None) -> transcript.Transcript:
    own = {OWN_VARIABLE: str(Path(env).expanduser())} if env and "/" in env else {}
    return machine.ask((*facts.QUESTIONS, *condition.QUESTIONS), own, limit_of_all_s=_LIMIT_S)
