"""A served model: its engine, from the command that starts it until it ends, here or over a cluster."""

import os
import sys
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from medley import api_key, carry, serving, spreading, store
from medley.batch.sending import Answering
from medley.cli.ready import ready, url
from medley.engine.vllm import fatal, last_error
from medley.supervise import supervise

if TYPE_CHECKING:
    from collections.abc import Callable

    from medley import api
    from medley.engine import Serving
    from medley.launch import Launch
    from medley.membership import Membership
    from medley.spreading import Taken


class Ended(Exception):  # noqa: N818 - no error: what it was started for is done
    """The model was served for one thing, and that is done."""


@dataclass(frozen=True)
class Served:
    launch: "Launch"
    listens: "Serving"
    limit_s: float
    """Until it must be ready."""
    as_json: bool
    then: "Callable[[Answering], None] | None" = None
    """What is to be done once it is ready; then it ends."""

    def here(self, joined: "Membership | None", taken: "Taken | None") -> NoReturn:
        """On this host alone; in a cluster its slots are taken while it runs."""
        with ExitStack() as held:
            if joined and taken:
                held.enter_context(spreading.held(joined, taken.slots))
            self._run(lambda: None)

    def spread(self, joined: "Membership", taken: "Taken") -> NoReturn:
        """Over the cluster's hosts, each rank where the plan has it."""
        command = self.launch.command
        carry.write((*command.environment(os.environ), *command.secrets))
        folder = Path(self.listens.target)
        if folder.is_absolute():
            spreading.require_weights(joined, folder)
        places: dict[int, str] = {}
        with spreading.told_of_loss(joined, places), ExitStack() as start:
            start.enter_context(spreading.held(joined, taken.spare))

            def placed() -> None:
                start.close()
                seen = spreading.ranks(joined)
                spreading.require_order(seen, taken.slots, self.launch.plan.tensor_parallel)
                for rank, (stage, tensor, address) in enumerate(seen):
                    places[rank] = address
                    say(f"stage {stage}, tensor rank {tensor}: {address}")

            self._run(placed)

    def _run(self, placed: "Callable[[], None]") -> NoReturn:
        listens, where = self.listens, url(self.listens)
        key = api_key.read(listens.key) if listens.key else None
        log = store.state() / "logs" / f"serve-{listens.port}.log"
        for reason in self.launch.plan.why:
            say(reason)
        say(f"$ {self.launch.command}")
        with serving.noted(where, listens.name, listens.port, listens.key), serving.log(log) as keep:

            def on_line(line: str) -> None:
                keep(line)
                print(line, file=sys.stderr)

            def on_ready(completion: "api.Completion", seconds: float) -> None:
                placed()
                if self.then:
                    self.then(Answering(where, listens.name, key))
                    raise Ended
                ready(where, listens, completion, seconds, as_json=self.as_json)

            supervise(
                self.launch.command,
                url=where,
                model=listens.name,
                limit_s=self.limit_s,
                log=log,
                on_line=on_line,
                on_ready=on_ready,
                last_error=last_error,
                fatal=fatal,
                key=key,
            )


def say(text: str) -> None:
    print(f"medley: {text}", file=sys.stderr)
