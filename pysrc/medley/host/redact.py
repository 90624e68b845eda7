"""Remove names, addresses, serials and secrets from transcripts and logs.

All that leaves the host goes through here: transcripts, reports, results of a bench. What is equal stays
equal: the second GPU's UUID becomes ...0002 wherever it stands, and a MAC address is replaced by the same
one in a link's own address, in the IPv6 address made of it and in a GID. Private addresses stay: the fabric
cannot be understood without them, and they say nothing beyond the user's own network.

Every pattern takes time in proportion to the text: each repetition is bounded or possessive, and begins where
no other can. `Redactor` is told what is secret; the patterns find what nobody could tell.
"""

import getpass
import ipaddress
import os
import platform
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from medley import credentials
from medley.transcript import Answer, Transcript

HIDDEN = "HIDDEN"
_LEAST = 6
"""Characters of a secret that is looked for as it is."""
# NAME=, NAME:, "NAME": or --NAME and a space, or '--NAME', of a list; brackets may follow.
_SECRET_WORDS_NAMED = re.compile(
    r"(?<![\w.-])(?:(?P<flag>--?[\w.-]{1,80}+)(?:[\"']?,?\s{1,4}|[\"']?\s{0,4}[=:]\s{0,4})"
    r"|(?P<name>[\w.-]{1,80}+)[\"']?\s{0,4}[=:]\s{0,4})[\[({]?"
)
_QUOTED = r"\"[^\"\n]{0,4096}\"?|'[^'\n]{0,4096}'?"
_VALUE = re.compile(rf"(?:{_QUOTED}|[^\s\"',;)}}\]]{{1,4096}}+)")
_VALUES = re.compile(rf"(?:{_QUOTED})(?:,\s?(?:{_QUOTED}))*+")
_SECRET_NAME = re.compile(
    r"(?:^|_)(?:token|secrets?|passwo?r?d|passwd|pwd|passphrase|credentials?|apikey|auth|cookie|bearer|sessionid"
    r"|signature|(?:api|access|private|account|secret|signing|encryption|shared|service|master|auth|guard|session)_?keys?)"
    r"(?:_(?:key|value|id|string|file_contents|base64|hash))?$"
)
_PASSWORD = re.compile(r"passwo?r?d|passwd|pwd|passphrase|secret")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# What stands for a value in a sentence, a help text or a repr, and is none.
_PLAIN = re.compile(
    r"(?:HIDDEN|None|none|null|True|False|true|false|yes|no|\*+|<[^>\n]*>?"
    r"|\$\{?\w+\}?|\d{1,12}|\.{3}|…|FILE|KEY|TOKEN|required)"
)
_HEADER = re.compile(
    r"(?i)(?<![\w-])((?:proxy-)?authorization|(?:set-)?cookie|x-api-key|x-auth-token)"
    r"([\"']?\s{0,4}[:=,]\s{0,4})([^\n]{1,8192}+)"
)
_BEARER = re.compile(r"(?i)\b(bearer|basic)\s{1,4}(?=[\w.~+/=-]{0,200}[\d=_.-])[\w.~+/=-]{3,4096}+")
_SHAPES = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:hf|api_org|sk|rk|pk|gsk|ghp|gho|ghs|ghu|ghr|github_pat|glpat|nvapi|xox[abeprs]|dckr_pat"
    r"|pypi|npm|tskey|wandb_v1|r8|figd|shpat|dop_v1|hvs|ntn|lin_api)[-_][\w-]{8,}+"
    r"|AIza[\w-]{20,}+|ya29\.[\w-]{8,}+|(?:AKIA|ASIA)[0-9A-Z]{16}|eyJ[\w-]{8,}+\.[\w-]{8,}+(?:\.[\w-]*+)?)"
)
# A commit has forty digits as well, and says so; a program's first bytes are no secret.
_DIGITS = re.compile(
    r"(?<![\w:/@.-])(?<!commit )(?<!revision=)(?<!revision=')(?<!revision )(?<!sha1 )(?<!sha256 )"
    r"(?!7f454c46)[0-9a-f]{40,128}+(?![\w-])"
)
_USER_IN_URL = re.compile(r"(?<=://)[^/\s:@]{0,256}+(?::[^/\s@]{0,256}+)?(?=@)")
_QUERY = re.compile(r"(?<=\?)(?=[^\s\"'<>]{0,4096}=)[^\s\"'<>]{1,8192}+")
_PRIVATE = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----[^-]*+(?:-----END [A-Z ]{0,40}PRIVATE KEY-----)?"
)
# What vLLM's and SGLang's logs of requests show of them, and what a request itself has: to the line's end.
_ASKED = re.compile(
    r"(?i)(?<!\w)([\"']?(?:prompts?|messages|content|input_ids|prompt_token_ids|texts?|inputs?|query|completion|reasoning_content"
    r"|generated_text|output_text)[\"']?)(\s{0,2}[:=]\s{0,2})(?=[\"'\[{]|\w{1,40}\()[^\n]{1,}+"
)
_HIDING = (
    *((_PRIVATE, HIDDEN), (_ASKED, rf"\1\2{HIDDEN}"), (_HEADER, rf"\1\2{HIDDEN}"), (_SHAPES, HIDDEN)),
    *((_DIGITS, HIDDEN), (_BEARER, rf"\1 {HIDDEN}"), (_USER_IN_URL, HIDDEN), (_QUERY, HIDDEN)),
)
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
    r"(?i)((?<![a-z])serial(?:[ _-]?(?:number|no|num))?[\"' \t]{0,24}[:=][\"' \t]{0,8})"
    r"(?=[\w-]{0,63}\d)([\w-]{4,64})"
)
_HOME = re.compile(r"(?<=/home/)(?!\.)[^/\s:\"',;)]{1,64}+|(?<=/Users/)[^/\s:\"',;)]{1,64}+")
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


