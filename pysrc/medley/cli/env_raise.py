"""`medley env raise`."""

from collections.abc import Iterator

from medley.cli import Verb, flag
from medley.cli.output import print_result
from medley.cli.progress import start_progress
from medley.environment import relock
from medley.environment.relock import LockRelease
from medley.serving import engine_release
from medley.serving.engine_release import UpgradeResult


class EnvRaiseVerb(Verb):
    USAGE = "    {progname} [OPTIONS] NAME [VERSION]\n"
    dry_run: bool = flag("--dry-run", "print the versions that would change; change nothing")
    as_json: bool = flag("--json", "one JSON object")

    def main(self, name: str, version: str = "") -> None:
        if self.dry_run:
            release = relock.resolve_release(name, version or None, progress=start_progress())
            print_result(_build_versions_table(release), _list_version_lines(release), as_json=self.as_json)
            return
        proof = engine_release.upgrade_lock(name, version or None, progress=start_progress())
        table = _build_versions_table(proof.release) | {
            "path": str(proof.environment),
            "gone": proof.removed_flags,
            "new": proof.added_flags,
            "commands": proof.command_count,
            "ran": proof.answers_result,
            "back": _format_undo_command(proof.release),
        }
        print_result(table, _list_proof_lines(proof), as_json=self.as_json)


def _build_versions_table(release: LockRelease) -> dict[str, object]:
    return {
        "name": release.name,
        "from": release.old_version,
        "to": release.new_version,
        "versions": release.list_changes(),
    }


def _list_version_lines(release: LockRelease) -> Iterator[str]:
    for package, (old, new) in release.list_changes().items():
        yield f"{package:<28} {old or 'none'} → {new or 'none'}"


def _list_proof_lines(proof: UpgradeResult) -> Iterator[str]:
    yield from _list_version_lines(proof.release)
    yield f"flags gone   {' '.join(proof.removed_flags) or 'none'}"
    yield f"flags new    {' '.join(proof.added_flags) or 'none'}"
    yield f"parser       takes all {proof.command_count} commands of medley's"
    yield f"served       {proof.answers_result}"
    yield f"environment  {proof.environment}"
    yield f"To go back: {_format_undo_command(proof.release)}"


def _format_undo_command(release: LockRelease) -> str:
    return f"git checkout {' '.join(str(path) for path in release.old_texts)}"
