"""`medley env raise`."""

import json

from medley.cli import Verb, flag
from medley.cli.progress import watch
from medley.environment import relock
from medley.serving import engine_release


class EnvRaiseVerb(Verb):
    USAGE = "    {progname} [SWITCHES] NAME [VERSION]\n"
    DESCRIPTION_MORE = """
It resolves the lock NAME of this clone for VERSION, or for the newest release on the index, and moves as few
other versions as it can. Then it builds the environment, has the release's own parser take every command
that medley makes, and where the engine runs on this host compares the demo model's tokens with those of the
release before. The lock changes only when all of that is right; the old environment stays.

Examples:
    /medley env raise vllm-cuda
    /medley env raise vllm-cpu 0.32.0
    /medley env raise vllm-cuda --dry-run

"""
    dry_run: bool = flag("--dry-run", help="only resolve, and print which versions would change")
    as_json: bool = flag("--json", help="print one JSON object")

    def main(self, name: str, version: str = "") -> int:
        proof = None
        if self.dry_run:
            release = relock.resolve(name, version or None, watch=watch())
        else:
            proof = engine_release.raise_lock(name, version or None, watch=watch())
            release = proof.release
        back = f"git checkout {' '.join(str(path) for path in release.before)}"
        if self.as_json:
            table: dict[str, object] = {
                "name": name,
                "from": release.old,
                "to": release.new,
                "versions": release.changed(),
            }
            if proof:
                table |= {"path": str(proof.environment), "gone": proof.gone, "new": proof.new}
                table |= {"commands": proof.commands, "ran": proof.ran, "back": back}
            print(json.dumps(table))
            return 0
        for package, (old, new) in release.changed().items():
            print(f"{package:<28} {old or 'none'} → {new or 'none'}")
        if proof:
            print(f"flags gone   {' '.join(proof.gone) or 'none'}")
            print(f"flags new    {' '.join(proof.new) or 'none'}")
            print(f"parser       takes all {proof.commands} commands of medley's")
            print(f"served       {proof.ran}")
            print(f"environment  {proof.environment}")
            print(f"To go back: {back}")
        return 0
