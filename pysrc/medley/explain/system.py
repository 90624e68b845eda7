"""What the operating system refuses: space, files, rights, threads, and time."""

import re

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "disk-full",
        what="a disk is full (no space left on device)",
        cause="[{file}: ]no space is left on that device",
        fix="df -h; what may go: medley env clean (old environments), hf cache delete (models), docker "
        "system prune (images)",
        shapes=(
            shape("os error 28"),
            shape("o space left on device", r"[Nn]o space left on device(?:: '(?P<file>[^']+)')?"),
            shape("Disk quota exceeded"),
            shape("Wrote only", r": Wrote only \d+ of \d+ bytes"),
            shape("Internal error: writing file", r"ptxas fatal +: Internal error: writing file"),
            shape("ot enough free disk space", r"[Nn]ot enough free disk space"),
        ),
        unless=re.compile(r"dev/shm|shared memory|over [\d.]+% full"),
        over=("weights-broken",),
    ),
    Known(
        "command-missing",
        what="a program is missing on this host's PATH",
        cause="{file} is not found",
        fix="install it, or see the PATH: command -v {file}; sudo apt install command-not-found, then: "
        "command-not-found {file}",
        shapes=(
            shape(
                "command not found",
                r"^(?:\S*(?:sh|bash)\S*: )?(?:line \d+: |\d+: )?(?P<file>[\w./+-]+): command not found",
            ),
            shape(": not found", r"^/?\S*sh: (?:line )?\d+: (?P<file>[\w./+-]+): not found"),
            shape("exit status 127", r"Command '\[?'?(?P<file>[\w./+-]+).*returned non-zero exit status 127"),
            shape(
                "No such file or directory: '",
                r"^FileNotFoundError: \[Errno 2\] No such file or directory: '(?P<file>[\w+-]+)'$",
            ),
            shape("executable file not found", r"exec: \"(?P<file>[\w./+-]+)\": executable file not found"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "files-open",
        what="a process may open no more files (too many open files, ulimit -n)",
        cause="the limit is too low for so many requests and ranks (ulimit -n)",
        fix="ulimit -n 65536 before the start; for a service LimitNOFILE=65536; in a container --ulimit "
        "nofile=65536",
        shapes=(shape("Too many open files"),),
    ),
    Known(
        "threads",
        what="a process may start no more threads or processes",
        cause="[{said}]: the limit of processes is too low (ulimit -u, pids of the container)",
        fix="ulimit -u unlimited; in a container --pids-limit -1; for a service TasksMax=infinity",
        shapes=(
            shape("can't start new thread", r"(?P<said>can't start new thread)"),
            shape("pthread_create failed", r"(?P<said>pthread_create failed[^\n]{0,60})"),
            shape(
                "Resource temporarily unavailable",
                r"(?P<said>(?:BlockingIOError|fork|clone|libgomp|OSError)[^\n]{0,60}Resource temporarily "
                r"unavailable)",
            ),
        ),
    ),
    Known(
        "not-allowed",
        what="a file or folder may not be read or written",
        cause="{file} belongs to another user",
        fix="ls -ld {file}; what Docker made as root: sudo chown -R $USER {file}",
        shapes=(
            shape(
                "Permission denied: '", r"PermissionError: \[Errno 13\] Permission denied: '(?P<file>[^']+)'"
            ),
            shape("Read-only file system", r"Read-only file system: '?(?P<file>[^'\n]+)"),
        ),
    ),
    Known(
        "processor-old",
        what="the processor lacks an instruction that a program uses",
        cause="{said}: it was built for a newer processor",
        fix="take an environment made for this host: medley env build",
        shapes=(
            shape("llegal instruction", r"(?<!CUDA error: an )(?<!d by )(?P<said>\b[Ii]llegal instruction)"),
            shape("SIGILL", r"(?P<said>SIGILL)"),
            shape("trap invalid opcode", r"(?P<said>trap invalid opcode)"),
        ),
    ),
    Known(
        "too-hot",
        what="the host became too hot",
        cause="{said}",
        fix="see its fans and its place; clocks and temperatures: nvidia-smi -q -d TEMPERATURE,CLOCK",
        shapes=(
            shape("critical temperature", r"(?P<said>[^\n]{0,60}critical temperature reached[^\n]{0,60})"),
            shape(
                "emperature above threshold",
                r"(?P<said>[^\n]{0,60}[Tt]emperature above threshold[^\n]{0,40})",
            ),
        ),
        quiet=True,
        confidence=MEDIUM,
    ),
    Known(
        "kernel-stuck",
        what="the kernel waits for something that does not come",
        cause="{said}",
        fix="memory that ran out does that on unified memory: leave more free (medley plan MODEL); see "
        "sudo dmesg",
        shapes=(
            shape("blocked for more than", r"(?P<said>task \S+ blocked for more than \d+ seconds)"),
            shape("soft lockup", r"(?P<said>soft lockup[^\n]{0,60})"),
            shape("self-detected stall", r"(?P<said>rcu\S* self-detected stall[^\n]{0,40})"),
        ),
        quiet=True,
        confidence=LOW,
    ),
    Known(
        "user-unknown",
        what="this process's user has no name (a container started with a number)",
        cause="there is no user {number} in /etc/passwd, and PyTorch asks for its name to name its cache",
        fix="export USER=medley TORCHINDUCTOR_CACHE_DIR=/tmp/inductor HOME=/tmp in the container (docker run "
        "-e …), or give it the list: -v /etc/passwd:/etc/passwd:ro",
        shapes=(shape("uid not found", r"getpwuid\(\): uid not found: (?P<number>\d+)"),),
    ),
)
