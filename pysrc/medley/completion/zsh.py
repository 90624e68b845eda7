"""Completion in zsh: one function for each verb, whose switches are specifications for `_arguments`."""

from medley.completion import HOST_NAMES, NOTHING, Offer, Switch, Verb

_BEGIN = r"""#compdef medley
# Completion of medley for zsh, made by: medley completion zsh

_medley_hosts() {
    local -a names
    names=(${(f)"$(_medley_host_names)"})
    compadd "$@" -- $names
}

_medley_host_names() (
@HOSTS@
)

_medley_offer() { # hosts? files? words...
    local hosts=$1 files=$2
    local -a kinds
    shift 2
    (( $# )) && kinds+=("words:word:($*)")
    [[ $hosts == yes ]] && kinds+=('hosts:host:_medley_hosts')
    [[ $files == yes ]] && kinds+=('files:file:_files')
    (( $#kinds )) && _alternative $kinds
}
"""

_END = """
# Autoloaded it is the completion itself; sourced it says what it completes.
if [[ ${funcstack[1]-} == _medley ]]; then
    _medley "$@"
else
    compdef _medley medley
fi
"""

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


def script(medley: Verb) -> str:
    """To be sourced, or to lie as `_medley` in a folder of $fpath."""
    functions = (_function(verb) for verb in reversed(list(medley.all())))
    return _BEGIN.replace("@HOSTS@", HOST_NAMES) + "".join(functions) + _END


def _function(verb: Verb) -> str:
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
