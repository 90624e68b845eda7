"""Completion in bash: one function, in which every verb and every switch with a value is a case."""

from collections.abc import Iterator

from medley.completion import HOST_NAMES, Offer, Verb

_SCRIPT = r"""# Completion of medley for bash, made by: medley completion bash

_medley_hosts() (
@HOSTS@
)

# What the value of a verb's switch may be: sets words, hosts and files; fails where it takes none.
_medley_value() {
    words='' hosts='' files=''
    case "$1 $2" in
@VALUES@
    *) return 1 ;;
    esac
}

_medley() {
    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]}
    local verb='' before='' word i words hosts files switches=''
    COMPREPLY=()
    # bash takes --switch=value apart at the =
    if [[ $cur == = ]]; then cur=''; elif [[ $prev == = ]]; then prev=${COMP_WORDS[COMP_CWORD - 2]}; fi
    for ((i = 1; i < COMP_CWORD; i++)); do
        word=${COMP_WORDS[i]}
        if _medley_value "$verb" "$before"; then
            before=''
            continue
        fi
        case "$verb $word" in
        @PATHS@) verb=${verb:+$verb }$word ;;
        esac
        before=$word
        [[ $word == -- ]] && break
    done
    if [[ $before == -- ]]; then # what follows is the engine's
        words='' hosts='' files=yes
    elif ! _medley_value "$verb" "$prev"; then
        words='' hosts='' files=''
        case "$verb" in
@VERBS@
        esac
        if [[ $cur == -* || -z $words$hosts$files ]]; then
            words=$switches hosts='' files=''
        fi
    fi
    [[ -z $hosts ]] || words+=" $(_medley_hosts)"
    mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
    if [[ -n $files ]]; then
        compopt -o filenames 2> /dev/null
        mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "$cur")
    fi
}

complete -F _medley medley
"""


def script(medley: Verb) -> str:
    """To be sourced, or to lie where bash-completion looks for it."""
    verbs = list(medley.all())
    paths = sorted(f'"{" ".join(verb.path[:-1])} {verb.name}"' for verb in verbs if verb.path)
    parts = {
        "HOSTS": HOST_NAMES,
        "VALUES": "\n".join(_values(verbs)),
        "PATHS": " | ".join(paths),
        "VERBS": "\n".join(_verb(verb) for verb in verbs),
    }
    text = _SCRIPT
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _values(verbs: list[Verb]) -> Iterator[str]:
    """The same value is offered to many verbs: one case for each."""
    by_offer: dict[Offer, list[str]] = {}
    for verb in verbs:
        for switch in verb.switches:
            if switch.argument is not None:
                names = (f'"{" ".join(verb.path)} {name}"' for name in switch.names)
                by_offer.setdefault(switch.offer, []).extend(names)
    for offer, switches in by_offer.items():
        yield f"    {' | '.join(sorted(switches))}) {_set(offer) or ': '};;"


def _verb(verb: Verb) -> str:
    switches = " ".join(name for switch in verb.typed for name in switch.names)
    offer = Offer(tuple(each.name for each in verb.verbs)) | verb.offer
    return f"        '{' '.join(verb.path)}') {_set(offer)}switches='{switches}' ;;"


def _set(offer: Offer) -> str:
    said = {"words": " ".join(offer.words), "hosts": offer.hosts and "yes", "files": offer.files and "yes"}
    return "".join(f"{name}='{value}' " for name, value in said.items() if value)
