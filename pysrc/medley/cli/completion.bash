# Completion of medley for bash, made by: medley completion bash

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
