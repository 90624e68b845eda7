"""`medley pull`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medley import config, storage
from medley.cli import flag, switch
from medley.cli.cluster_options import Clustered, print_problems, require_hosts, tables
from medley.cli.output import format_table, print_result, say
from medley.cli.progress import TransferBars
from medley.cluster.bringup import Bringup
from medley.cluster.fleet import Fleet
from medley.cluster.model_files import ModelPull
from medley.errors import Problem
from medley.model import resolve


class PullVerb(Clustered):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    origin: str | None = switch("--from HOST", "host that has the model, or downloads it")
    verify: bool = flag("--verify", "compare one copy with the hub and the others with it; copy nothing")
    as_json: bool = flag("--json", "one JSON object: bytes by host, seconds, problems")

    def main(self, model: str) -> int:
        wanted, origin = self.wanted(alone=True), self.origin
        # A folder may be on another host than this one, or a part of it here.
        target = str(Path(model))
        if not model.startswith("/"):
            found = resolve.resolve_weights(model, config.models(), storage.cache(), self.typed_words)
            target = found.target
            if found.model and found.model.made:
                raise Problem(
                    f"{found.name} is sent nowhere",
                    cause="it is made on the spot, on each host by itself",
                    fix=f"medley serve {found.name}",
                )
        require_hosts(wanted, [origin] if origin else [], f"--from {wanted.head}")
        began, bars = time.monotonic(), TransferBars()
        with _keeping(), bars, Fleet(wanted, on_note=bars.note_host) as everyone:
            bringup = Bringup(everyone, bars)
            bringup.check_hosts()
            bringup.choose_network()
            addresses = {name: end.address for name, end in bringup.endpoints.items()}
            pull = ModelPull(everyone, target, addresses, origin)
            damaged = self.verify and self._is_damaged(pull)
            if not self.verify:
                self._bring(pull, began)
            return print_problems(everyone.failed.values()) or int(damaged)

    def _bring(self, pull: ModelPull, began: float) -> None:
        if pull.find_sources():
            pull.download_model()
        pull.choose_manifest()
        pull.send_model()
        seconds = time.monotonic() - began
        received, failed = dict(pull.received_bytes), pull.fleet.failed
        said = {"size_bytes": pull.size_bytes, "received_bytes": received, "seconds": seconds}
        rows = [(pull.source_hosts[0], "-", "had it")]
        rows += [
            (name, _gigabytes(size) if size else "-", "has it" if size else "had it")
            for name, size in received.items()
        ]
        rows += [(name, "-", "failed") for name in failed]
        drawn = format_table(("HOST", "RECEIVED", "STATE"), rows)
        sent = f"{_gigabytes(sum(received.values()))} sent between hosts"
        where = f"on {len(rows) - len(failed)} of {len(rows)} hosts" if failed else "on each host"
        lines = (*drawn, f"\n{_gigabytes(pull.size_bytes)} {where} after {seconds:.0f} s, {sent}")
        found = {**said, "from": pull.source_hosts[0], "problems": tables(failed)}
        print_result(found, lines, as_json=self.as_json)

    def _is_damaged(self, pull: ModelPull) -> bool:
        if pull.find_sources():
            raise Problem(
                f"no host has {pull.target}", cause="there is nothing to compare", fix="medley pull MODEL"
            )
        pull.choose_manifest(fresh=True)
        source, found = pull.source_hosts[0], pull.verify_copies()
        from_hub = pull.compare_with_hub()
        lines = [f"{source}: {from_hub['said']}", *(f"    {each}" for each in from_hub["damage"])]
        for name, damage in found.items():
            lines += [f"{name}: {'damaged' if damage else f'as on {source}'}"]
            lines += [f"    {each}" for each in damage]
        if any(found.values()):
            lines += ["\nmedley pull fixes it: it sends only what is wrong"]
        found[source] = from_hub["damage"]
        table = {"damage": found, "hub": from_hub["said"], "problems": tables(pull.fleet.failed)}
        print_result(table, lines, as_json=self.as_json)
        return any(found.values())


@contextmanager
def _keeping() -> Iterator[None]:
    """Say at Ctrl-C that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; what has arrived stays, and the same command goes on with it")
        raise


def _gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
