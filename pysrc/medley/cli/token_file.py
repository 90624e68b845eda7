"""The switch by which a host is given the token of another's cluster."""

import sys
from pathlib import Path

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem, in_words


class TokenFile(Verb):
    token_file = cli.SwitchAttr(
        "--token-file", str, argname="FILE", help="the head's token; - is standard input"
    )

    def token(self) -> Path:
        """The file it lies in; it takes the place of one given before once the head has taken it."""
        from medley import token

        if self.token_file is None:
            return token.present()
        if self.token_file == "-":  # noqa: S105 - a file's name
            return token.brought(sys.stdin.read(), "standard input")
        try:
            return token.brought(Path(self.token_file).read_text(encoding="utf-8"), self.token_file)
        except (OSError, UnicodeDecodeError) as error:
            raise Problem(
                f"{self.token_file} cannot be read",
                cause=in_words(error),
                fix="name the copy of the head's token, or - for standard input",
            ) from error
