"""Replace addresses, serials and names by numbers: equal stays equal.

The second GPU's UUID becomes ...0002 wherever it stands, and a MAC address is replaced by the same one in a
link's own address, in the IPv6 address made of it and in a GID. Private addresses stay: the fabric cannot be
understood without them, and they say nothing beyond the user's own network.
"""

import ipaddress
import re
from collections.abc import Callable
from pathlib import Path

from medley import user
from medley.host.redact.named_values import WORDS

NOBODYS = {"root", "user", "nobody", "daemon", "ubuntu", "nvidia", "home", "build", "nixbld"}
"""Names that say nothing of anybody, among them folders that HOME is called by in sandboxes."""
_HOSTS = WORDS["hosts"]
# A name may stand between - and _, as in rank_8.8.4.4-0, and before the full stop of a sentence.
_BEGIN, _END = r"(?<![A-Za-z0-9.])", r"(?![A-Za-z0-9]|\.[A-Za-z0-9])"
_UUID_PATTERN = re.compile(
    r"(?i)(?<![0-9a-z])[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?![0-9a-z])"
)
_MAC_PATTERN = re.compile(r"(?<![0-9A-Fa-f:.])(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?![0-9A-Fa-f:])")
# A bridge's id, 8000.2:42:ac:11:0:2, leaves zeros out; systemd names a USB adapter enx0242ac110002.
_MAC_APART_PATTERN = re.compile(
    r"(?<![A-Za-z0-9-])(?:[0-9A-Fa-f]{2}-){5}[0-9A-Fa-f]{2}(?![A-Za-z0-9-])"
    rf"|{_BEGIN}(?:[0-9A-Fa-f]{{4}}\.){{2}}[0-9A-Fa-f]{{4}}{_END}"
)
_BRIDGE_PATTERN = re.compile(r"(?<=\b[0-9a-f]{4}\.)(?:[0-9a-f]{1,2}:){5}[0-9a-f]{1,2}(?![0-9a-f:])")
_NAMED_PATTERN = re.compile(r"(?:(?<=\benx)|(?<=[_]enx))[0-9a-f]{12}(?![0-9A-Za-z])")
# IPoIB's address: a queue pair, fe80::/64 and the port's GUID.
_IPOIB_PATTERN = re.compile(
    r"(?<![0-9a-f:])((?:[0-9a-f]{2}:){12})((?:[0-9a-f]{2}:){7}[0-9a-f]{2})(?![0-9a-f:])"
)
_GUID_PATTERN = re.compile(rf"(?<!:){_BEGIN}(?:[0-9A-Fa-f]{{4}}:){{3}}[0-9A-Fa-f]{{4}}(?!:){_END}")
_HARDWARE_ID_PATTERN = re.compile(r'(?<=_id":")[0-9a-f]{8,64}(?=")')
_IPV4_PATTERN = re.compile(rf"{_BEGIN}\d{{1,3}}(?:\.\d{{1,3}}){{3}}{_END}")
# nvidia_cudnn_cu13-9.13.0.50-py3, nccl==2.28.3.1 and 2.28.3.1-1+cuda13.0 are versions.
_PACKAGE_BEFORE_PATTERN = re.compile(
    rf"(?i)(?:^|[^a-z0-9])(?:{'|'.join(_HOSTS['packages'])})[-_]?(?:cu\d+)?[-_=<>~!]{{1,2}}\Z"
)
_PACKAGE_AFTER_PATTERN = re.compile(r"[-_](?:py|cp)\d|[-+~]\d*(?:ubuntu|\+|~|cuda|tegra|generic)")
_LONGEST_PACKAGE = 40
# _ before :: is a name of C++.
_IPV6_PATTERN = re.compile(
    r"(?:(?<![\w:.])|(?<=_)(?=[0-9A-Fa-f]))(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{0,4}(?!:)" + _END
)
_IPV4_DASHED_PATTERN = re.compile(r"(?:(?<=ec2-)|(?<!\d)(?<!\d-))\d{1,3}(?:-\d{1,3}){3}(?!-?\d)")
# nvidia-smi -q, dmidecode and lshw; a GPU's PDI is its own as well.
_SERIAL_PATTERN = re.compile(
    r"(?i)((?<![a-z])(?:serial(?:[ _-]?(?:number|no|num))?|pdi)[\"' \t]*+[:=][\"' \t]*+)"
    r"(?=[\w-]{0,63}\d)([\w-]{4,64})"
)
_HOME_PATTERN = re.compile(r"(?<=/home/)(?!\.)[^/\s:\"',;)\\]{1,64}+|(?<=/Users/)[^/\s:\"',;)\\]{1,64}+")
_HOME_QUOTED_PATTERN = re.compile(
    r"(?i)((?:%2F|\\/|\\)(?:home|Users)(?:%2F|\\/|\\{1,4}))[^/\s:\"',;)\\%]{1,64}+"
)
_HOME_SHORT_PATTERN = re.compile(r"(?<![\w/~])~[a-z_][a-z0-9_-]{0,31}(?=/)")
_USER_PATTERN = re.compile(r"(?<![\w-])((?:USER|LOGNAME|USERNAME|SUDO_USER)=[\"']?)[\w.-]{1,64}+")
# A line of ps: user, pid, CPU, memory, sizes.
_PS_PATTERN = re.compile(
    r"^([\w.+-]{1,32})(?=[ ]{1,32}\d{1,8}[ ]{1,8}\d{1,4}\.\d[ ]{1,8}\d{1,3}\.\d )", re.MULTILINE
)
_EMAIL_PATTERN = re.compile(
    r"(?<![\w.+-])[\w.+-]{1,64}+@[\w-]{1,63}(?:\.[\w-]{1,63}){0,5}\.[A-Za-z][\w-]{1,62}(?![\w-])"
)
_LOGIN_PATTERN = re.compile(
    r"(?<![\w.+/@:-])[a-z_][\w.-]{0,31}+@(?=[A-Za-z][\w-]{0,62}(?::|[\s\"']|$)|(?:\d{1,3}\.){3}\d|\[)"
)
_DOTTED_PATTERN = re.compile(r"(?:(?<![\w./@\\-])|(?<=//)|(?<=@))[\w-]++(?:\.[\w-]++)+(?![\w-])(?!\()")
# What stands behind these is a host under any domain: https://, host=, "could not resolve".
_HOST_BEFORE_PATTERN = re.compile(
    r"(?i)(?://(?:HIDDEN@|user@)?|(?:^|[^a-z])(?:host(?:name)?|addr|address|peer|resolve|resolving|ping|ssh|"
    r"scp|known)(?:[\"' ]{0,2}[:=])?[\"' ]{1,2}|(?:host(?:name)?|addr|address)=)\Z"
)
_LONGEST_HOST_WORD = 20
_JOINED_PATTERN = re.compile(r"(.*\.[a-z]+)[-_][a-z]*\d[\w-]*", re.IGNORECASE)
"""A host with a number behind it, such as spark-1.lan_eth0; model.layers.in_proj is none."""
_FILE_ENDINGS = {*_HOSTS["file_endings"]}
_PUBLIC_PATTERN = re.compile(rf"(?:.*\.)?(?:{'|'.join(map(re.escape, _HOSTS['public']))})")
_OWN_PATTERN = re.compile(rf".*\.(?:{'|'.join(map(re.escape, _HOSTS['own']))})")
_TLDS = {*_HOSTS["generic"], *_HOSTS["countries"].split()}
_TLDS_OF_THREE = {*_HOSTS["countries_of_three"].split()}
_LABEL_PATTERN = re.compile(r"[a-z0-9](?:[a-z0-9-]*[a-z0-9])?")
_FIRST_LABEL_PATTERN = re.compile(r"[a-z0-9_](?:[a-z0-9_-]*[a-z0-9])?")
_ANY_TLD_PATTERN = re.compile(r"[a-z]{2,63}|xn--[a-z0-9-]{1,59}")
_THREE = 3
_LONGEST_NAME = 253
# What a GPU's user is called may be a project's name; these are nobody's.
_GPU_USER_PATTERN = re.compile(r"^( +Name +: )(\S+)$", re.MULTILINE)
_KNOWN_USER_PATTERN = re.compile(
    r"python[0-9.]*|Xorg|Xwayland|gnome-\S+|kwin\S*|plasmashell|firefox|chrome|chromium|vllm|ray|raylet|ollama"
    r"|llama-server|tritonserver|(VLLM|ray|sglang)::\S*|\[Not|N/A"
)
# Of a rule of nftables or iptables.
_COMMENT_PATTERN = re.compile(r"((?:--comment|(?<!-m) comment) )(\"[^\"\n]*\"|\S+)")
# Broadcast, none, and the groups that every bridge listens to tell nothing.
_NO_ONES_MAC_PATTERN = re.compile(r"ff:ff:ff:ff:ff:ff|00:00:00:00:00:00|01:00:5e:.*|01:80:c2:.*|33:33:.*")
_HALF = (1 << 64) - 1
_LARGEST_BY_HAND = 0xFFFF
_EUI64 = 0xFFFE
_Replacement = tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]]


