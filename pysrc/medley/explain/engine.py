"""What engines say when a part of theirs is gone, late or stuck: most of it follows from something else."""

from medley.explain.known import LOW, MEDIUM, Known, shape

KNOWN = (
    Known(
        "engine-slow-start",
        what="the engine did not come up in the time it was given",
        cause="it waited[ {limit} s] for its processes: large weights, a slow disk, or kernels that are "
        "compiled first",
        fix="give it longer: export VLLM_ENGINE_READY_TIMEOUT_S=3600, medley serve MODEL --timeout 3600; "
        "weights on a local disk: medley pull MODEL",
        shapes=(
            shape(
                "Timed out waiting for engine",
                r"Timed out waiting for engine (?:core )?processes to\s*start(?:.*?Waited (?P<limit>\d+))?",
            ),
            shape("Timed out waiting for engine", r"Timed out waiting for engine(?:s| core)"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "shared-memory-ranks",
        what="ranks of two hosts took themselves for ranks of one",
        cause="{said}: their communicator wanted memory that only one host has",
        fix="medley serve tells them apart; by hand give each host its own VLLM_HOST_IP and a /dev/shm of "
        "its own",
        shapes=(
            shape("SHMManager", r"(?P<said>(?:open|shm_open|mmap) .{0,20}in SHMManager failed\. errno: \d+)"),
        ),
    ),
    Known(
        "pipeline-eager-cpu",
        what="a pipeline on CPU was started with --enforce-eager",
        cause="the stage has no buffer for what comes from the stage before it: eager mode skips the "
        "warm-up that makes it",
        fix="leave --enforce-eager out: medley serve MODEL (by hand: -cc.mode=2 -cc.backend=eager)",
        shapes=(shape("assert self.intermediate_tensors is not None"),),
        confidence=MEDIUM,
        echoes=True,
    ),
    Known(
        "engine-waits",
        what="a rank gave no answer in time (RPC or watchdog timeout)",
        cause="{said}: it is stuck, very slow, or gone",
        fix="explain the logs of all hosts together: medley explain HOST-1.log HOST-2.log; test the wire: "
        "medley collective-test",
        shapes=(
            shape("RPC call to", r"(?P<said>RPC call to \S+ timed out)"),
            shape("execute_model timed out", r"(?P<said>execute_model timed out)"),
            shape("watchdog timeout", r"(?P<said>\S* ?[Ww]atchdog timeout \(.{0,60})"),
            shape("Watchdog timeout", r"(?P<said>Watchdog timeout \(.{0,60})"),
            shape(
                "Health check failed",
                r"(?P<said>Health check failed\. Server couldn't get a response.{0,60})",
            ),
        ),
        confidence=LOW,
        symptom=True,
        quiet=True,
    ),
    Known(
        "engine-stuck",
        what="the engine waits for a rank that does not answer",
        cause="{said} again and again: a rank is stuck, gone, or compiles for very long",
        fix="see what each host does: medley status, nvidia-smi; explain the logs of all hosts together: "
        "medley explain "
        "HOST-1.log HOST-2.log",
        shapes=(
            shape(
                "No available shared memory broadcast block",
                r"(?P<said>No available shared memory broadcast block found in \d+ seconds)",
            ),
        ),
        confidence=LOW,
        symptom=True,
        quiet=True,
        often=3,
    ),
    Known(
        "engine-killed",
        what="a process of the engine died without a word: it was killed (SIGKILL, out of memory) or it "
        "crashed",
        cause="{said}, and no error stands before it: most often the kernel's OOM killer, on a host without "
        "free memory",
        fix="see whether it did: sudo dmesg | grep -i -E 'out of memory|killed process|segfault'; then "
        "leave more memory free: "
        "medley plan MODEL",
        shapes=(
            shape("engine core exited unexpectedly", r"(?P<said>engine core exited unexpectedly)"),
            shape(
                "died unexpectedly",
                r"(?P<said>(?:Engine core proc \S+|Worker proc \S+|Process \S+|\S+ process|SGLang's schedule"
                r"r\S*).{0,40}died "
                r"unexpectedly(?: \(exit code: \S+\))?)",
            ),
            shape(
                "One or more Engine core process",
                r"(?P<said>(?:One or more )?[Ee]ngine core process\S* .{0,40}(?:died|exited).*)",
            ),
        ),
        confidence=LOW,
        symptom=True,
        quiet=True,
        last=True,
    ),
    Known(
        "stopped-early",
        what="the engine was told to end before it was ready (SIGTERM or Ctrl-C)",
        cause="{said}: somebody, a time limit, or a service manager ended it; nothing failed by itself",
        fix="start it again and give it time: medley serve MODEL --timeout 3600; who ended it: journalctl -e",
        shapes=(
            shape("KeyboardInterrupt: terminated", r"(?P<said>KeyboardInterrupt: terminated)"),
            shape("SystemExit", r"(?P<said>^SystemExit: (?:15|143|130)$)"),
        ),
        confidence=LOW,
        symptom=True,
        last=True,
        stops=True,
    ),
    Known(
        "engine-ended",
        what="the engine's processes ended",
        cause="{said}; the reason should stand above that line, or in the log of another host",
        fix="explain the whole log, and those of all hosts: medley explain HOST-1.log HOST-2.log",
        shapes=(
            shape("Engine core initialization failed", r"(?P<said>Engine core initialization failed)"),
            shape("EngineCore failed to start", r"(?P<said>EngineCore failed to start)"),
            shape("EngineDeadError", r"(?P<said>EngineDeadError)"),
            shape("Engine process failed to start", r"(?P<said>Engine process failed to start)"),
            shape("EngineCore encountered", r"(?P<said>EngineCore encountered (?:a fatal error|an issue))"),
            shape("WorkerProc initialization failed", r"(?P<said>WorkerProc initialization failed)"),
            shape(
                "Initialization failed. Please see",
                r"(?P<said>Initialization failed\. Please see the error messages above)",
            ),
            shape("Received sigquit", r"(?P<said>Received sigquit from a child process)"),
            shape(
                "terminated with", r"(?P<said>Scheduler or DataParallelController \d+ terminated with -?\d+)"
            ),
            shape("MQEngine", r"(?P<said>MQEngineDeadError|MQLLMEngine terminated)"),
            shape("AsyncEngineDeadError", r"(?P<said>AsyncEngineDeadError)"),
        ),
        confidence=LOW,
        symptom=True,
        last=True,
    ),
    Known(
        "proxy-own",
        what="a proxy answers what the server asks of itself",
        cause="its first request to itself got {status}: http_proxy is set, and the host's own address "
        "is not "
        "in no_proxy",
        fix="export no_proxy=localhost,127.0.0.1,0.0.0.0,HOSTS NO_PROXY=localhost,127.0.0.1,0.0.0.0,HOSTS, "
        "with the cluster's addresses, then the same again",
        shapes=(shape("res=<Response [", r"AssertionError: res=<Response \[(?P<status>50[234]|403)\]>"),),
        confidence=MEDIUM,
        stays=True,
    ),
)
