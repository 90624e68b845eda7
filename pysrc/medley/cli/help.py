"""`medley help`: the help of a verb, as its --help prints it."""

from medley.cli.verb import Verb


class Help(Verb):
    DESCRIPTION = "Print the help of a verb, or of medley itself."
    DESCRIPTION_MORE = """
Examples:
    /medley help serve         the same as medley serve --help
    /medley help env build

"""
    USAGE = "    {progname} [VERB...]\n"

    def main(self, *words: str) -> None:
        from medley.cli import Medley

        shown: Verb = Medley("medley")
        for word in words:
            below = shown.below()
            if word not in below:
                raise shown.no_verb(word)
            shown = below[word](f"{shown.PROGNAME} {word}")
        shown.help()
