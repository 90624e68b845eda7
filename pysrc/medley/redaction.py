"""A redacted text says the same of a host, without its secrets, and not whose or which one it is.

All that leaves the host goes through here: transcripts, reports, results of a bench. What is equal stays
equal: the second GPU's UUID becomes ...0002 wherever it stands, and a MAC address is replaced by the same
one in a link's own address, in the IPv6 address made of it and in a GID. Private addresses stay: the fabric
cannot be understood without them, and they say nothing beyond the user's own network.
"""

import getpass
import ipaddress
import os
import platform
import re
from collections.abc import Iterable
from pathlib import Path

from medley import api_key, secret_words, token
from medley.transcript import Answer, Transcript

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
# A bridge's id, 8000.2:42:ac:11:0:2, leaves zeros out; systemd names a USB adapter enx0242ac110002.
_MAC_APART = re.compile(
    r"(?<![\w-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![\w-])|(?<![\w.])(?:[0-9A-Fa-f]{4}\.){2}[0-9A-Fa-f]{4}(?![\w.])"
)
_BRIDGE = re.compile(r"(?<=\b[0-9a-f]{4}\.)(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}(?![0-9a-f:])")
_NAMED = re.compile(r"(?<=\benx)[0-9a-f]{12}\b")
# IPoIB's address: a queue pair, fe80::/64 and the port's GUID.
_IPOIB = re.compile(r"(?<![0-9a-f:])((?:[0-9a-f]{2}:){12})((?:[0-9a-f]{2}:){7}[0-9a-f]{2})(?![0-9a-f:])")
_GUID = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}(?![\w:.])")
_HARDWARE_ID = re.compile(r'(?<=_id":")[0-9a-f]{8,64}(?=")')
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_IPV4_DASHED = re.compile(r"(?:(?<=ec2-)|(?<!\d)(?<!\d-))\d{1,3}(?:-\d{1,3}){3}(?!-?\d)")
_SERIAL = re.compile(
    r"(?i)((?<![a-z])serial(?:[ _-]?(?:number|no|num))?[\"' \t]{0,24}[:=][\"' \t]{0,8})([\w-]{4,64})"
)
_HOME = re.compile(r"(?<=/home/)[^/\s:\"',;)]{1,64}+|(?<=/Users/)[^/\s:\"',;)]{1,64}+")
_USER = re.compile(r"(?<![\w-])((?:USER|LOGNAME|USERNAME|SUDO_USER)=[\"']?)[\w.-]{1,64}+")
# A line of ps: user, pid, CPU, memory, sizes.
_PS = re.compile(r"^([\w.+-]{1,32})(?=[ ]{1,32}\d{1,8}[ ]{1,8}\d{1,4}\.\d[ ]{1,8}\d{1,3}\.\d )", re.MULTILINE)
_EMAIL = re.compile(r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){1,6}")
_FULL_NAME = re.compile(
    r"(?<![\w./@-])(?=[\w-]{0,63}[a-zA-Z])[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}?"
    r"\.(?:local|lan|home|internal|intranet|corp|localdomain|home\.arpa|ts\.net|fritz\.box)(?![\w-]|\.\w)"
    r"|(?<![\w./@-])(?=[\w-]{0,63}[a-zA-Z])[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}?\.(?:com|net|org|edu|gov|eu|de|uk|fr|ch|at|nl|us|cloud|dev)"
    r"(?![\w-]|\.\w)"
)
# Everyone's, and often what an error is about.
_PUBLIC = re.compile(
    r"(?i)(?:.*\.)?(?:huggingface\.co|hf\.co|github\.com|githubusercontent\.com|pytorch\.org|nvidia\.com|python\.org"
    r"|ubuntu\.com|debian\.org|docker\.com|nixos\.org|openai\.com|kernel\.org|localhost\.localdomain)"
)
# What a GPU's user is called may be a project's name; these are nobody's.
_GPU_USER = re.compile(r"^( +Name +: )(\S+)$", re.MULTILINE)
_NOBODYS = {"root", "user", "nobody", "daemon", "ubuntu", "nvidia", "home", "build", "nixbld"}
"""Names that say nothing of anybody, among them folders that HOME is called by in sandboxes."""
_KNOWN_USER = re.compile(
    r"python[0-9.]*|Xorg|Xwayland|gnome-\S+|kwin\S*|plasmashell|firefox|chrome|chromium|vllm|ray|raylet|ollama"
    r"|llama-server|tritonserver|(VLLM|ray|sglang)::\S*|\[Not|N/A"
)
# Of a rule of nftables or iptables.
_COMMENT = re.compile(r"((?:--comment|(?<!-m) comment) )(\"[^\"\n]*\"|\S+)")
# Broadcast, none, and the groups that every bridge listens to tell nothing.
_NO_ONES_MAC = re.compile(r"ff:ff:ff:ff:ff:ff|00:00:00:00:00:00|01:00:5e:.*|01:80:c2:.*|33:33:.*")
_EXAMPLE = ".example.net"
_HALF = (1 << 64) - 1
_LARGEST_BY_HAND = 0xFFFF


