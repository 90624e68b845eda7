"""`medley bench compare`: how many times as fast the second of two benches is, and what differs besides."""

import json

from plumbum import cli

from medley.cli.bench.drawing import Drawing


class Compare(Drawing):
    DESCRIPTION = "Compare two benches: the ratios of their medians, and what differs between them."
    DESCRIPTION_MORE = """
A ratio is the second's by the first's, with the least and the most that their runs allow. Where runs of the
one lie among those of the other it is "within the spread": no difference that these runs could show.

Examples:
    /medley bench compare last-1 last
    /medley bench compare last-1 last --html compared.html
    /medley bench compare 20261121 ./sent-by-ann.json --json

"""
    USAGE = "    {progname} [SWITCHES] FIRST SECOND\n"
    as_json = cli.Flag("--json", help="print one JSON object")

    def main(self, first: str, second: str) -> None:
        from medley.bench import record
        from medley.bench.compared import compared, lines
        from medley.bench.differing import differing

        one, two = record.find(first), record.find(second)
        found = compared(one, two)
        self.draw(one, two)
        if self.as_json:
            table = {"first": one.id, "second": two.id, "differs": differing(one, two)}
            print(json.dumps({**table, "results": [each.table for each in found]}))
            return
        for line in lines(one, two, found):
            print(line)
