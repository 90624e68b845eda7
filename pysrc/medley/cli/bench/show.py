"""`medley bench show`: a bench that was kept."""

from plumbum import cli

from medley.cli.bench.drawing import Drawing


class Show(Drawing):
    DESCRIPTION = "Show a bench that was kept: its figures, the prediction, and what it hangs on."
    DESCRIPTION_MORE = """
ID is the beginning of an id, last, last-1 (the one before) …, or a file that somebody sent.

Examples:
    /medley bench show last
    /medley bench show 20261122
    /medley bench show last --html bench.html
    /medley bench show last --json > bench.json

"""
    USAGE = "    {progname} [SWITCHES] [ID]\n"
    as_json = cli.Flag("--json", help="print one JSON object: the whole record")

    def main(self, word: str = "last") -> None:
        from medley.bench import record
        from medley.bench.printed import about
        from medley.cli.bench.told import tell

        found = record.find(word)
        self.draw(found)
        tell(found, as_json=self.as_json)
        if not self.as_json:
            print()
            for name, said in about(found):
                print(f"{name:<8}{said}")
