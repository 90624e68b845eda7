"""`medley pull`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from medley import config, storage
from medley.cli import flag, switch
from medley.cli.cluster_options import ClusterVerb, build_problem_tables, print_problems, require_hosts
from medley.cli.output import format_table, print_message, print_result
from medley.cli.progress import TransferBars
from medley.cluster.bringup import Bringup
from medley.cluster.fleet import Fleet
from medley.cluster.model_files import ModelPull
from medley.errors import Problem
from medley.model import resolve


class PullVerb(ClusterVerb):
    USAGE = "    {progname} [OPTIONS] MODEL\n"
    origin: str | None = switch("--from HOST", "host that has the model, or downloads it")
    verify: bool = flag("--verify", "compare one copy with the hub and the others with it; copy nothing")
    as_json: bool = flag("--json", "one JSON object: bytes by host, seconds, problems")

    def main(self, model: str) -> int:
        known_cluster, origin = self.read_chosen_cluster(can_be_local=True), self.origin
        # A folder may be on another host than this one, or a part of it here.
        target = str(Path(model))
        if not model.startswith("/"):
            weights = resolve.resolve_weights(
                model, config.load_models(), storage.find_cache_folder(), self.typed_words
            )
            target = weights.target
            if weights.model and weights.model.made:
                raise Problem(
                    f"{weights.name} is sent nowhere",
                    cause="it is made on the spot, on each host by itself",
                    fix=f"medley serve {weights.name}",
                )
        require_hosts(known_cluster, [origin] if origin else [], f"--from {known_cluster.head}")
        began_s, bars = time.monotonic(), TransferBars()
        with _explain_interrupt(), bars, Fleet(known_cluster, on_note=bars.note_host) as fleet:
            bringup = Bringup(fleet, bars)
            bringup.check_hosts()
            bringup.choose_network()
            addresses = {name: end.address for name, end in bringup.endpoints.items()}
            pull = ModelPull(fleet, target, addresses, origin)
            damaged = self.verify and self._is_damaged(pull)
            if not self.verify:
                self._send_model(pull, began_s)
            return print_problems(fleet.failed.values()) or int(damaged)

    def _send_model(self, pull: ModelPull, began_s: float) -> None:
        if pull.find_sources():
            pull.download_model()
        pull.choose_manifest()
        pull.send_along_chain()
        seconds = time.monotonic() - began_s
        received, failed = dict(pull.received_bytes), pull.fleet.failed
        totals = {"size_bytes": pull.size_bytes, "received_bytes": received, "seconds": seconds}
        rows = [(pull.source_hosts[0], "-", "had it")]
        rows += [
            (name, _format_gigabytes(size) if size else "-", "has it" if size else "had it")
            for name, size in received.items()
        ]
        rows += [(name, "-", "failed") for name in failed]
        table_lines = format_table(("HOST", "RECEIVED", "STATE"), rows)
        sent = f"{_format_gigabytes(sum(received.values()))} sent between hosts"
        hosts_text = f"on {len(rows) - len(failed)} of {len(rows)} hosts" if failed else "on each host"
        lines = (
            *table_lines,
            f"\n{_format_gigabytes(pull.size_bytes)} {hosts_text} after {seconds:.0f} s, {sent}",
        )
        result = {**totals, "from": pull.source_hosts[0], "problems": build_problem_tables(failed)}
        print_result(result, lines, as_json=self.as_json)

    def _is_damaged(self, pull: ModelPull) -> bool:
        if pull.find_sources():
            raise Problem(
                f"no host has {pull.target}", cause="there is nothing to compare", fix="medley pull MODEL"
            )
        pull.choose_manifest(reads_all=True)
        source, damage_by_host = pull.source_hosts[0], pull.verify_copies()
        from_hub = pull.compare_with_hub()
        lines = [f"{source}: {from_hub['said']}", *(f"    {line}" for line in from_hub["damage"])]
        for name, damage in damage_by_host.items():
            lines += [f"{name}: {'damaged' if damage else f'as on {source}'}"]
            lines += [f"    {line}" for line in damage]
        if any(damage_by_host.values()):
            lines += ["\nmedley pull fixes it: it sends only what is wrong"]
        damage_by_host[source] = from_hub["damage"]
        table = {
            "damage": damage_by_host,
            "hub": from_hub["said"],
            "problems": build_problem_tables(pull.fleet.failed),
        }
        print_result(table, lines, as_json=self.as_json)
        return any(damage_by_host.values())


@contextmanager
def _explain_interrupt() -> Iterator[None]:
    """Print at Ctrl-C that nothing is lost."""
    try:
        yield
    except KeyboardInterrupt:
        print_message("stopped; what has arrived stays, and the same command goes on with it")
        raise


def _format_gigabytes(size: int) -> str:
    return f"{size / 1e9:.2f} GB"
