"""Hide what looks like a secret without a name: keys of known services, URLs that let their reader in.

`told` values are hidden in every form in which a log may write them.
"""

import base64
import json
import re
import urllib.parse
from collections.abc import Iterable, Iterator

from medley.host.redact.media import hide_media
from medley.host.redact.named_values import HIDDEN, WORDS

_LEAST = 6
"""Characters of a secret that is looked for as it is."""
_LEAST_LINE = 16
"""Characters of a line without a blank; a script's first line is shorter, or has one."""
_SHAPES, _HOSTS = WORDS["shapes"], WORDS["hosts"]
_IN_URL = r"(?:[^\s\"'`<>\\|]|\\/)"
_PRIVATE_PATTERN = re.compile(
    r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----[^-]*+"
    r"(?:-----END [A-Z ]{0,40}PRIVATE KEY(?: BLOCK)?-----)?"
)
_KEYS_PATTERN = re.compile(
    rf"(?<![A-Za-z0-9])(?:(?:{'|'.join(_SHAPES['prefixes'])})[-_](?=[\w-]{{0,64}}[\dA-Z])[\w-]{{8,}}+"
    rf"|{'|'.join(_SHAPES['others'])})"
)
_LONG_RUN_PATTERN = re.compile(r"[A-Za-z0-9]{14}")
_BEARER_PATTERN = re.compile(
    r"(?i)\b(bearer|basic|digest|negotiate)((?:\s|%20|\\[nt]){1,4})(?=[\w.~+/=-]{0,200}[\d=_.-])[\w.~+/=-]{3,4096}+"
)
# A commit has forty digits as well, and says so; a program's first bytes are no secret.
_DIGITS_PATTERN = re.compile(
    r"(?<![\w:/@.-])(?<!commit )(?<!revision=)(?<!revision=')(?<!revision )(?<!sha1 )(?<!sha256 )"
    r"(?!7f454c46)[0-9a-f]{40,128}+(?![\w-])"
)
_USER_OF_URL_PATTERN = re.compile(
    r"(?<=:/)(\\?/)(?:[^\s/\"'<>\\]{1,512}(?=@)|[^\s/@:\"'\\]{1,64}+:(?!\d{1,5}+(?:[/?#]|$))[^\s\"'<>\\]{1,256}(?=@))"
)
_QUERY_PATTERN = re.compile(rf"([?#])[\w%.\[\]-]{{1,80}}+=(?!HIDDEN){_IN_URL}++")
_QUERY_KEY_PATTERN = re.compile(rf"(?i)[?&#][\w.-]{{0,40}}(?:{'|'.join(_SHAPES['query_keys'])})=[^\s&]")
_WEBHOOK_PATTERN = re.compile(
    rf"(?i)(?<![\w-])({'|'.join(_HOSTS['webhooks'])})(:\d{{1,5}})?((?:\\?/)(?!HIDDEN){_IN_URL}++)"
)
_HOOK_PATH_PATTERN = re.compile(
    rf"(?i)((?:\\?/)[\w-]{{0,40}}(?:webhooks?(?:b2|-test)?|hooks?|incoming)\\?/)(?!HIDDEN){_IN_URL}++"
)
_SCHEME_PATTERN = re.compile(
    rf"(?i)(?<![\w-])((?:{'|'.join(_HOSTS['schemes'])}):\\?/\\?/)(?!HIDDEN){_IN_URL}++"
)
# A part of a path as a program draws it: letters of both cases with digits, or hexadecimal.
_DRAWN = (
    r"(?=[\w-]{0,80}\d)(?:(?=[\w-]{0,80}[A-Z])(?=[\w-]{0,80}[a-z])[\w-]{10,}+|[0-9a-fA-F-]{16,}+(?![\w-]))"
)
_KEY_PATH_PATTERN = re.compile(
    rf"(?<![\w.-])((?i:{'|'.join(_HOSTS['key_folders'])})\\?/(?:[\w.-]{{1,80}}\\?/){{0,3}}?)"
    rf"(?!HIDDEN){_DRAWN}{_IN_URL}*+"
)
# curl's and wget's: a user and a password, and no number of a user and a group.
_LOGIN_PATTERN = re.compile(
    r"(?<![\w-])((?:-[uU]|--user|--proxy-user)(?:[\"']?,?\s{0,40}+[\"']?|=[\"']?))(?!\d+:\d+\b)"
    r"[^\s\"':/=,-][^\s\"':/]{0,128}+:(?!//)[^\s\"']{1,256}+"
)
_NETRC_PATTERN = re.compile(
    r"(?<=\blogin )(\S{1,128}\s{1,8}password\s{1,8})\S++|(\bsshpass\s{1,8}-p\s{0,4})\S++"
)
# A password of a client of containers, or of MySQL, right behind its flag.
_LOGIN_FLAG_PATTERN = re.compile(
    r"(?<![\w-])((?:docker|podman|nerdctl|buildah|skopeo|crane|helm) (?:registry )?login\b"
    r"[^\n;|&]{0,200}?\s-p(?:\s{1,8}|=)|(?:mysql|mysqldump|mysqladmin|mariadb)\b[^\n;|&]{0,200}?\s-p)(?![\s-])[^\s\"']++"
)
# As a service refuses one: no word of a sentence, so with a digit or a sign.
_REFUSED_KEY_PATTERN = re.compile(
    r"(?i)\b((?:(?:api|access|secret|auth)[ _-]?(?:key|token)|token|password|passphrase)"
    r"(?: provided| given| used| for \S{1,64})?:\s{1,4}[\"'`]?)(?=\S{0,200}[\d_=*])(?!HIDDEN)[^\s\"'`]{6,}+"
)
_XML_PATTERN = re.compile(r"(?i)(<[\w:-]{0,40}(?:token|secret|password|api[-_]?key)>)[^<]{1,4096}+(?=</)")


