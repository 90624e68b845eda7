"""The verbs of `medley`, one module each: they parse, wire and print, and decide nothing."""

from medley import source
from medley.cli.verb import Verb

VERBS = (
    *(
        "facts",
        "env",
        "plan",
        "serve",
        "ask",
        "batch",
        "bench",
        "run",
        "ray-head",
        "ray-worker",
        "ray-stop",
        "join",
        "status",
        "init",
        "up",
        "down",
        "pull",
        "stop",
        "logs",
        "link",
        "ports",
        "service",
        "doctor",
    ),
    *("explain", "top", "collective-test", "completion", "check", "version", "help"),
)


class Medley(Verb):
    """One LLM server out of the NVIDIA boxes you own."""

    PROGNAME = "medley"
    DESCRIPTION = "One LLM server out of the NVIDIA boxes you own."
    # plumbum starts a line of its help anew only at a bullet; of these, / alone is not printed.
    DESCRIPTION_MORE = """
Examples:
    /medley facts            what this host is
    /medley serve demo       serve a tiny model made on the spot, without a GPU
    /medley ask "Hello"      talk to it, from another terminal
    /medley serve --help     more about a verb

"""
    USAGE = "    {progname} VERB [SWITCHES] ...\n"

    def main(self, *words: str) -> int:
        """Without a verb; plumbum calls this before a verb's own main, too."""
        if self.nested_command:
            return 0
        if words:
            raise self.no_verb(words[0])
        self.help()
        return 0


Medley.VERSION = source.version()

for _verb in VERBS:
    Medley.subcommand(_verb, f"medley.cli.{_verb.replace('-', '_')}.{_verb.title().replace('-', '')}")
