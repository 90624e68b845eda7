"""A served model: its engine, from the command that starts it until it ends, here or over a cluster."""

import json
import sys
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from medley import api, api_key, brought, carry, described, lasting, loss, serving, spreading, store
from medley.batch.sending import Answering
from medley.cli.progress import watch
from medley.cli.ready import ready, url
from medley.supervise import supervise

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from medley.described import Description
    from medley.engine import Engine, Serving
    from medley.launch import Launch
    from medley.meeting import Meeting
    from medley.membership import Membership
    from medley.spreading import Taken


class Ended(Exception):  # noqa: N818 - no error: what it was started for is done
    """The model was served for one thing, and that is done."""


@dataclass(frozen=True)
class Served:
    engine: "Engine"
    launch: "Launch"
    listens: "Serving"
    limit_s: float
    """Until it must be ready."""
    as_json: bool
    then: "Callable[[Answering], None] | None" = None
    """What is to be done once it is ready; then it ends."""
    on_ready: "Callable[[], None]" = lambda: None
    what: "Description | None" = None
    """What it runs, for whoever measures it."""

    def here(self, joined: "Membership | None", taken: "Taken | None") -> NoReturn:
        """On this host alone; in a cluster its slots are taken while it runs."""
        with ExitStack() as held:
            if joined and taken:
                held.enter_context(spreading.held(joined, taken.slots))
            self._run(lambda: None)

    def spread(self, joined: "Membership", taken: "Taken") -> NoReturn:
        """Over the cluster's hosts, each rank where the plan has it."""
        carry.write(self.launch.reasoned)
        folder = Path(self.listens.target)
        if folder.is_absolute():
            spreading.require_weights(joined, folder)
        brought.bring(joined, self.launch.beside, watch())
        places: dict[int, str] = {}
        with loss.told_of_loss(joined, places), ExitStack() as start:
            start.enter_context(spreading.held(joined, taken.spare))

            def placed() -> None:
                start.close()
                seen = spreading.ranks(joined)
                plan = self.launch.plan
                if plan.replicas > 1:
                    say(f"{plan.replicas} replicas, on {', '.join(taken.slots)}")
                    return
                spreading.require_order(seen, taken.slots, plan.tensor_parallel)
                for rank, (stage, tensor, address) in enumerate(seen):
                    places[rank] = address
                    say(f"stage {stage}, tensor rank {tensor}: {address}")

            self._run(placed, lasting.Watch(joined).look)

    def together(self, met: "Meeting") -> NoReturn:
        """With the processes of other hosts, each started by itself."""
        with met.blamed():
            self._run(lambda: None, met.require_all)

    def _run(self, placed: "Callable[[], None]", check: "Callable[[], None]" = lambda: None) -> NoReturn:
        listens, where = self.listens, url(self.listens)
        key = api_key.read(listens.key) if listens.key else None
        if listens.key_config and key:
            api_key.configure(listens.key_config, key)
        log = store.state() / "logs" / f"serve-{listens.port}.log"
        for reason in (*self.launch.plan.why, *self.launch.beside.why()):
            say(reason)
        say(f"$ {self.launch.command}")
        noted = serving.noted(where, listens.name, listens.port, listens.key)
        with noted as tell, described.kept(listens.port, self.what), serving.log(log) as keep:
            for reason in self.launch.plan.why:
                keep(f"medley: {reason}")
            keep(f"$ {self.launch.command}")

            forms = {key, repr(key)[1:-1], json.dumps(key)[1:-1]} if key else set()

            def on_line(line: str) -> None:
                for form in forms:  # SGLang says its whole configuration, as Python writes it
                    line = line.replace(form, "API-KEY")
                keep(line)
                print(line, file=sys.stderr)

            def on_ready(completion: "api.Completion", seconds: float) -> None:
                placed()
                if key or not api_key.opens(listens.address):
                    api.require_guarded(where, key)
                if self.then:
                    self.then(Answering(where, listens.name, key))
                    raise Ended
                self.on_ready()
                tell("ready")
                ready(where, listens, completion, seconds, as_json=self.as_json)

            supervise(
                self.launch.command,
                url=where,
                model=listens.name,
                limit_s=self.limit_s,
                log=log,
                on_line=on_line,
                on_ready=on_ready,
                last_error=self.engine.last_error,
                fatal=self.engine.fatal,
                key=key,
                check=check,
            )


@contextmanager
def stopped() -> "Iterator[None]":
    """Say so where Ctrl-C ends the body."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; nothing of it runs any more")
        raise


def say(text: str) -> None:
    print(f"medley: {text}", file=sys.stderr)
