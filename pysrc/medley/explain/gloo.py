"""Gloo and PyTorch's store: how ranks find each other over TCP before anything is computed.

Texts are those of gloo/transport/tcp and torch/csrc/distributed/c10d, PyTorch 2.3 to 2.13.
"""

from medley.explain.known import LOW, Known, shape

KNOWN = (
    Known(
        "gloo-loopback",
        what="Gloo looks for another host's rank on this host",
        cause="it tries {peer}: a host's own name resolves to 127.0.0.1 (or 127.0.1.1) there, and Gloo "
        "took that address",
        fix="name the wire on every host: export GLOO_SOCKET_IFNAME=NAME (medley link show; medley serve "
        "sets it)",
        shapes=(
            shape(
                "onnect",
                r"[Cc]onnect.*(?:refused|timeout|timed out|failed).*(?P<peer>\[?127\.\d+\.\d+\.\d+\]?:\d+)",
            ),
            shape("remote=[127.", r"remote=\[?(?P<peer>127\.[\d.]+\]?:\d+)"),
        ),
        over=("gloo-refused",),
    ),
    Known(
        "gloo-refused",
        what="a rank does not reach another through Gloo",
        cause="[at {peer} ]a rank refuses or does not answer ({said})",
        fix="open every port between the hosts (medley ports --firewall ufw), and let all name the same wire:"
        " medley link show, export GLOO_SOCKET_IFNAME=NAME",
        shapes=(
            shape(
                "connectFullMesh failed",
                r"connectFullMesh failed.*?(?P<said>Connection refused|[Tt]imed out[^,]*|timeout[^,]*|No "
                r"route[^,]*)(?:.*remote=(?P<peer>\S+))?",
            ),
            shape("connectFullMesh failed", r"connectFullMesh failed with \[[^\]]*\] (?P<said>no error)\s*$"),
            shape("SO_ERROR", r"SO_ERROR: (?P<said>[^,]+), remote=(?P<peer>\S+)"),
            shape("Connect timeout", r"(?P<said>Connect timeout)(?: \[?(?P<peer>\d[^\s\]]*\]?\S*))?"),
            shape("Gloo", r"Gloo.*(?P<said>Connection refused).*?(?P<peer>\[?\d+\.[\d.]+\]?:\d+)"),
        ),
    ),
    Known(
        "gloo-interface",
        what="Gloo does not find the interface it was told to take",
        cause="{name} is not there, or has no address; names differ from host to host",
        fix="medley link show names this host's; then here: export GLOO_SOCKET_IFNAME=NAME",
        shapes=(
            shape("Unable to find", r"Unable to find (?:address|interface) for:? (?P<name>[^\s;,]+)"),
            shape(
                "Unable to resolve hostname", r"Unable to resolve hostname to a \(local\) (?P<name>address)"
            ),
            shape("ifa != nullptr", r"ifa != nullptr\. ?(?:Unable to find \w+ for:? (?P<name>[^\s;,]+))?"),
            shape("ailed to enumerate interfaces", r"(?P<name>.*?[Ff]ailed to enumerate interfaces)"),
        ),
    ),
    Known(
        "rendezvous-port",
        what="the rendezvous port (master port) is in use",
        cause="port {port} is in use on this host: an earlier run still holds it, or another model",
        fix="end that (medley stop, or see who has it: ss -ltnp sport = :{port}), or take another port:"
        " -- --master-port 29555 (vLLM), -- --dist-init-addr HOST:50055 (SGLang)",
        shapes=(
            shape(
                "server socket has failed to listen",
                r"failed to listen on any local network address\.(?: port: (?P<port>\d+))?.*EADDRINUSE",
            ),
            shape(
                "server socket has failed to bind",
                r"server socket has failed to bind to \[?\S*?\]?:(?P<port>\d+) .*Address already in use",
            ),
            shape("EADDRINUSE", r"port: (?P<port>\d+).*EADDRINUSE"),
        ),
        over=("port-taken",),
    ),
    Known(
        "rendezvous-timeout",
        what="the rendezvous timed out: the ranks did not find each other",
        cause="[nothing answered at {peer}][ for {limit} ms][only {came} ranks came within {seconds} s]: "
        "the first host's"
        " process is not up, or a firewall stands between",
        fix="start all hosts with one address of the first host's fast link; test the way: medley link "
        "test HOST, and open"
        " the ports: medley ports --firewall ufw",
        shapes=(
            shape(
                "client socket has timed out",
                r"client socket has timed out after (?P<limit>\d+) ?ms while trying to connect to "
                r"\(?(?P<peer>[^)\n]+?)\)?\.?$",
            ),
            shape(
                "waiting for clients",
                r"[Tt]imed out after (?P<seconds>\d+) seconds waiting for clients\. (?P<came>\d+/\d+)",
            ),
            shape("wait timeout", r"wait timeout after (?P<limit>\d+) ?ms"),
            shape(
                "failed to connect to any network address",
                r"failed to connect to any network address of \((?P<peer>[^)]+)\)",
            ),
            shape(
                "failed to connect/validate",
                r"failed to connect/validate to host (?P<peer>\S+) - timed out .*timeout=(?P<limit>\d+)ms",
            ),
            shape(
                "store based barrier",
                r"Timed out initializing process group in store based barrier .*?timeout=(?P<limit>[\d:]+)",
            ),
            shape("Socket Timeout", r"^(?:RuntimeError|torch\.distributed\.Dist\w+Error): Socket Timeout"),
        ),
    ),
    Known(
        "rendezvous-waits",
        what="a rank does not reach the first host's rendezvous port (master address)",
        cause="nothing answers at {peer}[: {said}]: the first host's process is not up there, or a firewall "
        "stands between",
        fix="start the first host, with the same address on all; test the way: medley link test HOST, and "
        "open the ports: "
        "medley ports --firewall ufw",
        shapes=(
            shape(
                "failed to connect/validate",
                r"TCP client failed to connect/validate to host (?P<peer>\S+) - retrying \(.*?\): "
                r"(?P<said>.+)",
            ),
            shape(
                "client socket has failed to connect",
                r"client socket has failed to connect to (?P<peer>\S+) \((?P<said>errno: \d+ - [^)]+)\)",
            ),
        ),
        confidence=LOW,
        symptom=True,
        quiet=True,
    ),
    Known(
        "rendezvous-name",
        what="a host's name is not known on another",
        cause="{name} has no address there ({said})",
        fix="give the address of the fast link instead of a name, or a line in /etc/hosts on every host:"
        " ADDRESS {name}",
        shapes=(
            shape(
                "cannot be retrieved",
                r"network addresses of \((?P<name>[^,)]+), \d+\) cannot be retrieved \(gai error: "
                r"(?P<said>[^)]+)\)",
            ),
        ),
        over=("name-unknown",),
    ),
    Known(
        "gloo-waits",
        what="Gloo timed out: a rank waited in vain for the others",
        cause="Gloo gave up after {limit} ms: one rank is gone, slow, or not reached",
        fix="explain the logs of all hosts together: medley explain HOST-1.log HOST-2.log",
        shapes=(
            shape("Timed out waiting", r"Timed out waiting (?P<limit>\d+)ms for (?:recv|send) operation"),
            shape("monitoredBarrier", r"monitoredBarrier (?:in|after) (?P<limit>\d+) ?ms"),
        ),
        confidence=LOW,
        symptom=True,
    ),
    Known(
        "gloo-lost",
        what="a rank lost the connection to another (Gloo)",
        cause="{said}; why the other rank went stands in that rank's own log",
        fix="explain the logs of all hosts together: medley explain HOST-1.log HOST-2.log",
        shapes=(
            shape("closed by peer", r"(?P<said>Connection closed by peer \S+)"),
            shape(
                "Connection reset by peer",
                r"(?P<said>(?:Read error|recv|read|writev|sendBytes)[^\n]{0,60}Connection reset by peer)",
            ),
            shape("Connection reset by peer", r"gloo/\S+ (?P<said>.*Connection reset by peer)"),
            shape("Broken pipe", r"(?P<said>(?:sendBytes|writev|recvVector)[^\n]{0,80}Broken pipe)"),
            shape("recvValue failed", r"(?P<said>recvValue failed[^\n]{0,80})"),
        ),
        confidence=LOW,
        symptom=True,
    ),
)