HostNames = str | tuple[str, ...]
"""A host's name; several where it has several."""


def redactor_of_host(
    names: Iterable[HostNames] = (), users: Iterable[str] = (), own: Iterable[str] = ()
) -> "Redactor":
    """One that is told what is secret on this host: its own name, its user's, its tokens and keys.

    `names` are of further hosts, `users` of users there, and `own` further names of this host.
    """
    users = {*users, getpass.getuser(), Path.home().name, os.environ.get("SUDO_USER", "")} - _NOBODYS
    from huggingface_hub import constants  # noqa: PLC0415 - 1 ms, and not needed by `medley --help`

    token = Path(constants.HF_TOKEN_PATH)
    # What medley and the hub keep here, and variables that are called so: a log may show any of them.
    secrets = [
        file.read_text(encoding="utf-8", errors="replace").strip()
        for file in (credentials.token_path(), credentials.api_key_path(), token)
        if file.is_file() and os.access(file, os.R_OK)
    ]
    secrets += [value for name, value in os.environ.items() if _is_secret_name(name)]
    return Redactor([(platform.node(), *own), *names], users, secrets)


class Redactor:
    """Remembers what each name and number was replaced by: what is equal stays equal from text to text."""

    def __init__(
        self, names: Iterable[HostNames] = (), users: Iterable[str] = (), secrets: Iterable[str] = ()
    ) -> None:
        """`names` are of hosts; all are told, and replaced wherever they stand as a word."""
        hosts: dict[str, str] = {}
        for each in names:
            known = [name for name in ((each,) if isinstance(each, str) else each) if name]
            new = f"host-{len(set(hosts.values())) + 1}"
            called = next((hosts[name] for name in known if name in hosts), new)
            hosts = {**dict.fromkeys(known, called), **hosts}
        words = list(hosts.items())
        words += [(user, "user") for user in users if user]
        self._secrets = [secret for secret in secrets if len(secret) >= _LEAST]
        # A home that is itself called home holds folders, not other users.
        own_home = f"{Path.home()}/" if Path.home().parent != Path("/") else "\0"
        self._given: dict[str, dict[str, int]] = {}
        self._replacements: tuple[tuple[re.Pattern[str], str | Callable[[re.Match[str]], str]], ...] = (
            (_UUID, lambda m: f"00000000-0000-0000-0000-{self._nth('uuid', m[0]):012x}"),
            (_IPOIB, lambda m: m[1] + _split(self._guid(_hex(m[2])), 16, 2)),
            (_MAC, lambda m: _split(self._mac(_hex(m[0])), 12, 2)),
            (_BRIDGE, self._bridge),
            (_MAC_APART, self._apart),
            (_SERIAL, lambda m: f"{m[1]}serial-{self._nth('serial', m[2])}"),
            (_NAMED, lambda m: f"{self._mac(int(m[0], 16)):012x}"),
            (_GUID, lambda m: _split(self._guid(_hex(m[0])), 16, 4)),
            (_HARDWARE_ID, lambda m: f"{self._guid(int(m[0], 16)):0{len(m[0])}x}"),
            (_IPV4, lambda m: self._ipv4(m[0])),
            (_IPV4_DASHED, lambda m: self._ipv4(m[0].replace("-", ".")).replace(".", "-")),
            (_IPV6, lambda m: self._ipv6(m[0])),
            # Users, and what they called their hosts.
            (_EMAIL, "user@example.org"),
            (_HOME, lambda m: m[0] if m.string.endswith(own_home, 0, m.start()) else "user"),
            (_USER, r"\1user"),
            (_PS, lambda m: m[0] if m[0] in _NOBODYS else "user".ljust(len(m[0]))),
            (_COMMENT, r'\1""'),
            (_GPU_USER, self._gpu_user),
            (_FULL_NAME, self._full_name),
            *((re.compile(rf"(?<![\w-]){re.escape(word)}(?![\w-])"), instead) for word, instead in words),
        )

    def transcript(self, answers: Transcript) -> Transcript:
        return {asked: Answer(self.text(answer.text), answer.status) for asked, answer in answers.items()}

    def text(self, text: str) -> str:
        """The text without what this one was told, and without what looks like a secret or a name."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        for hiding, hidden in _HIDING:
            text = hiding.sub(hidden, text)
        text = _without_assigned(text)
        for pattern, instead in self._replacements:
            text = pattern.sub(instead, text)
        return text

    def table(self, value: Any) -> Any:  # noqa: ANN401 - any JSON
        """The same with each of its texts redacted, keys too.

        The value of a key, and the word behind a flag, whose name says that it is secret is hidden.
        """
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {
                self.text(name): HIDDEN
                if isinstance(part, str) and _is_secret_name(name)
                else self.table(part)
                for name, part in value.items()
            }
        return list(self._words(value)) if isinstance(value, list | tuple) else value

    def _words(self, words: Iterable[Any]) -> Iterator[Any]:
        """Redact the words of a list; in a command a secret stands behind its flag."""
        before: Any = ""
        for word in words:
            named = isinstance(before, str) and before.startswith("-") and _is_secret_name(before)
            yield HIDDEN if named and isinstance(word, str) else self.table(word)
            before = word

    def _full_name(self, match: re.Match[str]) -> str:
        name = match[0]
        if _PUBLIC.fullmatch(name) or name.endswith(_EXAMPLE):
            return name
        return f"name-{self._nth('name', name)}{_EXAMPLE}"

    def _gpu_user(self, match: re.Match[str]) -> str:
        known = _KNOWN_USER.fullmatch(match[2])
        return match[0] if known else f"{match[1]}process-{self._nth('process', match[2])}"

    def _apart(self, match: re.Match[str]) -> str:
        by, size = ("-", 2) if "-" in match[0] else (".", 4)
        return _split(self._mac(int(match[0].replace(by, ""), 16)), 12, size).replace(":", by)

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


def _is_secret_name(name: str) -> bool:
    """Of a variable, a flag, a header or a key of a table."""
    return bool(_SECRET_NAME.search(_snake(name)))


def _snake(name: str) -> str:
    return _HUMP.sub("_", name.strip("-")).replace("-", "_").replace(".", "_").lower()


def _without_assigned(text: str) -> str:
    """Values of flags, variables and keys whose name says that they are secret; a sentence's words stay."""
    parts, at = [], 0
    for named in _SECRET_WORDS_NAMED.finditer(text):
        name = named["flag"] or named["name"]
        if named.start() < at or not _is_secret_name(name):
            continue
        listed = _VALUES.match(text, named.end()) if named[0][-1] in "[({" else None
        value = listed or _VALUE.match(text, named.end())
        said = value[0].strip("\"'") if value else ""
        password = said.isdigit() and _PASSWORD.search(_snake(name))
        if value and (password or not _PLAIN.fullmatch(said)):
            parts += [text[at : named.end()], HIDDEN]
            at = value.end()
    return "".join((*parts, text[at:]))
