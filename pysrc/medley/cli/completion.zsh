#compdef medley
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
@FUNCTIONS@
# Autoloaded it is the completion itself; sourced it says what it completes.
if [[ ${funcstack[1]-} == _medley ]]; then
    _medley "$@"
else
    compdef _medley medley
fi