def here(names: Iterable[str] = ()) -> "Redactor":
    """One that is told what is secret on this host: its own name, its user's, its tokens and keys."""
    users = {getpass.getuser(), Path.home().name, os.environ.get("SUDO_USER", "")} - _NOBODYS
    return Redactor((platform.node(), *names), users, _secrets_here())


def _secrets_here() -> list[str]:
    """What medley and the hub keep here, and variables that are called so: a log may show any of them."""
    hub = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface") / "token"
    files = (token.path(), api_key.path(), Path(os.environ.get("HF_TOKEN_PATH") or hub))
    return [
        *(each.read_text(encoding="utf-8", errors="replace").strip() for each in files if _readable(each)),
        *(value for name, value in os.environ.items() if secret_words.is_secret_name(name)),
    ]


def _readable(file: Path) -> bool:
    return file.is_file() and os.access(file, os.R_OK)


class Redactor:
    """Remembers what each name and number was replaced by: what is equal stays equal from text to text."""

    def __init__(
        self, names: Iterable[str] = (), users: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        """`names` are of hosts; all are told, and replaced wherever they stand as a word."""
        self._names = [
            (_word(name), f"host-{nth}") for nth, name in enumerate(dict.fromkeys(filter(None, names)), 1)
        ]
        self._names += [(_word(user), "user") for user in users if user]
        self._secrets = list(secrets)
        self._given: dict[str, dict[str, int]] = {}

    def transcript(self, answers: Transcript) -> Transcript:
        return {
            question: Answer(self.text(answer.text), answer.status) for question, answer in answers.items()
        }

    def text(self, text: str) -> str:
        text = secret_words.hidden(text, self._secrets)
        text = _UUID.sub(lambda m: f"00000000-0000-0000-0000-{self._nth('uuid', m[0]):012x}", text)
        text = self._hardware(text)
        text = _IPV4.sub(lambda m: self._ipv4(m[0]), text)
        text = _IPV4_DASHED.sub(lambda m: self._ipv4(m[0].replace("-", ".")).replace(".", "-"), text)
        text = _IPV6.sub(lambda m: self._ipv6(m[0]), text)
        text = self._people(text)
        for name, instead in self._names:
            text = name.sub(instead, text)
        return text

    def _people(self, text: str) -> str:
        """Users, and what they called their hosts."""
        text = _EMAIL.sub("user@example.org", text)
        text = _HOME.sub("user", text)
        text = _USER.sub(r"\1user", text)
        text = _PS.sub(lambda m: m[0] if m[0] in _NOBODYS else "user".ljust(len(m[0])), text)
        text = _COMMENT.sub(r'\1""', text)
        text = _GPU_USER.sub(lambda m: m[1] + self._user(m[2]), text)
        return _FULL_NAME.sub(lambda m: self._full_name(m[0]), text)

    def _full_name(self, name: str) -> str:
        if _PUBLIC.fullmatch(name) or name.endswith(_EXAMPLE):
            return name
        return f"name-{self._nth('name', name)}{_EXAMPLE}"

    def _hardware(self, text: str) -> str:
        text = _IPOIB.sub(lambda m: m[1] + _split(self._guid(_hex(m[2])), 16, 2), text)
        text = _MAC.sub(lambda m: _split(self._mac(_hex(m[0])), 12, 2), text)
        text = _BRIDGE.sub(self._bridge, text)
        text = _MAC_APART.sub(lambda m: self._apart(m[0]), text)
        text = _SERIAL.sub(lambda m: m[1] + self._serial(m[2]), text)
        text = _NAMED.sub(lambda m: f"{self._mac(int(m[0], 16)):012x}", text)
        text = _GUID.sub(lambda m: _split(self._guid(_hex(m[0])), 16, 4), text)
        return _HARDWARE_ID.sub(lambda m: f"{self._guid(int(m[0], 16)):0{len(m[0])}x}", text)

    def _user(self, name: str) -> str:
        return name if _KNOWN_USER.fullmatch(name) else f"process-{self._nth('process', name)}"

    def _apart(self, word: str) -> str:
        by, size = ("-", 2) if "-" in word else (".", 4)
        return _split(self._mac(int(word.replace(by, ""), 16)), 12, size).replace(":", by)

    def _serial(self, word: str) -> str:
        return word if not re.search(r"\d", word) else f"serial-{self._nth('serial', word)}"

    def _nth(self, sort: str, secret: str | int) -> int:
        given = self._given.setdefault(sort, {})
        key = secret.lower() if isinstance(secret, str) else f"{secret:x}"
        return given.setdefault(key, len(given) + 1)

    def _mac(self, mac: int) -> int:
        return mac if _NO_ONES_MAC.fullmatch(_split(mac, 12, 2)) else (0x02 << 40) + self._nth("mac", mac)

    def _bridge(self, match: re.Match[str]) -> str:
        mac = int("".join(f"{int(part, 16):02x}" for part in match[0].split(":")), 16)
        return ":".join(f"{byte:x}" for byte in self._mac(mac).to_bytes(6, "big"))

    def _guid(self, guid: int) -> int:
        return (0x02 << 56) + self._nth("guid", guid) if guid else guid

    def _ipv4(self, word: str) -> str:
        try:
            public = ipaddress.IPv4Address(word).is_global
        except ValueError:  # a version number
            return word
        return self._instead(word) if public else word

    def _instead(self, word: str) -> str:
        """Of the addresses for documentation; where these end, of those for benchmarks."""
        nth = self._nth("ipv4", word)
        last = 254
        start = "203.0.113.0" if nth <= last else "198.18.0.0"
        return str(ipaddress.IPv4Address(start) + nth)

    def _ipv6(self, word: str) -> str:
        try:
            address = ipaddress.IPv6Address(word)
        except ValueError:  # a PCI address
            return word
        new = self._address(address)
        if new == address:
            return word
        # As the kernel writes a GID; `exploded` of a mapped address is dotted from Python 3.13 on.
        return _written_out(new) if word.lower() == _written_out(address) else str(new)

    def _address(self, address: ipaddress.IPv6Address) -> ipaddress.IPv6Address:
        if address.ipv4_mapped:
            mapped = ipaddress.IPv4Address(self._ipv4(str(address.ipv4_mapped)))
            return ipaddress.IPv6Address((0xFFFF << 32) + int(mapped))
        if address.is_multicast:
            return address
        if address.is_global:
            return ipaddress.IPv6Address("2001:db8::") + self._nth("ipv6", str(address))
        prefix, own = int(address) >> 64, int(address) & _HALF
        return ipaddress.IPv6Address((prefix << 64) + self._interface(own))

    def _interface(self, own: int) -> int:
        """The lower half of an IPv6 address: a MAC with ff:fe in its middle and a bit turned, or a GUID."""
        if own <= _LARGEST_BY_HAND:
            return own
        high, low = own >> 40, own & 0xFFFFFF
        if (own >> 24) & 0xFFFF != 0xFFFE:  # noqa: PLR2004 - what the comment above says
            return self._guid(own)
        mac = self._mac(((high ^ 0x020000) << 24) + low)
        return ((mac >> 24 ^ 0x020000) << 40) + (0xFFFE << 24) + (mac & 0xFFFFFF)


def _hex(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _written_out(address: ipaddress.IPv6Address) -> str:
    """All 32 digits, in groups of four."""
    return _split(int(address), 32, 4)


def _split(number: int, digits: int, by: int) -> str:
    text = f"{number:0{digits}x}"
    return ":".join(text[start : start + by] for start in range(0, digits, by))


def _word(text: str) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w-]){re.escape(text)}(?![\w-])")
