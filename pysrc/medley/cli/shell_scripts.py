"""Completion scripts for bash, zsh and fish."""

from collections.abc import Iterator
from pathlib import Path

from medley.cli.command_tree import NOTHING, Offer, Switch, VerbEntry


def bash_script(medley: VerbEntry) -> str:
    """To be sourced, or to lie where bash-completion looks for it."""
    verbs = list(medley.all())
    paths = sorted(f'"{" ".join(verb.path[:-1])} {verb.name}"' for verb in verbs if verb.path)
    values, cases = "\n".join(_values(verbs)), "\n".join(map(_verb, verbs))
    return _filled("bash", HOSTS=_host_names(), VALUES=values, PATHS=" | ".join(paths), VERBS=cases)


def _text(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _host_names() -> str:
    """POSIX shell that prints the hosts of the table that medley would take.

    A shell may expand what it is offered, and the table may be a stranger's: what is no name is left out.
    """
    return _text("host_names.sh").rstrip("\n")


def _filled(shell: str, **parts: str) -> str:
    """The script beside this module, each @NAME@ in it replaced by that part."""
    text = _text(f"completion.{shell}")
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _values(verbs: list[VerbEntry]) -> Iterator[str]:
    """The same value is offered to many verbs: one case for each."""
    by_offer: dict[Offer, list[str]] = {}
    for verb in verbs:
        for switch in verb.switches:
            if switch.argument is not None:
                names = (f'"{" ".join(verb.path)} {name}"' for name in switch.names)
                by_offer.setdefault(switch.offer, []).extend(names)
    for offer, switches in by_offer.items():
        yield f"    {' | '.join(sorted(switches))}) {_set(offer) or ': '};;"


def _verb(verb: VerbEntry) -> str:
    switches = " ".join(name for switch in verb.typed for name in switch.names)
    offer = Offer(tuple(each.name for each in verb.verbs)) | verb.offer
    return f"        '{' '.join(verb.path)}') {_set(offer)}switches='{switches}' ;;"


def _set(offer: Offer) -> str:
    said = {"words": " ".join(offer.words), "hosts": offer.hosts and "yes", "files": offer.files and "yes"}
    return "".join(f"{name}='{value}' " for name, value in said.items() if value)


_GROUP = """
{function}() {{
    local curcontext="$curcontext" state line
    local -a verbs
    typeset -A opt_args
    verbs=(
{verbs}
    )
    _arguments -C{switches} \\
        '1: :->verb' '*:: :->words'
    case $state in
        verb)
            _describe -t verbs verb verbs{offer}
            ;;
        words)
            curcontext="${{curcontext%:*:*}}:medley-$line[1]:"
            (( $+functions[{function}_$line[1]] )) && {function}_$line[1]
            ;;
    esac
}}
"""


def zsh_script(medley: VerbEntry) -> str:
    """To be sourced, or to lie as `_medley` in a folder of $fpath."""
    functions = (_function(verb) for verb in reversed(list(medley.all())))
    return _filled("zsh", HOSTS=_host_names(), FUNCTIONS="".join(functions))


def _function(verb: VerbEntry) -> str:
    name = "_".join(("_medley", *verb.path))
    switches = "".join(f" \\\n        {_quoted(_specified(switch))}" for switch in verb.typed)
    if verb.verbs:
        verbs = "\n".join(f"        {_quoted(f'{each.name}:{each.about}')}" for each in verb.verbs)
        offer = "" if verb.offer == NOTHING else f"\n            {_offered(verb.offer)}"
        return _GROUP.format(function=name, verbs=verbs, switches=switches, offer=offer)
    words = "" if verb.offer == NOTHING else f" \\\n        {_quoted(f'*:word: {_offered(verb.offer)}')}"
    return f"\n{name}() {{\n    _arguments{switches}{words}\n}}\n"


def _specified(switch: Switch) -> str:
    """As `_arguments` wants it; a switch of two names stands there once for both."""
    others = f"({' '.join(switch.names)})" if len(switch.names) > 1 and not switch.repeats else ""
    about = f"[{_plain(switch.about, '[]:')}]"
    value = ""
    if switch.argument is not None:
        offer = "" if switch.offer == NOTHING else f" {_offered(switch.offer)}"
        value = f":{_plain(switch.argument, ':')}:{offer}"
    star = "*" if switch.repeats else ""
    equals = {name: "=" if value and name.startswith("--") else "" for name in switch.names}
    return "\n".join(f"{others}{star}{name}{equals[name]}{about}{value}" for name in switch.names)


def _offered(offer: Offer) -> str:
    words = " ".join(offer.words)
    return f"_medley_offer {'yes' if offer.hosts else 'no'} {'yes' if offer.files else 'no'} {words}".rstrip()


def _plain(text: str, special: str) -> str:
    return "".join(f"\\{letter}" if letter in special else letter for letter in text)


def _quoted(text: str) -> str:
    return " ".join("'" + line.replace("'", "'\\''") + "'" for line in text.splitlines())


def fish_script(medley: VerbEntry) -> str:
    """To be sourced, or to lie as `medley.fish` in a folder of completions."""
    paths = " ".join(_fish_quoted(" ".join(verb.path)) for verb in medley.all() if verb.path)
    begin = _filled("fish", HOSTS=_fish_quoted(_host_names()), PATHS=paths)
    return begin + "\n".join(line for verb in medley.all() for line in _lines(verb)) + "\n"


def _lines(verb: VerbEntry) -> Iterator[str]:
    condition = f"__medley_at {_fish_quoted(' '.join(verb.path))}"
    where = f"complete -c medley -n {_fish_quoted(condition)}"
    for each in verb.verbs:
        yield f"{where} -a {each.name} -d {_fish_quoted(each.about)}"
    if verb.offer != NOTHING:
        yield f"{where} {_fish_offered(verb.offer)}"
    for switch in verb.typed:
        yield f"{where} {_names(switch)}{_value(switch)} -d {_fish_quoted(switch.about)}"


def _names(switch: Switch) -> str:
    return " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in switch.names)


def _value(switch: Switch) -> str:
    if switch.argument is None:
        return ""
    return f" {'-r' if switch.offer.files else '-x'} {_fish_offered(switch.offer)}".rstrip()


def _fish_offered(offer: Offer) -> str:
    names = [*offer.words, *(["(__medley_hosts)"] if offer.hosts else [])]
    words = [f"-a {_fish_quoted(' '.join(names))}"] if names else []
    return " ".join([*(["-F"] if offer.files else []), *words])


def _fish_quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": bash_script, "zsh": zsh_script, "fish": fish_script}
