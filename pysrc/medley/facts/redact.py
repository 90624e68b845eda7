"""A redacted transcript says the same of a host, and not whose or which one it is.

What is equal stays equal: the second GPU's UUID becomes ...0002 wherever it stands.
"""

import ipaddress
import re
from collections.abc import Iterable

from medley.transcript import Answer, Transcript

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_HOME = re.compile(r"(?<=/home/)[^/\s]+")
_BROADCAST = "ff:ff:ff:ff:ff:ff"
_NO_MAC = "00:00:00:00:00:00"


def redact(answers: Transcript, names: Iterable[str] = ()) -> Transcript:
    """Without serial numbers, MAC and global addresses, users' homes, and the host `names` given."""
    redactor = _Redactor(names)
    return {
        question: Answer(redactor.text(answer.text), answer.status) for question, answer in answers.items()
    }


class _Redactor:
    """Remembers what each secret was replaced by."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in names if name]
        self._given: dict[str, dict[str, str]] = {}

    def text(self, text: str) -> str:
        text = _UUID.sub(lambda m: self._nth("uuid", m[0], "00000000-0000-0000-0000-{:012x}"), text)
        text = _MAC.sub(self._mac, text)
        text = _IPV4.sub(lambda m: self._address(m[0], "203.0.113.{}"), text)
        text = _IPV6.sub(lambda m: self._address(m[0], "2001:db8::{:x}"), text)
        text = _HOME.sub("user", text)
        for name in self._names:
            text = name.sub("host-1", text)
        return text

    def _nth(self, sort: str, secret: str, form: str) -> str:
        given = self._given.setdefault(sort, {})
        return given.setdefault(secret.lower(), form.format(len(given) + 1))

    def _mac(self, match: re.Match[str]) -> str:
        if match[0].lower() in {_BROADCAST, _NO_MAC}:
            return match[0]
        return self._nth("mac", match[0], "02:00:00:00:00:{:02x}")

    def _address(self, word: str, form: str) -> str:
        try:
            public = ipaddress.ip_address(word).is_global
        except ValueError:  # a version number, or a PCI address
            return word
        return self._nth(form, word, form) if public else word
