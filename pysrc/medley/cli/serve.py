"""`medley serve`: a model, on this host, until Ctrl-C."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from plumbum import cli

from medley.cli.verb import Verb
from medley.problem import Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from medley import api, spreading, weights
    from medley.engine import Serving
    from medley.kind import Kind
    from medley.launch import Launch
    from medley.membership import Membership
    from medley.plan import Plan
    from medley.variables import Variable


class Serve(Verb):
    DESCRIPTION = "Serve a model on this host with an OpenAI-style API, until Ctrl-C."
    DESCRIPTION_MORE = """
MODEL is a name in models/ (demo needs nothing but this program), a folder that holds a model, or ORG/NAME on
the model hub. What comes after -- goes to the engine as it is, and wins over what medley would say.

It is ready when it has answered a completion. The engine's environment is built at first use. On the head of
a cluster (ray-head) it runs over the cluster's hosts, one pipeline stage on each.

Examples:
    /medley serve demo
    /medley serve demo --dry-run
    /medley serve Qwen/Qwen3-8B --port 9000 --gpus 0,1
    /medley serve Qwen/Qwen3-32B --hosts 2 --wait 60
    /medley serve Qwen/Qwen3-32B --hosts 2 --tp 2
    /medley serve ./my-model --served-model-name mine -- --max-model-len 8192

