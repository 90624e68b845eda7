"""Hub access is whether a host can fetch a model: the hub answers, and its token is closed to others."""

from dataclasses import dataclass

from medley.facts.answers import first, lines, number
from medley.transcript import NO_ANSWER, Transcript

# A mirror's address may be a secret of somebody's network: it is asked, and not said.
ANSWER = (
    "command -v curl >/dev/null && curl -s -o /dev/null --connect-timeout 1.5 -m 2 -w '%{http_code}'"
    ' "${HF_ENDPOINT:-https://huggingface.co}"'
)
SETTINGS = "printf '%s\\n' ${HF_ENDPOINT:+mirror} ${HF_TOKEN:+token} ${HF_HUB_OFFLINE:+offline}"
MODE = 'stat -c %a "${HF_TOKEN_PATH:-${HF_HOME:-$HOME/.cache/huggingface}/token}"'

QUESTIONS = (ANSWER, SETTINGS, MODE)

_WHY = {
    6: "its name does not resolve",
    7: "no connection",
    28: "no answer in 2 s",
    35: "TLS failed",
    60: "TLS failed",
}


@dataclass(frozen=True)
class HubAccess:
    status: int | None = None
    """HTTP's; None where it did not answer."""
    why: str | None = None
    mirror: bool = False
    """HF_ENDPOINT names another than the hub itself."""
    offline: bool = False
    token: bool = False
    mode: str | None = None
    """Of the file that `hf auth login` writes, as in `600`."""


def hub_access(answers: Transcript) -> HubAccess | None:
    """None where it was not asked, or there is no curl to ask with."""
    said = answers.get(ANSWER, NO_ANSWER)
    status = number(said.text.strip())
    if status is None and said.status in {1, 127}:
        return None
    words, mode = set(lines(answers, SETTINGS)), first(answers, MODE)
    return HubAccess(
        status=status or None,
        why=None if status else _WHY.get(said.status, f"curl ended with {said.status}"),
        mirror="mirror" in words,
        offline="offline" in words,
        token="token" in words or mode is not None,
        mode=mode,
    )
