"""`medley link`: the wire between hosts: shown, measured, set up, watched."""

from medley.cli.verb import Verb


class Link(Verb):
    DESCRIPTION = "Show, measure, set up or watch the wire between hosts."
    DESCRIPTION_MORE = """
Examples:
    /medley link show             which link would be taken, and why
    /medley link test --serve     on one host; it says what to type on the other
    /medley link test 10.0.0.2    there: bandwidth and latency, below NCCL
    /medley link setup            addresses and MTU for the fast links
    /medley link watch            what each link and RDMA port carries

"""
    USAGE = "    {progname} SUBCOMMAND [SWITCHES] ...\n"

    def main(self) -> int:
        if self.nested_command:
            return 0
        self.help()
        return 0


for _verb in ("show", "test", "setup", "watch"):
    Link.subcommand(_verb, f"medley.cli.link.{_verb}.{_verb.title()}")
