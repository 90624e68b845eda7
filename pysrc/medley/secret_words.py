"""Secrets in a text of any form: tokens, keys, passwords, cookies, signed addresses, what a model was asked.

Every pattern takes time in proportion to the text: each repetition is bounded or possessive, and begins where
no other can. `redaction` says what it was told is secret; the patterns find what nobody could tell.
"""

import re
from collections.abc import Iterable

HIDDEN = "HIDDEN"
_LEAST = 6
"""Characters of a secret that is looked for as it is."""
# NAME=, NAME:, "NAME": or --NAME and a space, or '--NAME', of a list; brackets may follow.
_NAMED = re.compile(
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


def hidden(text: str, secrets: Iterable[str] = ()) -> str:
    """The text without these secrets, and without what looks like one."""
    for secret in secrets:
        if len(secret) >= _LEAST:
            text = text.replace(secret, HIDDEN)
    text = _PRIVATE.sub(HIDDEN, text)
    text = _ASKED.sub(rf"\1\2{HIDDEN}", text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    text = _SHAPES.sub(HIDDEN, text)
    text = _DIGITS.sub(HIDDEN, text)
    text = _BEARER.sub(rf"\1 {HIDDEN}", text)
    text = _USER_IN_URL.sub(HIDDEN, text)
    text = _QUERY.sub(HIDDEN, text)
    return _without_assigned(text)


def is_secret_name(name: str) -> bool:
    """Of a variable, a flag, a header or a key of a table."""
    return bool(_SECRET_NAME.search(_snake(name)))


def _snake(name: str) -> str:
    return _HUMP.sub("_", name.strip("-")).replace("-", "_").replace(".", "_").lower()


def _without_assigned(text: str) -> str:
    """Values of flags, variables and keys whose name says that they are secret; a sentence's words stay."""
    parts, at = [], 0
    for named in _NAMED.finditer(text):
        name = named["flag"] or named["name"]
        if named.start() < at or not is_secret_name(name):
            continue
        listed = _VALUES.match(text, named.end()) if named[0][-1] in "[({" else None
        value = listed or _VALUE.match(text, named.end())
        if value and not _is_plain(value[0].strip("\"'"), name):
            parts += [text[at : named.end()], HIDDEN]
            at = value.end()
    return "".join((*parts, text[at:]))


def _is_plain(value: str, name: str) -> bool:
    password = value.isdigit() and _PASSWORD.search(_snake(name))
    return bool(_PLAIN.fullmatch(value)) and not password
