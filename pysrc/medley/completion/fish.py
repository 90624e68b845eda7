"""Completion in fish: one line for each thing that can be typed, and where."""

from collections.abc import Iterator

from medley.completion import HOST_NAMES, NOTHING, Offer, Switch, Verb

_BEGIN = r"""# Completion of medley for fish, made by: medley completion fish

function __medley_hosts
    sh -c @HOSTS@
end

# Is the verb that was typed so far this one?
function __medley_at
    set -l verb
    for word in (commandline -opc)[2..-1]
        set -l longer (string trim -- "$verb $word")
        contains -- $longer @PATHS@; and set verb $longer
    end
    test "$verb" = "$argv[1]"
end

complete -c medley -f
"""


def script(medley: Verb) -> str:
    """To be sourced, or to lie as `medley.fish` in a folder of completions."""
    paths = " ".join(_quoted(" ".join(verb.path)) for verb in medley.all() if verb.path)
    begin = _BEGIN.replace("@HOSTS@", _quoted(HOST_NAMES)).replace("@PATHS@", paths)
    return begin + "\n".join(line for verb in medley.all() for line in _lines(verb)) + "\n"


def _lines(verb: Verb) -> Iterator[str]:
    condition = f"__medley_at {_quoted(' '.join(verb.path))}"
    where = f"complete -c medley -n {_quoted(condition)}"
    for each in verb.verbs:
        yield f"{where} -a {each.name} -d {_quoted(each.about)}"
    if verb.offer != NOTHING:
        yield f"{where} {_offered(verb.offer)}"
    for switch in verb.typed:
        yield f"{where} {_names(switch)}{_value(switch)} -d {_quoted(switch.about)}"


def _names(switch: Switch) -> str:
    return " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in switch.names)


def _value(switch: Switch) -> str:
    if switch.argument is None:
        return ""
    return f" -r {_offered(switch.offer)}" if switch.offer.files else f" -x {_offered(switch.offer)}".rstrip()


def _offered(offer: Offer) -> str:
    names = [*offer.words, *(["(__medley_hosts)"] if offer.hosts else [])]
    words = [f"-a {_quoted(' '.join(names))}"] if names else []
    return " ".join([*(["-F"] if offer.files else []), *words])


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
