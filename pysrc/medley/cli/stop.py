"""`medley stop`: the end of what is served, here or on the head of the cluster."""

import sys

from plumbum import cli

from medley.cli.staying import AtHead


class Stop(AtHead):
    DESCRIPTION = "End the served model, on this host or on the head of cluster.toml's cluster; Ray goes on."
    DESCRIPTION_MORE = """
It ends what serve started, in a terminal or with --detach, and returns when nothing of it is left.

Examples:
    /medley stop
    /medley stop --port 8001

"""
    port = cli.SwitchAttr("--port", cli.Range(1, 65_535), argname="PORT", help="that one alone; default: all")

    def main(self) -> int:
        from medley import serving

        if head := self.head_elsewhere():
            return self.typed_at(head)
        count = serving.end(self.port, lambda text: print(text, file=sys.stderr))
        print(f"ended {count} server{'s' if count != 1 else ''}" if count else "nothing is served here")
        return 0
