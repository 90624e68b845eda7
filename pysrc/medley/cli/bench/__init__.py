"""`medley bench`: the engine's own benchmark against what is served, kept and compared."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.bench.drawing import Drawing
from medley.problem import Problem

if TYPE_CHECKING:  # imported when the verb runs, to keep `medley --help` fast
    from medley.bench.aim import Asked
    from medley.bench.load import Load


class Bench(Drawing):
    DESCRIPTION = "Measure what is served with its engine's own benchmark, beside what was predicted."
    DESCRIPTION_MORE = """
It measures what medley serves on this host, or the server that --url names, with random prompts: a warm-up,
then each concurrency, all of them --repeats times. Each run has prompts of its own, for a server need not
read again what it has read before. What was measured is kept after each run, with the plan, the versions,
the hosts' facts (redacted) and the load, in ~/.local/state/medley/bench; Ctrl-C loses nothing of it.

Examples:
    /medley bench
    /medley bench --concurrency 1,8,64 --input-len 2048 --output-len 256
    /medley bench --url http://spark-1:8000/v1 --tokenizer Qwen/Qwen3-8B
    /medley bench --html bench.html
    /medley bench demo --offline --concurrency 1,8
    /medley bench --dry-run
    /medley bench history
    /medley bench show last
    /medley bench compare last-1 last

"""
    USAGE = (
        "    {progname} [SWITCHES]\n"
        "    {progname} [SWITCHES] MODEL --offline [-- ENGINE FLAGS]\n"
        "    {progname} history|show|compare [SWITCHES] …\n"
    )

    url = cli.SwitchAttr(
        "--url", str, argname="URL", help="the server's base; default: what this host serves"
    )
    engine = cli.SwitchAttr(
        "--engine",
        cli.Set("vllm", "sglang"),
        argname="ENGINE",
        help="whose benchmark, with --url: vllm (the default) or sglang",
    )
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="of the benchmark: an engine environment, or your own virtualenv"
    )
    tokenizer = cli.SwitchAttr(
        "--tokenizer",
        str,
        argname="MODEL",
        help="a folder or ORG/NAME; default: what the server says it serves",
    )
    model = cli.SwitchAttr(
        "--model", str, argname="NAME", help="which of the server's models; default: its first"
    )
    key_file = cli.SwitchAttr(
        "--api-key",
        str,
        argname="FILE",
        help="the file of the server's key; default: its own, or MEDLEY_API_KEY",
    )
    concurrency = cli.SwitchAttr("--concurrency", str, "1,4,16", argname="LIST", help="streams at once")
    repeats = cli.SwitchAttr("--repeats", cli.Range(1, 100), 3, argname="N", help="runs of each")
    input_len = cli.SwitchAttr(
        "--input-len", cli.Range(1, 10_000_000), 512, argname="TOKENS", help="of each prompt"
    )
    output_len = cli.SwitchAttr(
        "--output-len", cli.Range(2, 1_000_000), 128, argname="TOKENS", help="of each answer"
    )
    requests = cli.SwitchAttr(
        "--requests",
        cli.Range(1, 1_000_000),
        argname="N",
        help="in each run; default: 4 a stream, at least 8",
    )
    seed = cli.SwitchAttr(
        "--seed", cli.Range(0, 1 << 31), argname="N", help="of the prompts; default: by chance"
    )
    timeout = cli.SwitchAttr(
        "--timeout",
        cli.Range(5, 86_400),
        1800,
        argname="SECONDS",
        help="how long a run may take",
    )
    offline = cli.Flag(
        "--offline",
        excludes=["--url", "--tokenizer", "--model", "--api-key"],
        help="no server: the engine's latency and throughput modes, as it would serve MODEL on this host",
    )
    dry_run = cli.Flag("--dry-run", help="print the commands; start nothing")
    as_json = cli.Flag("--json", help="print one JSON object: the whole record")

    def main(self, *words: str) -> int:
        if self.nested_command:
            return 0
        from medley.bench.aim import aim, require_room
        from medley.bench.measuring import measured
        from medley.cli.bench.told import tell
        from medley.cli.progress import watch

        if self.offline:
            return self._offline(words)
        if words:
            raise _no_model(words[0])
        load, seen = self._load(), watch()
        found = aim(self._asked(), seen)
        require_room(load, found.target.model, found.longest)
        if self.dry_run:
            for run in load.runs():
                print(found.command(run, Path(f"bench-{run.concurrency}-{run.repeat}.json")))
            return 0
        record = measured(found, load, self.timeout, seen)
        self.draw(record)
        tell(record, as_json=self.as_json)
        return 0

    def _offline(self, words: tuple[str, ...]) -> int:
        from medley.bench.offline import measured
        from medley.cli.bench.alone import alone
        from medley.cli.bench.told import tell
        from medley.cli.progress import watch

        if not words or words[0].startswith("-"):
            raise _which_model()
        engine: Any = self.engine or "vllm"
        load, seen = self._load(), watch()
        flags, by = tuple(words[1:]), self.typed
        found = alone(words[0], load, engine, self.environment, flags, dry_run=self.dry_run, typed=by)
        if self.dry_run:
            for mode, run in found.commands(load, seen):
                print(found.command(mode, run, Path(f"{mode}-{run.concurrency}-{run.repeat}.json")))
            return 0
        record = measured(found, load, self.timeout, seen)
        self.draw(record)
        tell(record, as_json=self.as_json)
        return 0

    def _asked(self) -> "Asked":
        from medley.bench.aim import Asked

        engine: Any = self.engine  # plumbum has seen to it that it is of the set
        return Asked(self.url, engine, self.environment, self.tokenizer, self.model, self.key_file)

    def _load(self) -> "Load":
        import secrets

        from medley.bench.load import Load, concurrencies

        asked: Any = self.seed
        seed = secrets.randbelow(1 << 30) if asked is None else asked
        return Load(
            concurrencies(self.concurrency),
            self.repeats,
            self.input_len,
            self.output_len,
            seed,
            self.requests,
        )


def _which_model() -> Problem:
    return Problem(
        "nothing says what is to be measured",
        cause="without a server bench starts the engine itself",
        fix="medley bench demo --offline",
    )


def _no_model(word: str) -> Problem:
    return Problem(
        f"bench takes no model, and {word!r} was given",
        cause="it measures what is served already",
        fix=f"medley serve {word}, and in another terminal: medley bench; or: medley bench {word} --offline",
    )


for _verb in ("show", "history", "compare"):
    Bench.subcommand(_verb, f"medley.cli.bench.{_verb}.{_verb.title()}")
