"""The hub that models come from: who may have them, and whether it is reached.

Texts are those of huggingface_hub 0.20 to 1.8 and transformers 4.40 to 5.19.
"""

from medley.explain.known import MEDIUM, Known, shape

_HUB = r"(?:huggingface\.co|hf\.co|hf-mirror\.com|cdn-lfs[\w.-]*|xethub\.hf\.co|modelscope\.\w+)"

KNOWN = (
    Known(
        "hub-gated",
        what="the model is gated, and your account or token has no access",
        cause="[{name} ]is gated",
        fix="ask for access on the model's page, then give your token: export HF_TOKEN=…; medley pull MODEL",
        shapes=(
            shape(
                "Access denied.", r"Access denied\. (?:Model |This )'?(?P<name>[^' ]*)'?.*requires approval"
            ),
            shape("You need to be authenticated", r"You need to be authenticated to access"),
            shape("Access to model", r"Access to model (?P<name>\S+) is restricted"),
            shape(
                "gated repo",
                r"(?:trying to access a|Cannot access) gated repo(?: for url "
                r"https?://[^/\s]+/(?:api/models/)?(?P<name>[\w.-]+/[\w.-]+))?",
            ),
            shape("GatedRepoError"),
            shape("awaiting a review", r"Your request to access model (?P<name>\S+) is awaiting a review"),
        ),
        over=("hub-not-found", "hub-unreachable", "hub-token", "config-missing", "config-invalid"),
    ),
    Known(
        "hub-token",
        what="the hub does not take this token (401)",
        cause="{said}",
        fix="make a new one (huggingface.co/settings/tokens), and export HF_TOKEN=…",
        shapes=(
            shape("nvalid user token", r"(?P<said>[Ii]nvalid user token)"),
            shape("nvalid credentials", r"(?P<said>Invalid credentials in Authorization header)"),
            shape("401 Client Error", r"(?P<said>401 Client Error: Unauthorized)"),
            shape("Invalid username or password", r"(?P<said>Invalid username or password)"),
        ),
        over=("hub-unreachable", "config-invalid"),
    ),
    Known(
        "hub-not-found",
        what="the hub has no such model, or not for you",
        cause="{name}: a private one answers the same",
        fix="see how its name is written; for a private one: export HF_TOKEN=…",
        shapes=(
            shape(
                "not found.", r"^Error: (?:Model|Dataset|Space|Repository) '?(?P<name>[^' ]+?)'? not found\."
            ),
            shape(
                "Repository Not Found for url", r"Repository Not Found for url: (?P<name>[^\s?]+?)\.?(?:\s|$)"
            ),
            shape(
                "is not a valid model identifier",
                r"(?P<name>\S+) is not a local folder and is not a valid model identifier",
            ),
            shape("RepositoryNotFoundError", r"(?P<name>RepositoryNotFoundError)"),
        ),
        over=("hub-token", "config-missing", "config-invalid"),
    ),
    Known(
        "hub-revision",
        what="the model has no such revision",
        cause="{name} is none of its branches, tags or commits",
        fix="leave --revision out, or see the names on the model's page",
        shapes=(
            shape("Revision not found in", r"(?P<name>Revision not found in .+)"),
            shape("Invalid rev id", r"(?P<name>Invalid rev id: \S+)"),
            shape("Revision Not Found", r"Revision Not Found for url: (?P<name>\S+)"),
            shape("is not a valid git identifier", r"(?P<name>\S+) is not a valid git identifier"),
        ),
        over=("config-invalid",),
    ),
    Known(
        "hub-name",
        what="no such model: neither a folder on this host nor a name on the hub",
        cause="'{name}' is a path, and no such folder is on this host",
        fix="ls {name}; on every host of a cluster: medley pull MODEL",
        shapes=(
            shape(
                "Repo id must",
                r"Repo id must (?:be in the form|use alphanumeric chars).*?: '(?P<name>[^']+)'",
            ),
        ),
        over=("config-missing", "config-invalid"),
    ),
    Known(
        "hub-offline",
        what="the model is not on this host, and asking the hub is switched off",
        cause="{said}",
        fix="bring it while there is a network: medley pull MODEL; or unset HF_HUB_OFFLINE "
        "TRANSFORMERS_OFFLINE",
        shapes=(
            shape(
                "outgoing traffic has been disabled",
                r"(?P<said>the files are not in the cache, and HF_HUB_OFFLINE is set|outgoing traffic has "
                r"been disabled)",
            ),
            shape("OfflineModeIsEnabled", r"(?P<said>OfflineModeIsEnabled[^\n]{0,80})"),
            shape("offline mode is enabled", r"(?P<said>offline mode is enabled)"),
        ),
        over=("hub-unreachable", "config-missing", "config-invalid"),
    ),
    Known(
        "hub-limit",
        what="the hub's rate limit is reached (429, too many requests)",
        cause="{said}: too many requests from this address",
        fix="give a token, which has a higher limit: export HF_TOKEN=…; then medley pull MODEL goes on "
        "where it was",
        shapes=(
            shape(
                "Too Many Requests",
                r"(?P<said>(?:HTTP Error )?429(?: Client Error:?)? ?:?(?: Too Many Requests))",
            ),
            shape("We had to rate limit", r"(?P<said>We had to rate limit)"),
        ),
        over=(
            "hub-unreachable",
            "hub-server",
        ),
    ),
    Known(
        "hub-server",
        what="the hub answers with a server error (5xx)",
        cause="{said}",
        fix="try again later: medley pull MODEL goes on where it was; status.huggingface.co says whether "
        "it is known; or "
        "from a host that has it: medley pull MODEL --from HOST",
        shapes=(
            shape("Server error '", r"(?P<said>Server error '5\d\d [^']+' for url '[^']+')"),
            shape("Server Error", r"(?P<said>5\d\d Server Error: .{0,120})"),
            shape(
                "Bad Gateway",
                r"(?P<said>(?:HTTP Error )?50[0-9] (?:Bad Gateway|Service Unavailable|Gateway Time-?out))",
            ),
        ),
        confidence=MEDIUM,
        over=("hub-unreachable", "config-missing", "config-invalid"),
    ),
    Known(
        "hub-certificate",
        what="the hub's TLS certificate is not trusted here",
        cause="{said}: a proxy puts its own in between, the clock is wrong, or the host lacks root "
        "certificates",
        fix="date; sudo apt install ca-certificates; with a proxy: export SSL_CERT_FILE=FILE "
        "REQUESTS_CA_BUNDLE=FILE",
        shapes=(
            shape("CERTIFICATE_VERIFY_FAILED", r"(?P<said>CERTIFICATE_VERIFY_FAILED[^\n)]{0,100})"),
            shape("certificate verify failed", r"(?P<said>certificate verify failed[^\n)]{0,100})"),
        ),
        over=("hub-unreachable",),
    ),
    Known(
        "clock-wrong",
        what="this host's clock is wrong: certificates (TLS) are not valid at its time",
        cause="{said}: a Jetson without a battery starts in the past",
        fix="date; sudo timedatectl set-ntp true; by hand: sudo date -s '2026-01-31 12:00'",
        shapes=(
            shape("not yet valid", r"(?P<said>certificate (?:verify failed: certificate )?is not yet valid)"),
            shape(
                "certificate has expired or", r"(?P<said>x509: certificate has expired or is not yet valid.*)"
            ),
        ),
        over=("hub-certificate", "hub-unreachable"),
    ),
    Known(
        "hub-unreachable",
        what="the hub is not reached: no network",
        cause="{said}",
        fix="see whether this host has a way out: curl -I https://huggingface.co; bring it from a host "
        "that has: medley pull MODEL --from HOST",
        shapes=(
            shape("Local entry not found.", r"^Error: (?P<said>Local entry not found\. .+)"),
            shape("We couldn't connect to", r"(?P<said>We couldn't connect to '[^']*' to load)"),
            shape("ailed to resolve '", rf"(?P<said>Failed to resolve '[\w.-]*{_HUB}')"),
            shape(
                "Max retries exceeded",
                rf"(?P<said>[^\n]{{0,20}}host='[\w.-]*{_HUB}'[^\n]{{0,20}}Max retries exceeded)",
            ),
            shape("LocalEntryNotFoundError", r"(?P<said>LocalEntryNotFoundError.{0,160})"),
            shape("Can't load the configuration of", r"(?P<said>Can't load the configuration of '[^']*')"),
            shape("httpx.Connect", r"^httpx\.(?P<said>Connect(?:Error|Timeout).*)"),
            shape("Cannot reach https://", rf"(?P<said>Cannot reach https://{_HUB}\S*)"),
        ),
        over=("refused", "host-unreachable", "config-missing", "config-invalid", "name-unknown"),
    ),
    Known(
        "hub-incomplete",
        what="a download broke off",
        cause="{said}",
        fix="medley pull MODEL goes on where it was, and verifies every piece",
        shapes=(
            shape("Consistency check failed", r"(?P<said>Consistency check failed: [^\n]{0,120})"),
            shape("CAS service error", r"(?P<said>CAS service error[^\n]{0,120})"),
            shape("IncompleteRead", r"(?P<said>IncompleteRead\([^)]*\))"),
            shape(
                "peer closed connection without sending complete",
                r"(?P<said>peer closed connection without sending complete message body[^\n]{0,60})",
            ),
        ),
    ),
    Known(
        "hub-transfer",
        what="fast downloads are switched on, and their package is missing",
        cause="HF_HUB_ENABLE_HF_TRANSFER is set, and hf_transfer is not installed",
        fix="unset HF_HUB_ENABLE_HF_TRANSFER",
        shapes=(shape("'hf_transfer' package is not available"),),
        confidence=MEDIUM,
    ),
    Known(
        "hub-cache-none",
        what="the folder for downloaded models is not there",
        cause="{file} does not exist on this host or in this container",
        fix="mkdir -p {file}, or name the one that is there: export HF_HOME=FOLDER; in a container "
        "mount it: -v "
        "FOLDER:FOLDER",
        shapes=(shape("Cache directory not found", r"Cache directory not found: (?P<file>/[^\s']*[^\s'.])"),),
    ),
)
