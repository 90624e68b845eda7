"""The network and ssh: hosts not reached, names without addresses, ports taken, links that fall."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "port-taken",
        what="the port is in use: the address is taken already",
        cause="[{at}: ][port {port}: ]another server listens there, or one that was not stopped",
        fix="medley stop ends ours; who has it: ss -ltnp; or take another: medley serve MODEL --port 8001",
        shapes=(
            shape(
                "attempting to bind on address",
                r"attempting to bind on address \('?(?P<at>[^',)]*)'?,? ?(?P<port>\d*)\)?: \[?.*?address "
                r"already in use",
            ),
            shape(
                "ddress already in use",
                r"(?:tcp|bind|listen)\S{0,40} ?[^\s:]{0,40}?(?P<at>\d+\.\d+\.\d+\.\d+:\d+|:\d{2,5})\b"
                r".{0,60}[Aa]ddress already in use",
            ),
            shape(
                "ddress already in use",
                r"(?:Errno 98\]?|ZMQError:?|OSError:?|error:?).{0,20}[Aa]ddress already in use(?: "
                r"\(addr='(?P<at>[^']+)'\))?",
            ),
            shape(
                "port is already allocated", r"(?:Bind for )?(?P<at>\S+) failed: port is already allocated"
            ),
            shape("is already in use", r"(?:[Pp]ort |_port |port=)(?P<at>\d+) is already in use"),
            shape("port is not available", r"[Pp]ort (?P<at>\d+)(?: is)? not available"),
        ),
    ),
    Known(
        "address-not-here",
        what="the address to listen on is not this host's",
        cause="[{at}]",
        fix="medley link show names this host's addresses; to listen on all: --host 0.0.0.0",
        shapes=(
            shape(
                "annot assign requested address", r"(?P<at>.{0,80}[Cc]annot assign requested address.{0,60})"
            ),
        ),
    ),
    Known(
        "ssh-refused",
        what="ssh does not reach the other host (no sshd, or a firewall)",
        cause="{host}: {said}",
        fix="start it there: sudo systemctl enable --now ssh; then try: ssh {host} true",
        shapes=(shape("ssh: connect to host", r"ssh: connect to host (?P<host>\S+) port \d+: (?P<said>.+)"),),
    ),
    Known(
        "ssh-closed",
        what="ssh: the other host closes the connection at once",
        cause="{said}: its sshd has too many at a time (MaxStartups), keeps this address out, or what "
        "listens "
        "there is none",
        fix="on that host: sudo journalctl -u ssh -n 50; then fewer at once, or what keeps it out: fail2ban, "
        "/etc/hosts.deny, a full disk",
        shapes=(
            shape(
                "kex_exchange_identification",
                r"kex_exchange_identification: (?:\w+: )?(?P<said>Connection \w+ by (?:remote host|peer))",
            ),
            shape("ssh_exchange_identification", r"ssh_exchange_identification: (?P<said>[^\n\"]{0,80})"),
        ),
    ),
    Known(
        "ssh-name",
        what="ssh does not know the host's name",
        cause="{host} has no address here",
        fix="medley init writes names for ssh; by hand a Host block with HostName in ~/.ssh/config",
        shapes=(
            shape("ssh: Could not resolve hostname", r"ssh: Could not resolve hostname (?P<host>[^\s:]+)"),
        ),
    ),
    Known(
        "ssh-key",
        what="ssh: permission denied: the other host does not take your key",
        cause="{host}: {said}",
        fix="ssh-copy-id HOST; then try: ssh HOST true",
        shapes=(
            shape(
                "Permission denied (",
                r"(?P<host>(?<!\S)[^\s@]{1,64}@[^\s:]{1,255}): (?P<said>Permission denied \([\w,-]+\))",
            ),
            shape(
                "Too many authentication failures",
                r"(?P<host>.{0,40}?)(?P<said>Too many authentication failures)",
            ),
        ),
    ),
    Known(
        "ssh-key-open",
        what="ssh ignores your private key: its permissions are too open",
        cause="others may read {file}",
        fix="chmod 600 {file}",
        shapes=(
            shape("are too open", r"Permissions \d+ for '(?P<file>[^']+)' are too open"),
            shape("bad permissions", r"Load key \"?(?P<file>[^\s\":]+)\"?: bad permissions"),
            shape("Bad owner or permissions on", r"Bad owner or permissions on (?P<file>\S+)"),
        ),
        over=("ssh-key",),
    ),
    Known(
        "ssh-host-key",
        what="the other host's ssh host key is unknown or has changed",
        cause="{said}: it was installed anew, has another's address, or somebody is between",
        fix="if it is yours and was installed anew: ssh-keygen -R HOST, then ssh HOST true",
        shapes=(
            shape(
                "REMOTE HOST IDENTIFICATION HAS CHANGED", r"(?P<said>REMOTE HOST IDENTIFICATION HAS CHANGED)"
            ),
            shape("Host key verification failed", r"(?P<said>Host key verification failed)"),
        ),
    ),
    Known(
        "link-fell",
        what="a network link fell",
        cause="the kernel says that {name} is down",
        fix="see cable and port: medley link watch; ethtool {name}",
        shapes=(
            shape("Link down", r"(?P<name>\w+): Link (?:is )?[Dd]own"),
            shape("Link is Down", r"(?P<name>\w+): (?:NIC )?Link is Down"),
            shape("NETDEV WATCHDOG", r"NETDEV WATCHDOG: (?:CPU: \d+: )?(?P<name>\w+)"),
        ),
        quiet=True,
        confidence=MEDIUM,
    ),
    Known(
        "host-unreachable",
        what="another host is not reached (no route, or timed out)",
        cause="[{said}]",
        fix="see the way there: medley link test HOST; ip route get ADDRESS",
        shapes=(
            shape("No route to host", r"(?P<said>(?:\[Errno 113\] )?No route to host.{0,60})"),
            shape("Network is unreachable", r"(?P<said>(?:\[Errno 101\] )?Network is unreachable.{0,60})"),
            shape("Errno 110]", r"(?P<said>\[Errno 110\] Connection timed out.{0,60})"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "name-unknown",
        what="a host name is not resolved (DNS)",
        cause="[{said}]",
        fix="give an address instead, or a line in /etc/hosts; for the Internet see the name servers: "
        "resolvectl status",
        shapes=(
            shape("Name or service not known", r"(?P<said>.{0,100}Name or service not known)"),
            shape(
                "emporary failure in name resolution",
                r"(?P<said>.{0,100}[Tt]emporary failure in name resolution)",
            ),
            shape(
                "nodename nor servname provided", r"(?P<said>.{0,80}nodename nor servname provided.{0,20})"
            ),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "refused",
        what="connection refused: something that should listen does not",
        cause="[{said}]",
        fix="start that first, and see the way: medley link test HOST; medley ports lists what listens where",
        shapes=(
            shape(
                "onnection refused",
                r"^(?:[\w.]+(?:Error|Exception): )(?P<said>.{0,120}[Cc]onnection refused.{0,60})",
            ),
        ),
        confidence=LOW,
    ),
    Known(
        "server-missing",
        what="no server answers where the client asks",
        cause="{said}",
        fix="see that it runs, and where it listens: medley status; medley serve MODEL --port PORT; then "
        "the client's "
        "--base-url or --host and --port",
        shapes=(
            shape(
                "Cannot connect to host",
                r"(?P<said>Cannot connect to host \S+ .{0,80}(?:Connect call failed|refused).*)",
            ),
            shape("Failed to connect to", r"(?P<said>curl: \(7\) Failed to connect to .+)"),
            shape("Endpoint is not ready", r"(?P<said>Endpoint is not ready.*)"),
            shape(
                "Max retries exceeded",
                r"(?P<said>host='(?:localhost|127[\d.]+|10\.[\d.]+|192\.168[\d.]+)', port=\d+.*Max retries e"
                r"xceeded)",
            ),
            shape("Initial test run failed", r"(?P<said>Initial test run failed.*(?:[Cc]onnect|refused).*)"),
        ),
        confidence=MEDIUM,
        over=("refused",),
    ),
)
