"""A Ray cluster that runs: GPUs it does not have, space it lacks, hosts and workers it loses."""

import re

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "ray-too-few",
        what="Ray's cluster has too few GPUs for the model's ranks (placement group)",
        cause="[{said}][{wanted} are asked for][, and {has} are there]",
        fix="medley status shows each host's slots; ask for fewer ranks (--tp, --pp), or let more hosts "
        "join: medley ray-worker HEAD",
        shapes=(
            shape(
                "Cannot provide a placement group",
                r"Cannot provide a placement group requiring (?P<wanted>[\d.]+ GPUs)",
            ),
            shape("Cannot provide a placement group of", r"(?P<said>Cannot provide a placement group)"),
            shape(
                "exceeds the total",
                r"(?P<said>number of required \w+ exceeds the total number of available \w+ in the "
                r"(?:placement group|cluster))(?:.*Total number of devices: (?P<has>\d+))?",
            ),
            shape(
                "No available node types can fulfill",
                r"(?P<said>No available node types can fulfill [^\n]{0,120})",
            ),
            shape(
                "cannot be scheduled right now",
                r"(?P<said>The following resource request cannot be scheduled right now: [^\n]{0,100})",
            ),
            shape(
                "is infeasible",
                r"(?P<said>(?:placement group|[Tt]ask|[Aa]ctor|request)\b.{0,60} is infeasible[^\n]{0,60})",
            ),
            shape("PlacementGroupSchedulingError", r"(?P<said>PlacementGroup\w*Error.*)"),
        ),
        quiet=True,
        unless=re.compile(r"INFO|Initializing"),
    ),
    Known(
        "ray-waits",
        what="Ray's placement group timed out: the cluster does not have the GPUs that the model waits for",
        cause="after {seconds} s nothing has {wanted} free: too few hosts have joined, or a host has "
        "joined under another"
        " address than VLLM_HOST_IP says",
        fix="medley status shows each host's address and slots; medley ray-head and ray-worker set "
        "VLLM_HOST_IP by the wire",
        shapes=(
            shape(
                "Cannot provide a placement group",
                r"Cannot provide a placement group of placement_group_specs=\[(?P<wanted>.+)\] within "
                r"(?P<seconds>\d+) s",
            ),
            shape(
                "creating a placement group of specs for",
                r"placement group of specs for (?P<seconds>[7-9]\d|\d{3,}) seconds\. "
                r"specs=\[\{?(?P<wanted>[^\]}]*)",
            ),
        ),
        quiet=True,
        over=("ray-too-few",),
    ),
    Known(
        "ray-address-asked",
        what="Ray has no host of the address that the engine asks for, or no free GPU there",
        cause="{address} is asked for: VLLM_HOST_IP is not what ray start was given as "
        "--node-ip-address, or that "
        "host's GPU is taken",
        fix="medley ray-head and ray-worker give both the same; by hand: ray status names the hosts, export "
        "VLLM_HOST_IP=ADDRESS",
        shapes=(
            shape(
                "No available node types can fulfill",
                r"No available node types can fulfill resource request \{'node:(?P<address>[\w.:]+)'",
            ),
        ),
        over=("ray-too-few",),
    ),
    Known(
        "ray-no-gpu-here",
        what="Ray sees no free GPU on the host that serves",
        cause="[its resources are {has}: ]another model has the GPU, or Ray was started without one",
        fix="medley status shows the slots; on Jetson, where Ray does not count the GPU: ray start "
        "--num-gpus 1 (medley ray-head does)",
        shapes=(
            shape(
                "Current node has no",
                r"Current node has no \w+ available\.?(?: current_node_resource=\{(?P<has>[^}]*)\})?",
            ),
            shape("does not allocate any", r"Ray does not allocate any GPUs on the driver node"),
            shape(
                "not included in a placement group", r"driver node \S+ is not included in a placement group"
            ),
        ),
    ),
    Known(
        "ray-disk-full",
        what="the disk of Ray's folder is nearly full",
        cause="{folder} is over {share} full[, {left} are left]: Ray makes no objects any more",
        fix="df -h {folder}; old sessions may go once Ray has ended: rm -r /tmp/ray/session_*",
        shapes=(
            shape(
                "full, available space",
                r"(?P<folder>/\S+) is over (?P<share>[\d.]+%) full, available space: (?P<left>[\d.]+ ?\w*)",
            ),
        ),
        confidence=LOW,
        symptom=True,
        hint=True,
    ),
    Known(
        "ray-store-full",
        what="Ray's object store is full",
        cause="{said}",
        fix="start Ray with a larger one: ray start --object-store-memory 2000000000 (medley ray-head "
        "sets it)",
        shapes=(
            shape("ObjectStoreFullError", r"(?P<said>ObjectStoreFullError.*)"),
            shape("object store is full", r"(?P<said>.*object store is full.*)"),
        ),
    ),
    Known(
        "ray-disk-out",
        what="Ray's disk is full: it can put no objects there any more",
        cause="{said}",
        fix="df -h /tmp/ray; old sessions may go once Ray has ended: rm -r /tmp/ray/session_*; or another "
        "disk: ray start "
        "--temp-dir FOLDER",
        shapes=(
            shape("OutOfDiskError", r"(?P<said>OutOfDiskError.*)"),
            shape(
                "disk's utilization is over capacity",
                r"(?P<said>the local disk's utilization is over capacity.*)",
            ),
        ),
    ),
    Known(
        "ray-host-lost",
        what="Ray lost a host",
        cause="[{host}]: it has not been heard of for too long: its power, its wire, its memory, or its "
        "Ray is gone",
        fix="look there: medley status; sudo dmesg | tail; then medley ray-worker HEAD again",
        shapes=(
            shape(
                "marked dead because",
                r"node with node id: (?P<id>\w+)(?: and (?:address|ip): (?P<host>\S+))?(?: and node name: "
                r"\S+)? "
                r"has been marked dead because",
            ),
            shape("has missed too many heartbeats"),
            shape("mistakenly been marked"),
            shape("NodeDiedError", r"NodeDiedError"),
            shape("Health check failed for node", r"Health check failed for node (?P<host>\S+)"),
            shape("Raylet is terminated", r"Raylet is terminated"),
            shape("raylet process", r"raylet (?:process )?(?:has )?(?:died|exited|crashed)"),
        ),
        quiet=True,
        confidence=MEDIUM,
    ),
    Known(
        "ray-workers-late",
        what="Ray's workers did not come up in time",
        cause="[{count} of them have not registered]: the host is slow at importing, or they die as they "
        "start",
        fix="read what they say: ls -t /tmp/ray/session_latest/logs/worker-*.err | head -3; "
        "RAY_worker_register_timeout_seconds=300 gives them longer",
        shapes=(
            shape("nable to register worker with raylet"),
            shape(
                "not registered within the timeout",
                r"(?:worker process\((?P<count>\d+)\)|Some workers).*have not registered within the timeout",
            ),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "ray-channel-timeout",
        what="a rank gave no answer over Ray in time (RayChannelTimeoutError)",
        cause="{said}",
        fix="explain the logs of all hosts together; give the first requests longer: export "
        "RAY_CGRAPH_get_timeout=1200, or serve without Ray: --launcher mp",
        shapes=(
            shape("RayChannelTimeoutError", r"(?P<said>RayChannelTimeoutError.*)"),
            shape("RayChannelError", r"(?P<said>RayChannelError.*)"),
        ),
        confidence=LOW,
        symptom=True,
    ),
    Known(
        "ray-worker-lost",
        what="a worker process of Ray's died: it was killed (SIGKILL, out of memory) or crashed",
        cause="[on {host}: ]{said}; why stands in that worker's own log",
        fix="see it on that host: ls -t /tmp/ray/session_latest/logs/worker-*.err | head -3, and sudo "
        "dmesg | grep -i killed",
        shapes=(
            shape(
                "Worker exit detail:",
                r"(?:IP address: (?P<host>[\w.:]+).*?)?Worker exit type: (?P<said>\w+ Worker exit detail: "
                r"[^.]+\.(?: End of file)?)",
            ),
            shape(
                "died unexpectedly before finishing",
                r"(?P<said>The actor died unexpectedly before finishing this task)",
            ),
            shape("ActorDiedError", r"(?P<said>ActorDiedError.*)"),
            shape("RayActorError", r"(?P<said>RayActorError.*)"),
            shape("WorkerCrashedError", r"(?P<said>WorkerCrashedError.*)"),
            shape("RayWorkerProc", r"(?P<said>RayWorkerProc rank=\S+ died unexpectedly)"),
            shape(
                "worker died or was killed",
                r"(?P<said>A worker died or was killed while executing a task[^\n]{0,60})",
            ),
        ),
        confidence=LOW,
        symptom=True,
    ),
)
