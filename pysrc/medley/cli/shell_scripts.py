"""Completion scripts for bash, zsh and fish."""

from collections.abc import Iterator
from pathlib import Path

from medley.cli.command_tree import NO_VALUES, Switch, VerbEntry, WordValues


def build_bash_script(medley: VerbEntry) -> str:
    """Return a script for `source`, or for the folder of bash-completion."""
    verbs = list(medley.walk())
    paths = sorted(f'"{" ".join(verb.path[:-1])} {verb.name}"' for verb in verbs if verb.path)
    values, cases = "\n".join(_list_value_cases(verbs)), "\n".join(map(_format_verb_case, verbs))
    return _fill_template(
        "bash", HOSTS=_read_host_names_script(), VALUES=values, PATHS=" | ".join(paths), VERBS=cases
    )


def _read_file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _read_host_names_script() -> str:
    """Return POSIX shell code that prints the hosts of the cluster.toml that medley would take.

    A shell may expand an offered word, and the table may be a stranger's: only names are offered.
    """
    return _read_file("host_names.sh").rstrip("\n")


def _fill_template(shell: str, **parts: str) -> str:
    """Return the script next to this module, with each @NAME@ replaced by that part."""
    text = _read_file(f"completion.{shell}")
    for name, part in parts.items():
        text = text.replace(f"@{name}@", part)
    return text


def _list_value_cases(verbs: list[VerbEntry]) -> Iterator[str]:
    """Yield one case for each value, because many verbs offer the same."""
    by_offer: dict[WordValues, list[str]] = {}
    for verb in verbs:
        for switch in verb.switches:
            if switch.argument is not None:
                names = (f'"{" ".join(verb.path)} {name}"' for name in switch.names)
                by_offer.setdefault(switch.values, []).extend(names)
    for offer, switches in by_offer.items():
        yield f"    {' | '.join(sorted(switches))}) {_format_assignments(offer) or ': '};;"


def _format_verb_case(verb: VerbEntry) -> str:
    switches = " ".join(name for switch in verb.all_switches for name in switch.names)
    offer = WordValues(tuple(subverb.name for subverb in verb.verbs)) | verb.argument_values
    return f"        '{' '.join(verb.path)}') {_format_assignments(offer)}switches='{switches}' ;;"


def _format_assignments(offer: WordValues) -> str:
    assignments = {
        "words": " ".join(offer.words),
        "hosts": offer.has_hosts and "yes",
        "files": offer.has_files and "yes",
    }
    return "".join(f"{name}='{value}' " for name, value in assignments.items() if value)


_ZSH_GROUP = """
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


def build_zsh_script(medley: VerbEntry) -> str:
    """Return a script for `source`, or for the file `_medley` in a folder of $fpath."""
    functions = (_format_zsh_function(verb) for verb in reversed(list(medley.walk())))
    return _fill_template("zsh", HOSTS=_read_host_names_script(), FUNCTIONS="".join(functions))


def _format_zsh_function(verb: VerbEntry) -> str:
    name = "_".join(("_medley", *verb.path))
    switches = "".join(
        f" \\\n        {_quote_lines(_format_zsh_switch(switch))}" for switch in verb.all_switches
    )
    if verb.verbs:
        verbs = "\n".join(
            f"        {_quote_lines(f'{subverb.name}:{subverb.description}')}" for subverb in verb.verbs
        )
        offer = (
            ""
            if verb.argument_values == NO_VALUES
            else f"\n            {_format_zsh_offer(verb.argument_values)}"
        )
        return _ZSH_GROUP.format(function=name, verbs=verbs, switches=switches, offer=offer)
    words = (
        ""
        if verb.argument_values == NO_VALUES
        else f" \\\n        {_quote_lines(f'*:word: {_format_zsh_offer(verb.argument_values)}')}"
    )
    return f"\n{name}() {{\n    _arguments{switches}{words}\n}}\n"


def _format_zsh_switch(switch: Switch) -> str:
    """Return a switch in the form of `_arguments`, with one line for each of its names."""
    others = f"({' '.join(switch.names)})" if len(switch.names) > 1 and not switch.is_repeatable else ""
    about = f"[{_escape_letters(switch.help_text, '[]:')}]"
    value = ""
    if switch.argument is not None:
        offer = "" if switch.values == NO_VALUES else f" {_format_zsh_offer(switch.values)}"
        value = f":{_escape_letters(switch.argument, ':')}:{offer}"
    star = "*" if switch.is_repeatable else ""
    equals = {name: "=" if value and name.startswith("--") else "" for name in switch.names}
    return "\n".join(f"{others}{star}{name}{equals[name]}{about}{value}" for name in switch.names)


def _format_zsh_offer(offer: WordValues) -> str:
    hosts, files = ("yes" if is_offered else "no" for is_offered in (offer.has_hosts, offer.has_files))
    return f"_medley_offer {hosts} {files} {' '.join(offer.words)}".rstrip()


def _escape_letters(text: str, special: str) -> str:
    return "".join(f"\\{letter}" if letter in special else letter for letter in text)


def _quote_lines(text: str) -> str:
    return " ".join("'" + line.replace("'", "'\\''") + "'" for line in text.splitlines())


def build_fish_script(medley: VerbEntry) -> str:
    """Return a script for `source`, or for the file `medley.fish` in a folder of completions."""
    paths = " ".join(_quote_fish(" ".join(verb.path)) for verb in medley.walk() if verb.path)
    begin = _fill_template("fish", HOSTS=_quote_fish(_read_host_names_script()), PATHS=paths)
    return begin + "\n".join(line for verb in medley.walk() for line in _list_fish_lines(verb)) + "\n"


def _list_fish_lines(verb: VerbEntry) -> Iterator[str]:
    condition = f"__medley_at {_quote_fish(' '.join(verb.path))}"
    prefix = f"complete -c medley -n {_quote_fish(condition)}"
    for subverb in verb.verbs:
        yield f"{prefix} -a {subverb.name} -d {_quote_fish(subverb.description)}"
    if verb.argument_values != NO_VALUES:
        yield f"{prefix} {_format_fish_offer(verb.argument_values)}"
    for switch in verb.all_switches:
        names, value = _format_fish_names(switch), _format_fish_value(switch)
        yield f"{prefix} {names}{value} -d {_quote_fish(switch.help_text)}"


def _format_fish_names(switch: Switch) -> str:
    return " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in switch.names)


def _format_fish_value(switch: Switch) -> str:
    if switch.argument is None:
        return ""
    return f" {'-r' if switch.values.has_files else '-x'} {_format_fish_offer(switch.values)}".rstrip()


def _format_fish_offer(offer: WordValues) -> str:
    names = [*offer.words, *(["(__medley_hosts)"] if offer.has_hosts else [])]
    words = [f"-a {_quote_fish(' '.join(names))}"] if names else []
    return " ".join([*(["-F"] if offer.has_files else []), *words])


def _quote_fish(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


SCRIPTS = {"bash": build_bash_script, "zsh": build_zsh_script, "fish": build_fish_script}
