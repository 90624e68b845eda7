"""`medley init`: writes cluster.toml, out of hosts that the user picks or names."""

import shutil
import sys
from pathlib import Path
from shlex import join
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem, in_words

if TYPE_CHECKING:  # imported by main alone, to keep `medley --help` fast
    from collections.abc import Mapping, Sequence

    from medley.prospects import Prospect
    from medley.visit import Visit


class Init(Verb):
    USAGE = "    {progname} [SWITCHES] [HOST...]\n"
    DESCRIPTION = "Write cluster.toml: look which hosts there are, ask which are meant, see what each is."
    DESCRIPTION_MORE = """
Without names it shows the hosts of your ssh config, those that ssh knows, and neighbours on the links that a
cluster could use; it tries no other address. A HOST is what ssh takes: spark-2, USER@ADDRESS. One
that does not answer is written all the same, with the reason beside it.

Examples:
    /medley init
    /medley init spark-1 spark-2 --yes
    /medley init spark-1 nvidia@192.168.100.11 --keys    give them your ssh key
    /medley init --dry-run                               change nothing

"""
    head = cli.SwitchAttr("--head", str, argname="HOST", help="the one that the others join")
    output = cli.SwitchAttr("--output", str, argname="FILE", help="default: ./cluster.toml")
    keys = cli.Flag("--keys", help="set up ssh keys and names where ssh does not get in")
    only_reached = cli.Flag("--only-reached", help="leave out hosts that are not reached")
    yes = cli.Flag("--yes", help="ask nothing; takes no host key that ssh does not know")
    force = cli.Flag("--force", help="replace the file; the old one is kept as FILE.1")
    dry_run = cli.Flag("--dry-run", help="print what would be done and written; change nothing")

    def main(self, *hosts: str) -> int:
        from medley.cli import talking

        self.asks = talking.is_possible() and not self.yes
        path = Path(str(self.output or "cluster.toml")).expanduser()
        if not self.dry_run:
            _require_free(path, force=bool(self.force))
        try:
            made, failed = self._visited(self._chosen(hosts))
            head = self._head(made)
        except (KeyboardInterrupt, EOFError):
            print(f"\nmedley: {path} was not written", file=sys.stderr)
            raise KeyboardInterrupt from None
        text = _text(made, head)
        if self.dry_run:
            print(f"\n{text}", end="")
        else:
            _write(path, text)
            print(f"{path} is written, with {head} as its head. Now: medley up")
        return 1 if failed else 0

    def _chosen(self, hosts: "Sequence[str]") -> "dict[str, Prospect]":
        """By the names that they will have."""
        from medley import mention, prospects, visit

        given = tuple(prospects.of(mention.typed(word)) for word in hosts) or self._offered()
        chosen = {each.name: each for each in given}
        if len(chosen) < len(given):
            double = next(each.name for each in given if each is not chosen[each.name])
            raise Problem(
                f"{double} is named twice", cause="a cluster has each host once", fix="name it once"
            )
        if self.head and str(self.head) not in chosen:
            raise visit.no_head(str(self.head), chosen)
        return chosen

    def _offered(self) -> "tuple[Prospect, ...]":
        """What this host knows of others, of which the user takes some."""
        from medley import prospecting, prospects
        from medley.cli import talking

        found = prospecting.found()
        for refused in found.refused:
            print(f"medley: {refused}", file=sys.stderr)
        if not self.asks:
            named = [each.name for each in found.prospects] or ["spark-1", "spark-2"]
            more = () if self.yes or self.dry_run else ("--yes",)
            raise Problem(
                "medley init needs to be told the hosts",
                cause="nobody is there to choose: no terminal, or --yes",
                fix=f"name those that are meant: {join((*self.typed, *named, *more))}",
            )
        usual = prospects.default(found.prospects)
        print(f"looked at {', '.join(found.where)}:")
        for number, each in enumerate(found.prospects, 1):
            print(f"  {number:2}  {each.name:20}  {each.shown}")
        default = " ".join(str(found.prospects.index(each) + 1) for each in usual)
        question = "which hosts? numbers, or names of others"
        return talking.asked(question, default, lambda said: prospects.chosen(said, found.prospects))

    def _visited(self, chosen: "Mapping[str, Prospect]") -> "tuple[dict[str, Visit], bool]":
        """What each is; and whether one could not be given a key."""
        from medley import visit
        from medley.cli import visited

        manner = visited.manner(asks=self.asks, dry=bool(self.dry_run))
        made, failed = visited.visited(chosen, manner, keys=bool(self.keys), asks=self.asks)
        renamed = visit.named(made)
        visit.require_apart(renamed)
        if self.keys:
            visited.name(renamed, made, manner)
        return visited.kept(renamed, only_reached=bool(self.only_reached), asks=self.asks), failed

    def _head(self, made: "Mapping[str, Visit]") -> str:
        from medley import visit
        from medley.cli import talking

        wanted: Any = self.head
        default = visit.head(made, wanted)
        if not self.asks or wanted or len(made) == 1:
            return default
        return talking.asked(
            "which is the head, which the others join?", default, lambda said: visit.head(made, said)
        )


def _text(made: "Mapping[str, Visit]", head: str) -> str:
    from medley import cluster_text, visit

    rows = [
        cluster_text.Row(name, each.target, name == head, each.about, each.parts, imaged=each.imaged)
        for name, each in made.items()
    ]
    text = cluster_text.text(rows, *visit.wire(made))
    cluster_text.read_back(text)
    return text


def _require_free(path: Path, *, force: bool) -> None:
    if path.is_dir():
        raise Problem(f"{path} is a folder", cause="the table is a file", fix=f"--output {path}/cluster.toml")
    if path.exists() and not force:
        raise Problem(
            f"{path} is there already",
            cause="medley init would replace it, and what you changed in it",
            fix=f"to replace it and keep the old one as {path.name}.1: --force; or look: --dry-run",
        )


def _write(path: Path, text: str) -> None:
    """The old one is kept beside it."""
    from medley import store

    try:
        if path.exists():
            shutil.copy2(path, f"{path}.1")
        store.write(path, text)
    except OSError as error:
        raise Problem(
            f"{path} cannot be written",
            cause=in_words(error),
            fix="write it where you may: medley init --output ~/.config/medley/cluster.toml",
        ) from error
