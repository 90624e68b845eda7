"""Reserve the slots of a launch on its hosts, and check that its ranks run where the plan has them."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from medley.cluster import membership, model_files, ray_serving, ray_watch
from medley.engine import hidden_variables
from medley.errors import Problem
from medley.progress import Output
from medley.serving import weights
from medley.serving.launches import PreparedLaunch

_QUERY_INTERVAL_S = 4


@dataclass
class RankMonitor:
    """The ranks of an engine on the cluster's hosts; slots are reserved until all ranks have theirs."""

    prepared: PreparedLaunch
    output: Output
    reservation: ExitStack
    """The reserved slots; closed once the ranks have them."""
    addresses: dict[int, str] = field(default_factory=dict)
    """The address of each rank; empty until Ray knows them."""
    next_check_s: float = 0.0

    def require_placement(self) -> None:
        """Print where the ranks of a ready engine are; raise a Problem if the plan has them elsewhere."""
        if not self.prepared.ray_cluster:
            return
        self.reservation.close()
        ranks, plan, slots = (
            ray_serving.list_ranks(self.prepared.ray_cluster),
            self.prepared.launch.plan,
            self.prepared.slots,
        )
        if plan.replicas > 1 and slots:
            self.output.say(f"{plan.replicas} replicas, on {', '.join(slots.used)}")
        else:
            self._note_ranks(ranks)

    def check(self) -> None:
        """List the ranks of a script every few seconds, because its engine never reports that it is ready."""
        cluster, slots = self.prepared.ray_cluster, self.prepared.slots
        if not (cluster and slots) or self.addresses or time.monotonic() < self.next_check_s:
            return
        try:
            ranks = ray_serving.list_ranks(cluster)
        except Problem:  # the head is busy; it is asked again
            ranks = []
        if len(ranks) == sum(slots.used.values()):
            self.reservation.close()
            self._note_ranks(ranks)
        self.next_check_s = time.monotonic() + _QUERY_INTERVAL_S

    def _note_ranks(self, ranks: list[tuple[int, int, str]]) -> None:
        if self.prepared.slots:
            tensor_parallel = self.prepared.launch.plan.tensor_parallel
            ray_serving.require_rank_order(ranks, self.prepared.slots.used, tensor_parallel)
        for rank, (stage, tensor_rank, address) in enumerate(ranks):
            self.addresses[rank] = address
            self.output.say(f"stage {stage}, tensor rank {tensor_rank}: {address}")


@contextmanager
def reserve_slots(prepared: PreparedLaunch, output: Output) -> Iterator[RankMonitor]:
    """Copy the files that the hosts need, and reserve their slots for the body; name a lost host."""
    cluster, slots, order = prepared.cluster, prepared.slots, prepared.order
    name, hub_files = order.weights.name, weights.find_hub_files(order)
    if cluster and slots and prepared.ray_cluster:
        weights.fetch_on_all_hosts(cluster, slots.used, name, hub_files, output.progress)
    elif not prepared.rendezvous:
        weights.fetch_weights(name, hub_files, output.progress)
    with ExitStack() as resources:
        reservation = ExitStack()
        ranks = RankMonitor(prepared, output, reservation)
        if prepared.rendezvous:
            resources.enter_context(prepared.rendezvous.blame_first_host())
        elif cluster and slots and prepared.ray_cluster:
            hidden_variables.write_hidden_names(prepared.launch.annotated_command)
            folder = Path(order.serving.target)
            if folder.is_absolute():
                ray_serving.require_weights(cluster, folder)
            model_files.copy_extra_files(cluster, prepared.launch.model_extras, output.progress)
            resources.enter_context(ray_watch.explain_host_loss(cluster, ranks.addresses))
            resources.enter_context(reservation)
            reservation.enter_context(membership.reserve_slots(cluster, slots.free))
        elif cluster and slots:
            resources.enter_context(membership.reserve_slots(cluster, slots.used))
        yield ranks
