# What nixpkgs' hook of that name gives to postInstall, for paths whose names tell what they are.
# shellcheck shell=bash disable=SC2154

installManPage() {
    local path
    for path in "$@"; do
        case $path in
        *.[1-9]) install -D --mode=644 --no-target-directory -- "$path" "$out/share/man/man${path##*.}/${path##*/}" ;;
        *) echo "installManPage: path missing manpage section suffix: $path" >&2 && return 1 ;;
        esac
    done
}

installShellCompletion() {
    local path name to
    for path in "$@"; do
        name=${path##*/}
        case $name in
        ?*.bash) to=bash-completion/completions/$name ;;
        ?*.fish) to=fish/vendor_completions.d/$name ;;
        ?*.zsh) to=zsh/site-functions/_${name%.zsh} ;;
        *) echo "installShellCompletion: unknown shell for path: $path" >&2 && return 2 ;;
        esac
        install -D --mode=644 --no-target-directory "$path" "$out/share/$to"
        [ -s "$out/share/$to" ] || { echo "installed shell completion file $to has zero size" >&2 && return 1; }
    done
}
