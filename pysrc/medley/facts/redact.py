"""A redacted transcript says the same of a host, and not whose or which one it is.

What is equal stays equal: the second GPU's UUID becomes ...0002 wherever it stands, and a MAC address is
replaced by the same one in a link's own address, in the IPv6 address made of it and in a GID.
"""

import ipaddress
import re
from collections.abc import Callable, Iterable

from medley.transcript import Answer, Transcript

_UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.IGNORECASE)
_MAC = re.compile(r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
# A bridge's id, 8000.2:42:ac:11:0:2, leaves zeros out; systemd names a USB adapter enx0242ac110002.
_BRIDGE = re.compile(r"(?<=\b[0-9a-f]{4}\.)(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}(?![0-9a-f:])")
_NAMED = re.compile(r"(?<=\benx)[0-9a-f]{12}\b")
# IPoIB's address: a queue pair, fe80::/64 and the port's GUID.
_IPOIB = re.compile(r"(?<![0-9a-f:])((?:[0-9a-f]{2}:){12})((?:[0-9a-f]{2}:){7}[0-9a-f]{2})(?![0-9a-f:])")
_GUID = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{4}:){3}[0-9A-Fa-f]{4}(?![\w:.])")
_HARDWARE_ID = re.compile(r'(?<=_id":")[0-9a-f]{8,64}(?=")')
_IPV4 = re.compile(r"(?<![\w.-])\d{1,3}(?:\.\d{1,3}){3}(?![\w.-])")
_IPV6 = re.compile(r"(?<![\w:.])(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?![\w:.])")
_HOME = re.compile(r"(?<=/home/)[^/\s]+")
# What a GPU's user is called may be a project's name; these are nobody's.
_GPU_USER = re.compile(r"^( +Name +: )(\S+)$", re.MULTILINE)
_KNOWN_USER = re.compile(
    r"python[0-9.]*|Xorg|Xwayland|gnome-\S+|kwin\S*|plasmashell|firefox|chrome|chromium|vllm|ray|raylet|ollama"
    r"|llama-server|tritonserver|(VLLM|ray|sglang)::\S*|\[Not|N/A"
)
# Of a rule of nftables or iptables.
_COMMENT = re.compile(r"((?:--comment|(?<!-m) comment) )(\"[^\"\n]*\"|\S+)")
# Broadcast, none, and the groups that every bridge listens to tell nothing.
_NO_ONES_MAC = re.compile(r"ff:ff:ff:ff:ff:ff|00:00:00:00:00:00|01:00:5e:.*|01:80:c2:.*|33:33:.*")
_HALF = (1 << 64) - 1
_LARGEST_BY_HAND = 0xFFFF


def redact(answers: Transcript, names: Iterable[str] = ()) -> Transcript:
    """Without serial numbers, MAC and global addresses, users' homes and programs, the host `names` given."""
    redactor = _Redactor(names)
    return {
        question: Answer(redactor.text(answer.text), answer.status) for question, answer in answers.items()
    }


def redactor(names: Iterable[str] = ()) -> Callable[[str], str]:
    """The same for any text: what is equal stays equal from one text to the next."""
    return _Redactor(names).text


class _Redactor:
    """Remembers what each secret was replaced by."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [re.compile(rf"(?<![\w-]){re.escape(name)}(?![\w-])") for name in names if name]
        self._given: dict[str, dict[str, int]] = {}

    def text(self, text: str) -> str:
        text = _UUID.sub(lambda m: f"00000000-0000-0000-0000-{self._nth('uuid', m[0]):012x}", text)
        text = self._hardware(text)
        text = _IPV4.sub(lambda m: self._ipv4(m[0]), text)
        text = _IPV6.sub(lambda m: self._ipv6(m[0]), text)
        text = _HOME.sub("user", text)
        text = _COMMENT.sub(r'\1""', text)
        text = _GPU_USER.sub(lambda m: m[1] + self._user(m[2]), text)
        for name in self._names:
            text = name.sub("host-1", text)
        return text

    def _hardware(self, text: str) -> str:
        text = _IPOIB.sub(lambda m: m[1] + _split(self._guid(_hex(m[2])), 16, 2), text)
        text = _MAC.sub(lambda m: _split(self._mac(_hex(m[0])), 12, 2), text)
        text = _BRIDGE.sub(self._bridge, text)
        text = _NAMED.sub(lambda m: f"{self._mac(int(m[0], 16)):012x}", text)
        text = _GUID.sub(lambda m: _split(self._guid(_hex(m[0])), 16, 4), text)
        return _HARDWARE_ID.sub(lambda m: f"{self._guid(int(m[0], 16)):0{len(m[0])}x}", text)

    def _user(self, name: str) -> str:
        return name if _KNOWN_USER.fullmatch(name) else f"process-{self._nth('process', name)}"

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
        return new.exploded if word == address.exploded else str(new)

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


def _split(number: int, digits: int, by: int) -> str:
    text = f"{number:0{digits}x}"
    return ":".join(text[start : start + by] for start in range(0, digits, by))