class Identities:
    """Remembers what each name and number was replaced by, from text to text."""

    def __init__(self) -> None:
        # A home that is itself called home holds folders, not other users.
        self._own_home = f"{user.find_home()}/" if user.find_home().parent != Path("/") else "\0"
        self._given: dict[str, dict[str, int]] = {}
        self._replacements: tuple[_Replacement, ...] = (
            (_UUID_PATTERN, lambda m: f"00000000-0000-0000-0000-{self._nth('uuid', m[0]):012x}"),
            (_IPOIB_PATTERN, lambda m: m[1] + _split(self._guid(_hex(m[2])), 16, 2)),
            (_MAC_PATTERN, lambda m: _split(self._mac(_hex(m[0])), 12, 2)),
            (_BRIDGE_PATTERN, self._bridge),
            (_MAC_APART_PATTERN, self._apart),
            (_SERIAL_PATTERN, lambda m: f"{m[1]}serial-{self._nth('serial', m[2])}"),
            (_NAMED_PATTERN, lambda m: f"{self._mac(int(m[0], 16)):012x}"),
            (_GUID_PATTERN, lambda m: _split(self._guid(_hex(m[0])), 16, 4)),
            (_HARDWARE_ID_PATTERN, lambda m: f"{self._guid(int(m[0], 16)):0{len(m[0])}x}"),
            (_IPV4_PATTERN, lambda m: m[0] if _is_version(m) else self._ipv4(m[0])),
            (_IPV4_DASHED_PATTERN, lambda m: self._ipv4(m[0].replace("-", ".")).replace(".", "-")),
            (_IPV6_PATTERN, lambda m: self._ipv6(m[0])),
            # Users, and what they called their hosts.
            (_EMAIL_PATTERN, "user@example.org"),
            (_LOGIN_PATTERN, lambda m: m[0] if m[0][:-1] in NOBODYS else "user@"),
            (_HOME_PATTERN, lambda m: m[0] if m.string.endswith(self._own_home, 0, m.start()) else "user"),
            (_HOME_QUOTED_PATTERN, r"\1user"),
            (_HOME_SHORT_PATTERN, "~user"),
            (_USER_PATTERN, r"\1user"),
            (_PS_PATTERN, lambda m: m[0] if m[0] in NOBODYS else "user".ljust(len(m[0]))),
            (_COMMENT_PATTERN, r'\1""'),
            (_GPU_USER_PATTERN, self._gpu_user),
            (_DOTTED_PATTERN, self._host),
        )

    def replace(self, text: str) -> str:
        for pattern, instead in self._replacements:
            text = pattern.sub(instead, text)
        return text

    def _host(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - _LONGEST_HOST_WORD) : match.start()]
        is_called_host = _HOST_BEFORE_PATTERN.search(before) is not None
        joined = _JOINED_PATTERN.fullmatch(match[0])
        for name in (match[0], *([joined[1]] if joined else ())):
            if is_host_name(name, is_called_host=is_called_host):
                return f"name-{self._nth('name', name)}.example.net{match[0][len(name) :]}"
        return match[0]

    def _gpu_user(self, match: re.Match[str]) -> str:
        known = _KNOWN_USER_PATTERN.fullmatch(match[2])
        return match[0] if known else f"{match[1]}process-{self._nth('process', match[2])}"

    def _apart(self, match: re.Match[str]) -> str:
        by, size = ("-", 2) if "-" in match[0] else (".", 4)
        return _split(self._mac(int(match[0].replace(by, ""), 16)), 12, size).replace(":", by)

    def _nth(self, sort: str, secret: str | int) -> int:
        numbers = self._given.setdefault(sort, {})
        key = secret.lower() if isinstance(secret, str) else f"{secret:x}"
        return numbers.setdefault(key, len(numbers) + 1)

    def _mac(self, mac: int) -> int:
        return (
            mac
            if _NO_ONES_MAC_PATTERN.fullmatch(_split(mac, 12, 2))
            else (0x02 << 40) + self._nth("mac", mac)
        )

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
        if not public:
            return word
        # Of the addresses for documentation; where these end, of those for benchmarks.
        nth, last = self._nth("ipv4", word), 254
        return str(ipaddress.IPv4Address("203.0.113.0" if nth <= last else "198.18.0.0") + nth)

    def _ipv6(self, word: str) -> str:
        try:
            address = ipaddress.IPv6Address(word)
        except ValueError:  # a PCI address
            return word
        new = self._address(address)
        if new == address:
            return word
        # As the kernel writes a GID; `exploded` of a mapped address is dotted from Python 3.13 on.
        return _split(int(new), 32, 4) if word.lower() == _split(int(address), 32, 4) else str(new)

    def _address(self, address: ipaddress.IPv6Address) -> ipaddress.IPv6Address:
        if address.ipv4_mapped:
            return ipaddress.IPv6Address(f"::ffff:{self._ipv4(str(address.ipv4_mapped))}")
        if address.is_multicast:
            return address
        if address.is_global:
            return ipaddress.IPv6Address("2001:db8::") + self._nth("ipv6", str(address))
        return ipaddress.IPv6Address((int(address) & ~_HALF) + self._interface(int(address) & _HALF))

    def _interface(self, half: int) -> int:
        """Replace the lower half of an IPv6 address: a MAC with ff:fe in it and a bit turned, or a GUID."""
        if half <= _LARGEST_BY_HAND:
            return half
        high, low = half >> 40, half & 0xFFFFFF
        if (half >> 24) & 0xFFFF != _EUI64:
            return self._guid(half)
        mac = self._mac(((high ^ 0x020000) << 24) + low)
        return ((mac >> 24 ^ 0x020000) << 40) + (_EUI64 << 24) + (mac & 0xFFFFFF)


