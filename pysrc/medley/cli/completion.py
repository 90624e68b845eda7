"""`medley completion`: what a shell offers at Tab, and the manual page, out of the verbs themselves."""

import re
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Mapping

    from medley import completion

_SHELLS = ("bash", "zsh", "fish", "man")


class Completion(Verb):
    DESCRIPTION = "Print the completion script of a shell, or the manual page."
    DESCRIPTION_MORE = """
WHAT is bash, zsh, fish or man. Nix's package has all four installed; elsewhere one line does it, once. The
script is text, so that Tab starts no Python: make it anew when medley is another.

Examples:
    /medley completion bash > ~/.local/share/bash-completion/completions/medley
    /medley completion zsh > ~/.zfunc/_medley         where fpath=(~/.zfunc $fpath)
    /medley completion fish > ~/.config/fish/completions/medley.fish
    /medley completion man > ~/.local/share/man/man1/medley.1

"""
    USAGE = "    {progname} WHAT\n"

    def main(self, what: str) -> None:
        from medley.cli import Medley
        from medley.completion import bash, fish, manual, zsh

        if what not in _SHELLS:
            raise Problem(
                f"there is no completion for {what}",
                cause=f"there are {', '.join(_SHELLS)}",
                fix="medley completion --help",
            )
        tree = verbs(Medley, (), _known())
        written = {"bash": bash.script, "zsh": zsh.script, "fish": fish.script}
        print(manual.page(tree, str(Medley.VERSION)) if what == "man" else written[what](tree), end="")


def verbs(
    verb: type[Verb], path: tuple[str, ...], known: "Mapping[str, completion.Offer]"
) -> "completion.Verb":
    """A verb and all below it, as they describe themselves to plumbum."""
    from medley import completion

    name = " ".join(("medley", *path))
    typed = verb(name)
    usage = tuple(line.strip().format(progname=name) for line in (verb.USAGE or "").splitlines())
    below = (verbs(each, (*path, word), known) for word, each in typed.below().items())
    return completion.Verb(
        path,
        about=verb.DESCRIPTION or "",
        more=re.sub(r"(?m)^(\s+)/", r"\1", verb.DESCRIPTION_MORE or ""),
        usage=usage or (f"{name} [SWITCHES]",),
        switches=tuple(_switch(info, known) for info in typed.infos()),
        offer=_positional(" ".join(usage), path, known),
        verbs=tuple(below),
    )


def _switch(info: Any, known: "Mapping[str, completion.Offer]") -> "completion.Switch":  # noqa: ANN401 - plumbum's
    from medley.completion import NOTHING, Offer, Switch

    offer = NOTHING
    if isinstance(info.argtype, cli.Set):
        offer = Offer(tuple(value for value in info.argtype.values if isinstance(value, str)))
    elif info.argtype is not None:
        offer = known.get(info.argname, NOTHING)
    return Switch(
        names=tuple(f"-{name}" if len(name) == 1 else f"--{name}" for name in info.names),
        about=info.help or "",
        argument=info.argname if info.argtype is not None else None,
        offer=offer,
        repeats=info.list,
    )


def _positional(
    usage: str, path: tuple[str, ...], known: "Mapping[str, completion.Offer]"
) -> "completion.Offer":
    """The words of a verb are those that its usage names; a ROLE is another to each verb."""
    from medley import ports, service
    from medley.completion import NOTHING, Offer

    roles = ports.ROLES if path == ("ports",) else service.ROLES
    here = {"WHAT": Offer(_SHELLS), "ROLE": Offer(roles)}
    if path == ("service", "install"):
        here["HEAD"] = here["ROLE"] | known["HOST"]
    if path[:1] == ("env",):
        here["NAME"] = known["ENV"]
    found = NOTHING
    for word in re.findall(r"\b[A-Z]+\b", usage):
        found |= {**known, **here}.get(word, NOTHING)
    return found


def _known() -> "Mapping[str, completion.Offer]":
    """What words and values that bear a name may be. Most may also be elsewhere."""
    from medley import config
    from medley.completion import FILES, HOSTS, Offer

    kinds = Offer(tuple(sorted(config.files("hosts"))))
    files = dict.fromkeys(("FILE", "PATH[:INSIDE]", "LOG", "IN", "OUT", "SCRIPT"), FILES)
    return {
        **files,
        "HOST": HOSTS,
        "HEAD": HOSTS,
        "KIND": kinds,
        "KINDS": kinds,
        "N|KINDS": kinds,
        "ENV": Offer(tuple(sorted(config.files("locks")))) | FILES,
        "MODEL": Offer(tuple(sorted(config.files("models")))) | FILES,
    }
