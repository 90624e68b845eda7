"""`medley bench history`: the benches that were kept, the newest first."""

import json

from plumbum import cli

from medley.cli.verb import Verb


class History(Verb):
    DESCRIPTION = (
        "List the benches that were kept, the newest first: model, engine, layout, and their best rate."
    )
    DESCRIPTION_MORE = """
Each is a file in ~/.local/state/medley/bench; to forget one, remove it.

Examples:
    /medley bench history
    /medley bench history --json

"""
    as_json = cli.Flag("--json", help="print one JSON list")

    def main(self) -> None:
        from medley.bench import record
        from medley.bench.printed import history, summary
        from medley.cli.clustered import columns

        known = list(record.every())
        if self.as_json:
            print(json.dumps([summary(each) for each in known]))
            return
        if not known:
            print("no bench is kept here; medley bench makes one")
            return
        for line in columns(history(known)):
            print(line)
