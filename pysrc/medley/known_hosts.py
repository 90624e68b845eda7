"""Known hosts are those whose key ssh has seen; a file that hashes their names tells nothing."""

from collections.abc import Iterator

from medley.mention import SSH_PORT, Mention, is_address

_HASHED = "|"
_MARK = "@"
_PATTERN = set("*?!")
_FIELDS = 3
"""Names, the sort of the key, the key."""


def mentions(text: str, file: str) -> tuple[Mention, ...]:
    """One for each line of names in plain letters; of IPv6 addresses there is no use here."""
    return tuple(dict.fromkeys(_mentions(text, file)))


def _mentions(text: str, file: str) -> Iterator[Mention]:
    seen: set[tuple[str, int]] = set()
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if len(words) < _FIELDS or words[0].startswith((_HASHED, _MARK, "#")):
            continue
        for port, names in _by_port(words[0]).items():
            first = next((name for name in names if not is_address(name)), names[0])
            if (first, port) not in seen:  # a line for each sort of key
                seen.add((first, port))
                also = names if port == SSH_PORT else tuple(f"{name}:{port}" for name in names)
                yield Mention(first, "known_hosts", f"{file}:{number}", also, port)


def _by_port(field: str) -> dict[int, tuple[str, ...]]:
    found: dict[int, tuple[str, ...]] = {}
    for word in field.split(","):
        name, port = _bracketed(word) if word.startswith("[") else (word, SSH_PORT)
        if name and ":" not in name and not _PATTERN & set(name):
            found[port] = (*found.get(port, ()), name)
    return found


def _bracketed(word: str) -> tuple[str, int]:
    """`[name]:2222`"""
    name, _, port = word[1:].partition("]:")
    return (name, int(port)) if port.isdecimal() else ("", 0)
