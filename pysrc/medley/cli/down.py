"""`medley down`: the end of a cluster, on every host."""

import json

from plumbum import cli

from medley.cli.clustered import Clustered, tables, tell


class Down(Clustered):
    DESCRIPTION = (
        "End everything of medley's on every host of cluster.toml: what is served, Ray, and its files."
    )
    DESCRIPTION_MORE = """
Logs, engine environments and models stay. It can be said twice; a host that does not answer is named, and the
others are ended.

Examples:
    /medley down
    /medley down --without spark-2

"""
    as_json = cli.Flag("--json", help="print one JSON object: processes ended by host, problems")

    def main(self) -> int:
        from medley.cli.progress import watch
        from medley.cluster import read
        from medley.everyone import Everyone

        seen, found = watch(), read(self.cluster)
        wanted = found.without(tuple(self.without))
        with Everyone(wanted, seen) as everyone, seen.stage("end the cluster"):
            ended = everyone.ask("end", lambda _: {"part": False}, limit_s=180)
        if self.as_json:
            print(json.dumps({"ended": ended, "problems": tables(everyone.failed)}))
        else:
            for name, each in ended.items():
                left = f", left are {each['left']}" if each["left"] else ""
                print(f"{name}: {'ended' if each['ended'] else 'nothing of medley ran'}{left}")
        return tell(everyone.failed.values())