"""
    USAGE = "    {progname} [SWITCHES] MODEL [-- ENGINE FLAGS]\n"
    HINT = "the engine's own flags come after --: medley serve MODEL -- --max-model-len 8192"

    port = cli.SwitchAttr("--port", int, 8000, argname="PORT", help="where it listens")
    host = cli.SwitchAttr(
        "--host",
        str,
        "127.0.0.1",
        argname="ADDRESS",
        help="0.0.0.0 opens it to the network, with no password",
    )
    served_name = cli.SwitchAttr(
        "--served-model-name", str, argname="NAME", help="the name that requests give"
    )
    gpus = cli.SwitchAttr("--gpus", str, argname="LIST", help="GPUs by nvidia-smi's index: 0 or 0,1 or all")
    kind = cli.SwitchAttr("--kind", str, argname="KIND", help="take this host for that kind; see hosts/")
    environment = cli.SwitchAttr(
        "--env", str, argname="ENV", help="an engine environment, or your own virtualenv"
    )
    tensor = cli.SwitchAttr(
        "--tp", cli.Range(1, 64), argname="N", help="tensor parallel: so many ranks share each layer"
    )
    stages = cli.SwitchAttr(
        "--pp", cli.Range(1, 64), argname="N", help="pipeline parallel: so many stages, each of some layers"
    )
    hosts = cli.SwitchAttr(
        "--hosts",
        cli.Range(1, 64),
        argname="N",
        help="so many hosts of the cluster; default: all; 1: this one alone",
    )
    wait = cli.SwitchAttr(
        "--wait", cli.Range(0, 86_400), 0, argname="SECONDS", help="how long to wait for these hosts to join"
    )
    transport = cli.SwitchAttr(
        "--transport", cli.Set("tcp", "rdma"), argname="KIND", help="tcp or rdma; default: what all hosts can"
    )
    timeout = cli.SwitchAttr(
        "--timeout", cli.Range(1, 86_400), 1800, argname="SECONDS", help="how long until it must be ready"
    )
    dry_run = cli.Flag("--dry-run", help="print the command, and why it is as it is; start nothing")
    as_json = cli.Flag(
        "--json", help="print one JSON object: the command, or where the server is once it is ready"
    )

    def main(self, model: str, *flags: str) -> None:
        from medley import config, engine, port, serving, spreading, store, weights
        from medley.cli.progress import watch
        from medley.cli.reasons import show

        if flags and not flags[0].startswith("-"):
            raise _too_many(model, flags)
        found = weights.weights(model, config.models(), store.cache())
        listens = engine.Serving(found.target, self.served_name or found.name, self.host, self.port)
        if not self.dry_run:
            serving.require_none(self.port)
            port.require_free(self.host, self.port)
            weights.ready(found)
        joined = spreading.cluster(self.hosts)
        taken = spreading.taken(joined, self.hosts, self.wait, watch()) if joined else None
        if taken is None or len(taken.slots) == 1:
            joined = taken = None
        kind, plan = self._planned(found, taken)
        cluster = self._cluster(joined, taken) if joined and taken else ()
        launch = self._launch(found, kind, plan, listens, flags=flags, joined=joined, cluster=cluster)
        if self.dry_run:
            show(launch.command, launch.why(), as_json=self.as_json)
            return
        try:
            if joined and taken:
                self._spread(launch, listens, found, joined, taken)
            self._run(launch, listens, lambda: None)
        except KeyboardInterrupt:
            _say("stopped; nothing of it runs any more")
            raise

    def _spread(
        self,
        launch: "Launch",
        listens: "Serving",
        found: "weights.Weights",
        joined: "Membership",
        taken: "spreading.Taken",
    ) -> NoReturn:
        """Run it over the cluster's hosts."""
        from contextlib import ExitStack

        from medley import carry, spreading

        carry.write(launch.command.environment(os.environ))
        if found.local:
            spreading.require_weights(joined, Path(found.target))
        places: dict[int, str] = {}
        with spreading.told_of_loss(joined, places), ExitStack() as start:
            start.enter_context(spreading.held(joined, taken.spare))

            def placed() -> None:
                start.close()
                seen = spreading.ranks(joined)
                spreading.require_order(seen, taken.slots, launch.plan.tensor_parallel)
                for rank, (stage, tensor, address) in enumerate(seen):
                    places[rank] = address
                    _say(f"stage {stage}, tensor rank {tensor}: {address}")

            self._run(launch, listens, placed)

    def _planned(self, found: "weights.Weights", taken: "spreading.Taken | None") -> tuple["Kind", "Plan"]:
        from medley.plan import Asked, plan, spread
        from medley.recognised import recognised

        facts, kind = recognised(self.kind)
        if kind.warning:
            _say(kind.warning)
        asked = Asked(self.gpus, self.tensor, self.stages)
        if taken is None:
            return kind, plan(found.model, kind.host, facts, asked)
        return kind, spread(plan(found.model, kind.host, facts), taken.slots, asked)

    def _cluster(self, joined: "Membership", taken: "spreading.Taken") -> "tuple[Variable, ...]":
        from medley import spreading
        from medley.cli.progress import watch
        from medley.fabric import Wishes

        transport: Any = self.transport  # plumbum has seen to it that it is one of these
        return tuple(spreading.settings(joined, taken, Wishes(transport=transport), os.environ, watch()))

    def _launch(
        self,
        found: "weights.Weights",
        kind: "Kind",
        plan: "Plan",
        listens: "Serving",
        *,
        flags: tuple[str, ...],
        joined: "Membership | None",
        cluster: "tuple[Variable, ...]",
    ) -> "Launch":
        from medley import tools
        from medley.cli.progress import watch
        from medley.launch import launch

        # In a cluster the engine is of the environment whose Ray runs, however this host would choose now.
        named = joined.environment if joined and not self.environment else self.environment
        chosen = (tools.expected if self.dry_run else tools.ready)(kind, named, watch=watch())
        return launch(
            found,
            kind.host,
            plan,
            listens,
            tools=chosen,
            path=os.environ.get("PATH", ""),
            cluster=cluster,
            extra=flags,
        )

    def _run(self, launch: "Launch", listens: "Serving", placed: "Callable[[], None]") -> NoReturn:
        from medley import serving, store
        from medley.cli.ready import ready, url
        from medley.engine.vllm import fatal, last_error
        from medley.supervise import supervise

        where = url(listens)
        log = store.state() / "logs" / f"serve-{listens.port}.log"
        for reason in launch.plan.why:
            _say(reason)
        _say(f"$ {launch.command}")
        with serving.noted(where, listens.name, listens.port), serving.log(log) as keep:

            def on_line(line: str) -> None:
                keep(line)
                print(line, file=sys.stderr)

            def on_ready(completion: "api.Completion", seconds: float) -> None:
                placed()
                ready(where, listens.name, completion, seconds, as_json=self.as_json)

            supervise(
                launch.command,
                url=where,
                model=listens.name,
                limit_s=self.timeout,
                log=log,
                on_line=on_line,
                on_ready=on_ready,
                last_error=last_error,
                fatal=fatal,
            )


def _say(text: str) -> None:
    print(f"medley: {text}", file=sys.stderr)


def _too_many(model: str, words: tuple[str, ...]) -> Problem:
    return Problem(
        f"{words[0]!r} is one model too many",
        cause="serve takes one model; its own switches begin with --, and the engine's flags come after --",
        fix=f"medley serve {model} --port {words[0]}" if words[0].isdigit() else f"medley serve {model}",
    )
