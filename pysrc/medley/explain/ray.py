"""Ray's cluster: hosts that may not join, do not find its head, or lack what was asked for.

Texts are those of Ray 2.9 to 2.60 (python/ray/_private, python/ray/scripts, src/ray).
"""

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "ray-versions",
        what="this host has another Ray or Python than the cluster",
        cause="[the cluster has Ray {theirs} and Python {their_python}][, this host Ray {ours} and Python "
        "{our_python}]"
        "; both must be equal, Python to the last number",
        fix="give all hosts one environment: medley env build on each; medley ray-worker HEAD compares "
        "before it joins",
        shapes=(
            shape(
                "Version mismatch: The cluster was started with",
                r"(?s)cluster was started with:\s+Ray: (?P<theirs>\S+)\s+Python: "
                r"(?P<their_python>\S+)\s.*?started with:\s+Ray: (?P<ours>\S+)\s+Python: (?P<our_python>\S+)",
            ),
            shape(
                "Version mismatch: The cluster was started with",
                r"Version mismatch: The cluster was started with",
            ),
        ),
        quiet=True,
        more=6,
    ),
    Known(
        "ray-unreachable",
        what="Ray's head (GCS) does not answer",
        cause="[nothing answers at {address}][{said}]: it is not up, listens on another address, or a "
        "firewall stands between",
        fix="see it on the head: medley status; join by the address of the fast link, and open its ports: "
        "medley ports --firewall ufw",
        shapes=(
            shape(
                "onnect to GCS",
                r"(?:Failed|[Uu]nable|Could not) to connect to GCS(?: server)?(?: \([^)]*\))?(?: at| "
                r"on)?(?: address)?:? "
                r"?(?P<address>[\w.-]+:\d+)?",
            ),
            shape("failed to connect to all addresses", r"(?P<said>failed to connect to all addresses)"),
            shape(
                "GCS has started but",
                r"(?P<said>Ray cluster at \S+ is started but|GCS has started but.{0,40})",
            ),
            shape("Failed to get cluster ID from GCS", r"(?P<said>Failed to get cluster ID from GCS server)"),
            shape("GCS address", r"Failed to (?:get|read) .*from GCS address (?P<address>[\w.-]+:\d+)"),
            shape(
                "ray client",
                r"(?P<said>(?:Request can't be sent because the Ray client|ConnectionError: ray client "
                r"connection timeout))",
            ),
            shape(
                "The current node timed out during startup",
                r"(?P<said>The current node timed out during startup)",
            ),
            shape(
                "Failed to connect to Ray cluster",
                r"Failed to connect to Ray cluster at (?P<address>[\w.-]+:\d+)",
            ),
        ),
        quiet=True,
    ),
    Known(
        "ray-none",
        what="no Ray runs on this host",
        cause="nothing was started here, or it ended: an engine over several hosts needs Ray on each",
        fix="medley ray-head on the first host, medley ray-worker HEAD on the others, or without Ray: "
        "medley serve MODEL --launcher mp",
        shapes=(
            shape("Could not find any running Ray instance"),
            shape("Can't find a `node_ip_address.json`"),
            shape("No cluster found. Starting local", r"No cluster found\. Starting local"),
        ),
    ),
    Known(
        "ray-port-taken",
        what="Ray's port is taken: another Ray head runs on this host",
        cause="{address}: something listens there already, most often a Ray that was not stopped",
        fix="end that: medley ray-stop (without medley: ray stop --force)",
        shapes=(
            shape(
                "does not match persisted value",
                r"(?P<address>Session name \S+ does not match persisted value)",
            ),
            shape(
                "already running at",
                r"Ray is trying to start at \S+, but is already running at (?P<address>[\w.:-]+)\b",
            ),
            shape(
                "already occupied",
                r"(?:port|to bind to) (?P<address>\S+?),? (?:because it's|is) already occupied",
            ),
            shape("Failed to bind", r"Failed to bind to (?P<address>\S+) because"),
        ),
        over=("port-taken",),
    ),
    Known(
        "ray-token",
        what="Ray's cluster does not take this host's authentication token",
        cause="{said}",
        fix="bring the head's token: medley ray-worker HEAD --token-file FILE; by hand the same "
        "~/.ray/auth_token (0600) and RAY_AUTH_MODE=token on every host",
        shapes=(
            shape("InvalidAuthToken", r"(?P<said>InvalidAuthToken: .+)"),
            shape("authentication token is invalid", r"(?P<said>the authentication token is invalid[\w ]*)"),
            shape("uthenticated", r"(?P<said>(?:Unauthenticated|UNAUTHENTICATED): .+)"),
            shape("AuthenticationError", r"ray\.exceptions\.AuthenticationError: (?P<said>.+)"),
        ),
        over=("ray-unreachable",),
    ),
    Known(
        "ray-token-none",
        what="Ray wants an authentication token, and this host has none",
        cause="{said}",
        fix="the head makes one: medley ray-head; bring it: medley ray-worker HEAD --token-file FILE; by "
        "hand: ray get-auth-token --generate",
        shapes=(
            shape(
                "no authentication token was found",
                r"(?P<said>Token authentication is enabled but no authentication token was found)",
            ),
            shape(
                "couldn't find an authentication token",
                r"(?P<said>Ray couldn't find an authentication token)",
            ),
        ),
        over=(
            "ray-unreachable",
            "ray-token",
        ),
    ),
    Known(
        "ray-address",
        what="Ray knows this host by another address",
        cause="the host has {has}, and Ray expects {wants}",
        fix="give Ray the address of the fast link: medley ray-worker HEAD --link NAME, which sets "
        "VLLM_HOST_IP too; then medley ray-stop and join anew",
        shapes=(
            shape(
                "expects this IP address",
                r"This node has an IP address of (?P<has>\S+), (?:and|while) Ray expects this IP address "
                r"to be (?P<wants>\S+?)\.?(?:\s|$)",
            ),
        ),
    ),
    Known(
        "ray-addresses-equal",
        what="two hosts of the cluster have one address",
        cause="{hosts} hosts have {addresses} addresses: VLLM_HOST_IP is the same on several",
        fix="unset VLLM_HOST_IP, or give each host its own before ray start (medley ray-worker does)",
        shapes=(
            shape(
                "should have a unique IP",
                r"unique IP address\. Got (?P<hosts>\d+) nodes with node ids .* and (?P<addresses>\d+) "
                r"unique",
            ),
        ),
    ),
    Known(
        "ray-missing",
        what="Ray is not installed in this environment",
        cause="{said}: newer images and wheels of vLLM come without it",
        fix="take an environment that has it: medley env build; or serve without Ray: medley serve MODEL "
        "--launcher mp",
        shapes=(
            shape("ray: ", r"(?P<said>\bray: (?:command )?not found)"),
            shape("Failed to import Ray", r"(?P<said>Failed to import Ray)"),
            shape("No module named 'ray", r"(?P<said>No module named 'ray')"),
            shape("Ray is not installed", r"(?P<said>Ray is not installed)"),
            shape("sglang[ray]", r"(?P<said>.*sglang\[ray\].*)"),
        ),
        over=("module-missing",),
    ),
    Known(
        "ray-cpu",
        what="vLLM does not run over Ray on this platform",
        cause="vLLM says that the platform {platform} does not support Ray",
        fix="medley env build adds what it needs (medley serve uses it); or serve without Ray: medley "
        "serve MODEL --launcher mp",
        shapes=(shape("does not support ray", r"current platform (?P<platform>\S+) does not support ray"),),
    ),
    Known(
        "ray-nodes-flag",
        what="--nnodes and Ray were both asked for",
        cause="vLLM starts hosts itself (mp) or leaves it to Ray, not both",
        fix="take one: --distributed-executor-backend mp with --nnodes, or ray without it; medley serve "
        "MODEL --launcher mp or ray",
        shapes=(shape("nnodes > 1 can only be set"),),
    ),
    Known(
        "ray-socket-path",
        what="Ray's folder has too long a path",
        cause="its sockets may have {limit} letters",
        fix="ray start --temp-dir /tmp/ray",
        shapes=(shape("AF_UNIX path length", r"AF_UNIX path length cannot exceed (?P<limit>\d+)"),),
    ),
    Known(
        "ray-working-dir",
        what="Ray's working_dir does not exist on this host",
        cause="{said}",
        fix="name a folder that is here in runtime_env, or leave working_dir out: ls -d FOLDER",
        shapes=(
            shape(
                "must be an existing directory", r"(?P<said>directory \S+ must be an existing directory.*)"
            ),
            shape(
                "working_dir",
                r"(?P<said>[^\n]{0,80}working_dir[^\n]{0,80}(?:not (?:exist|found|a valid)|[Ff]ailed).*)",
            ),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "ray-store-size",
        what="Ray's object store is set larger than the host's memory",
        cause="{said}",
        fix="take less: ray start --object-store-memory 2000000000 (medley ray-head sets it)",
        shapes=(
            shape(
                "After taking into account object store",
                r"(?P<said>After taking into account object store.*?\(-[\d.]+ GB\))",
            ),
            shape(
                "object store memory",
                r"(?P<said>[^\n]{0,60}object store memory[^\n]{0,60}(?:less than|exceeds|larger than|greater"
                r" than|must be)"
                r".*)",
            ),
            shape(
                "cap object store memory usage",
                r"(?P<said>Attempting to cap object store memory usage at \d+ bytes.*)",
            ),
        ),
    ),
)
