"""The clock of a host: whether anything keeps it right."""

from dataclasses import dataclass

from medley.facts.answers import lines
from medley.transcript import Transcript

SYNCHRONISED = "timedatectl show -p NTP -p NTPSynchronized"
CHARSET = 'printf "%s\\n" "$LANG"'

QUESTIONS = (SYNCHRONISED, CHARSET)


@dataclass(frozen=True)
class Clock:
    wanted: bool | None = None
    """Whether something is to keep it; None where there is no timedatectl."""
    right: bool | None = None
    """Whether it is kept now."""
    charset: str | None = None
    """Of the language that is set here, as in `UTF-8`."""


def clock(answers: Transcript) -> Clock | None:
    if SYNCHRONISED not in answers:
        return None
    said = dict(line.split("=", 1) for line in lines(answers, SYNCHRONISED) if "=" in line)
    language = next(iter(lines(answers, CHARSET)), "")
    return Clock(
        _flag(said.get("NTP")), _flag(said.get("NTPSynchronized")), language.partition(".")[2] or None
    )


def _flag(text: str | None) -> bool | None:
    return None if text not in {"yes", "no"} else text == "yes"