def hide_shapes(text: str) -> str:
    """Replace media, keys, logins, signed queries and the paths of webhooks by HIDDEN."""
    text = _PRIVATE_PATTERN.sub(HIDDEN, hide_media(text))
    text = _USER_OF_URL_PATTERN.sub(rf"\1{HIDDEN}", text)
    text = _WEBHOOK_PATTERN.sub(lambda m: f"{m[1]}{m[2] or ''}/{HIDDEN}", text)
    for pattern in (_HOOK_PATH_PATTERN, _SCHEME_PATTERN, _KEY_PATH_PATTERN):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    text = _QUERY_PATTERN.sub(rf"\1{HIDDEN}", text)
    text = _KEYS_PATTERN.sub(HIDDEN, text)
    text = _DIGITS_PATTERN.sub(HIDDEN, text)
    text = _BEARER_PATTERN.sub(rf"\1\2{HIDDEN}", text)
    text = _LOGIN_PATTERN.sub(rf"\1{HIDDEN}", text)
    text = _NETRC_PATTERN.sub(lambda m: f"{m[1] or m[2]}{HIDDEN}", text)
    for pattern in (_LOGIN_FLAG_PATTERN, _REFUSED_KEY_PATTERN):
        text = pattern.sub(rf"\1{HIDDEN}", text)
    return _XML_PATTERN.sub(rf"\1{HIDDEN}", text)


def has_secret(text: str) -> bool:
    """Return whether text has a secret by its shape.

    A caller refuses the text, so this is stricter than `hide_shapes`: a name such as hf-model-8B is no key,
    a user in a URL is none, and of a query only a key is one.
    """
    return has_secret_path(text) or any(
        pattern.search(text)
        for pattern in (
            _PRIVATE_PATTERN,
            _QUERY_KEY_PATTERN,
            _WEBHOOK_PATTERN,
            _HOOK_PATH_PATTERN,
            _SCHEME_PATTERN,
            _DIGITS_PATTERN,
            _BEARER_PATTERN,
            _LOGIN_PATTERN,
            _NETRC_PATTERN,
            _XML_PATTERN,
        )
    )


def has_secret_path(text: str) -> bool:
    """Return whether text has a key by its shape, or the path of a webhook; the path of a file is none."""
    keys = (match[0] for match in _KEYS_PATTERN.finditer(text))
    return any(map(_LONG_RUN_PATTERN.search, keys)) or _KEY_PATH_PATTERN.search(text) is not None


def told_values(secrets: Iterable[str]) -> re.Pattern[str] | None:
    """Return what finds these values: as they are, quoted for URLs, JSON and shells, and in base64.

    The first half of one, or more, is found at the end of a line, where a program cut its message.
    """
    parts = {part for secret in secrets for part in (secret, *_long_lines(secret)) if len(part) >= _LEAST}
    forms = {form for part in parts for form in _forms(part)}
    longest_first = sorted(forms, key=lambda form: (-len(form), form))
    halves = sorted(
        {part[: len(part) // 2] for part in parts if len(part) >= _LEAST_LINE and " " not in part}
    )
    cut = (rf"{re.escape(half)}\S*+(?=[ \t]*(?:…|(?m:$)))" for half in halves)
    return re.compile("|".join((*map(re.escape, longest_first), *cut))) if forms else None


def _long_lines(secret: str) -> Iterator[str]:
    """Yield the lines of a secret of several, each of which a log may indent or begin with a time."""
    lines = secret.splitlines()
    yield from (line for line in lines if len(lines) > 1 and len(line) >= _LEAST_LINE and " " not in line)


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield from (
        urllib.parse.quote(secret),
        urllib.parse.quote(secret, safe=""),
        urllib.parse.quote_plus(secret),
    )
    for ascii_only in (True, False):
        once = json.dumps(secret, ensure_ascii=ascii_only)[1:-1]
        yield from (once, json.dumps(once)[1:-1], once.replace("/", "\\/"))
    yield secret.encode("unicode_escape").decode()
    yield secret.replace("'", "'\"'\"'")
    yield secret.replace("'", "'\\''")
    raw = secret.encode("utf-8", "replace")
    yield raw.hex()
    for before in range(3):
        # Of a longer text in base64, such as user:secret, all but the letters that its neighbors share.
        whole = base64.b64encode(b"\0" * before + raw).decode().rstrip("=")
        inner = whole[(0, 2, 3)[before] : len(whole) - ((before + len(raw)) % 3 > 0)]
        if len(inner) >= _LEAST:
            yield from (inner, inner.replace("+", "-").replace("/", "_"))
