"""Files that a flag names and that are not there, or are none."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "tls-file",
        what="the server's TLS certificate or key file is missing or broken (--ssl-certfile, --ssl-keyfile)",
        cause="{said}",
        fix="name files that are there: ls -l CERT KEY; medley serve MODEL -- --ssl-certfile CERT "
        "--ssl-keyfile KEY",
        shapes=(
            shape(
                "load_cert_chain(",
                r"load_cert_chain\([^\n]*\n(?:[^\n]*\n){0,3}?(?P<line>(?P<said>(?:FileNotFoundError|Permissi"
                r"onError|"
                r"ssl\.SSLError|IsADirectoryError)\b.*))",
            ),
        ),
        more=4,
        echoes=True,
    ),
    Known(
        "template-file",
        what="the chat template file is missing",
        cause="--chat-template names {file}, and it is not there",
        fix="ls {file}; or leave --chat-template out: the model has one of its own",
        shapes=(
            shape("chat template string (", r"chat template string \((?P<file>[^)]+)\) appears path-like"),
            shape(
                "hat template",
                r"[Cc]hat template (?:file )?(?:path )?[\"'`]?(?P<file>[^\s\"'`]+)[\"'`]? (?:is not a buil"
                r"t-in|not found|does not "
                r"exist)",
            ),
            shape(
                "looks like a file path",
                r"chat template \((?P<file>[^)]+)\) looks like a file path, but",
            ),
        ),
    ),
    Known(
        "lora-missing",
        what="a LoRA adapter is missing",
        cause="{said}",
        fix="name the folder that holds its adapter_config.json: medley serve MODEL -- --lora-modules "
        "NAME=FOLDER",
        shapes=(
            shape("No adapter found for", r"(?P<said>(?:Loading lora \S+ failed: )?No adapter found for .+)"),
            shape(
                "LoRA", r"(?P<said>(?:LoRA|lora) (?:adapter|path|\S+).{0,80}(?:does not exist|not found).*)"
            ),
            shape(
                "adapter_config.json",
                r"(?P<said>(?:No such file|Can't find|Cannot find).{0,160}adapter_config\.json.{0,100})",
            ),
        ),
        confidence=MEDIUM,
        over=("hub-name", "hub-not-found"),
    ),
    Known(
        "file-missing",
        what="a file that was named is not there",
        cause="{file}",
        fix="ls -l {file}; what a flag names must be on every host at the same place",
        shapes=(
            shape(
                "No such file or directory: '",
                r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[^']*[/.][^']*)'",
            ),
        ),
        confidence=LOW,
    ),
)