def _is_version(match: re.Match[str]) -> bool:
    """Return whether a number of four parts is a package's version, not an address."""
    before = match.string[max(0, match.start() - _LONGEST_PACKAGE) : match.start()]
    is_behind = _PACKAGE_BEFORE_PATTERN.search(before) is not None
    return is_behind or _PACKAGE_AFTER_PATTERN.match(match.string, match.end()) is not None


def is_host_name(name: str, *, is_called_host: bool = False) -> bool:
    """Return whether a word with dots is the name of somebody's host, and no file, version or module.

    `is_called_host`: the text calls it a host, so that its domain may be any.
    """
    lower = name.lower()
    first, *further = labels = lower.split(".")
    # A sentence may begin with it; of two parts that is a class: Config.io.
    is_capitalized = name == lower.capitalize() and len(labels) >= _THREE
    has_host_case = name in {lower, name.upper()} or is_capitalized
    if len(name) > _LONGEST_NAME or not has_host_case or _PUBLIC_PATTERN.fullmatch(lower):
        return False
    if first in _HOSTS["modules"] or not any(each.isalpha() for each in first):
        return False
    if _OWN_PATTERN.fullmatch(lower):
        return True
    tld, is_plain = labels[-1], _LABEL_PATTERN.fullmatch(first) is not None
    # As in rank_spark-1.lab.io; tp_group.device.id is none.
    is_joined = len(labels) >= _THREE and tld in _TLDS and _FIRST_LABEL_PATTERN.fullmatch(first) is not None
    if not (is_plain or is_joined) or not all(map(_LABEL_PATTERN.fullmatch, further)):
        return False
    if is_called_host or tld.startswith("xn--"):
        return _ANY_TLD_PATTERN.fullmatch(tld) is not None and tld not in _FILE_ENDINGS
    return tld in _TLDS or (tld in _TLDS_OF_THREE and len(labels) >= _THREE)


def _hex(text: str) -> int:
    return int(text.replace(":", ""), 16)


def _split(number: int, digits: int, by: int) -> str:
    text = f"{number:0{digits}x}"
    return ":".join(text[start : start + by] for start in range(0, digits, by))
