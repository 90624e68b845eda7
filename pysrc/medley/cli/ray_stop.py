"""`medley ray-stop`: end this host's part in a Ray cluster."""

from medley.cli.verb import Verb


class RayStop(Verb):
    DESCRIPTION = "End Ray on this host: the whole cluster on its head, this host's part elsewhere."
    DESCRIPTION_MORE = """
Only processes that medley started are ended; another Ray on this host goes on. It can be said twice.

Examples:
    /medley ray-stop

"""

    def main(self) -> None:
        from medley import membership
        from medley.cli.progress import watch

        with watch().stage("end Ray here"):
            count = membership.stop()
        print(f"ended {count} processes" if count else "no Ray of medley's runs here")
