"""The switches of what stands beside a model's weights: whether its own code may run, and which."""

from typing import TYPE_CHECKING

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:  # imported when a verb runs, to keep `medley --help` fast
    from medley.beside import Beside
    from medley.weights import Weights


class Besides(Verb):
    trusts_code = cli.Flag(
        "--trust-remote-code",
        excludes=["--no-remote-code"],
        help="run the code that comes with the model, pinned at first use",
    )
    code_revision = cli.SwitchAttr(
        "--code-revision",
        str,
        argname="PIN",
        requires=["--trust-remote-code"],
        help="the commit of that code; for a folder, the SHA-256 that serve shows",
    )
    without_code = cli.Flag(
        "--no-remote-code", help="run none of it: the engine must know the model by itself"
    )

    def besides(
        self, found: "Weights", extra: tuple[str, ...], *, engine: str, starts: bool, refuses: bool = True
    ) -> "Beside":
        """What goes with these weights; all of it is here where it `starts`. `refuses`: or else it warns."""
        import os

        from medley import beside, needs
        from medley.cli.progress import watch
        from medley.trust import Trust, require_through_us, trusted, warning

        said = Trust(self.trusts_code, self.code_revision, self.without_code)
        require_through_us(said, extra)
        refuses = refuses or said.given
        code = trusted(found, said, starts=starts) if refuses else None
        wanted = needs.wanted(found.model, os.environ)
        files = beside.files(wanted, engine, trusted=said.given or not refuses)
        if starts:
            needs.fetch(wanted, watch())
        uses_base = any(need.kind == "tiktoken" for need in (found.model.needs if found.model else ()))
        return beside.Beside(
            code,
            files,
            beside.own_base() if uses_base else None,
            said.refused,
            () if refuses else tuple(warning(found, said)),
        )
