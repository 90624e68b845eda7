"""Memory of the host that runs out, or that a process may not have: and what was killed or crashed for it."""

from medley.explain.known import LOW, MEDIUM, Known, shape

_KILLED = (
    r"(?<![\w .:#=\[\]-])(?P<who>[\w .:#=\[\]-]*?"
    r"(?:[Pp]rocess|[Ww]orker|[Ss]cheduler|child|[Rr]ank)[^.;]{0,60}?)"
    r"(?:died|exited|terminated|failed)[^.;]{0,60}?(?:exit ?code:?|with|code)[ =]*-9\b"
)

KNOWN = (
    Known(
        "host-out-of-memory",
        what="the host ran out of memory, and the kernel killed {process}",
        cause="{process} (process {pid}) had [{resident} kB][{limit}] in use; on unified memory the GPU's "
        "memory is the"
        " host's too",
        fix="medley plan MODEL says what fits; leave more free (-- --gpu-memory-utilization 0.80), and "
        "see who else"
        " needs memory: ps aux --sort=-rss | head",
        shapes=(
            shape(
                "illed process",
                r"(?:Out of memory|Memory cgroup out of memory)(?: \([^)]*\))?: Killed process (?P<pid>\d+)"
                r" \((?P<process>[^)]+)\)(?:.*?anon-rss:(?P<resident>\d+)kB)?",
            ),
            shape("invoked oom-killer", r"(?P<process>\S+) invoked oom-killer"),
            shape("oom-kill:", r"oom-kill:.*task=(?P<process>[^,]+),pid=(?P<pid>\d+)"),
        ),
        quiet=True,
        stays=True,
    ),
    Known(
        "ray-out-of-memory",
        what="Ray killed a process because the host's memory was nearly full",
        cause="[{used} of {total} were in use, above Ray's limit of {limit}][{count} processes were killed]",
        fix="leave more memory free (medley plan MODEL); on unified memory, where this watch is wrong, "
        "switch it off on"
        " each host before ray start: export RAY_memory_monitor_refresh_ms=0 (medley ray-head does)",
        shapes=(
            shape(
                "memory usage threshold",
                r"was (?P<used>[\d.]+ ?[KMGT]i?B) ?/ ?(?P<total>[\d.]+ ?[KMGT]i?B).*?exceeds the memory usage"
                r" threshold of (?P<limit>[\d.]+)",
            ),
            shape(
                "due to memory pressure (OOM)",
                r"(?P<count>\d+) Workers \(tasks / actors\) killed due to memory",
            ),
            shape(
                "due to the node running low on memory",
                r"(?:(?P<count>\d+) worker\(s\) were|was) killed due to",
            ),
        ),
        quiet=True,
    ),
    Known(
        "gpu-driver-out-of-memory",
        what="the GPU's driver found no memory",
        cause="on unified memory the host's own is full: page cache, other processes, or a share that is "
        "too large",
        fix="sync; echo 3 | sudo tee /proc/sys/vm/drop_caches\nand take less: medley serve MODEL --"
        " --gpu-memory-utilization 0.80",
        shapes=(
            shape("NV_ERR_NO_MEMORY"),
            shape("NvMapMemAlloc", r"NvMapMemAlloc\w*:? .*error"),
            shape("NvMapMemHandleAlloc", r"NvMapMemHandleAlloc.*error"),
        ),
        quiet=True,
    ),
    Known(
        "memory-not-given",
        what="the host gave a process no more memory",
        cause="[it asked for {asked} bytes][{said}]",
        fix="see what is free and who has the rest: free -g; ps aux --sort=-rss | head; ulimit -v must be "
        "unlimited",
        shapes=(
            shape(
                "DefaultCPUAllocator",
                r"DefaultCPUAllocator: can't allocate memory: you tried to allocate (?P<asked>\d+)",
            ),
            shape("std::bad_alloc"),
            shape("Errno 12]", r"(?P<said>\[Errno 12\] Cannot allocate memory)"),
            shape("MemoryError", r"^(?:numpy\.\S*)?MemoryError\b"),
        ),
    ),
    Known(
        "shared-memory-full",
        what="the host's shared memory (/dev/shm) is too small",
        cause="ranks on one host talk through it[; NCCL wanted {size} bytes]",
        fix="give a container more: docker run --shm-size 16g --ipc host … (medley run and serve do);"
        " outside one: sudo mount -o remount,size=16G /dev/shm",
        shapes=(
            shape(
                "shared memory segment",
                r"Error while (?:creating|attaching to) shared memory segment \S+ \(size (?P<size>\d+)\)",
            ),
            shape("failed to extend", r"failed to extend /dev/shm/\S+ to (?P<size>\d+) bytes"),
            shape("insufficient shared memory"),
            shape(
                "No space left on device",
                r"shm/?\S* ?.*No space left on device|No space left on device.*[/ ]shm/",
            ),
            shape("object store size", r"[Tt]he (?:configured )?object store size .*exceeds /dev/shm size"),
            shape("unable to write to file </torch_", r"unable to write to file </torch_.*No space left"),
        ),
        over=("disk-full",),
    ),
    Known(
        "memlock",
        what="RDMA may not lock the memory it needs (memlock, ulimit -l)",
        cause="{call} failed: the limit of locked memory (ulimit -l) is too low for this process",
        fix="raise it: docker run --ulimit memlock=-1 …; for a service LimitMEMLOCK=infinity; for users "
        "a line"
        " `* - memlock unlimited` in /etc/security/limits.conf, then log in anew",
        shapes=(
            shape(
                "Cannot allocate memory",
                r"(?P<call>ibv_(?:reg_mr|create_cq|create_qp|reg_mr_iova2|reg_dmabuf_mr)\w*).{0,40}Cannot "
                r"allocate memory",
            ),
        ),
        over=("memory-not-given",),
    ),
    Known(
        "killed",
        what="a process of the engine was killed (SIGKILL)",
        cause="{who} ended with signal 9: when memory runs out the kernel does that",
        fix="see whether it did: sudo dmesg | grep -i 'killed process'; then leave more memory free: "
        "medley plan MODEL",
        shapes=(
            shape("exit code", _KILLED),
            shape("died (", _KILLED),
            shape("exited with", _KILLED),
            shape("terminated with", _KILLED),
            shape("exitcode: -9", r"(?P<who>\S*) ?exitcode: -9"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "killed-shell",
        what="a program was killed (SIGKILL), says the shell that had started it",
        cause="[{who} ]ended with signal 9: the kernel does that when memory runs out, and SGLang to "
        "itself after an"
        " error",
        fix="look above it for an error; if there is none: sudo dmesg | grep -i 'killed process', and "
        "leave more "
        "memory free: medley plan MODEL",
        shapes=(shape("Killed", r"^(?:(?P<who>[\w./-]+: line \d+: +\d+) Killed\b|Killed$)"),),
        confidence=LOW,
        symptom=True,
        last=True,
    ),
    Known(
        "crashed",
        what="a process of the engine crashed (a segmentation fault)",
        cause="its native code read memory that is not its own: most often kernels or libraries that do "
        "not fit this"
        " host or each other",
        fix="prove the environment: medley env check; then without compiled graphs: medley serve MODEL --"
        " --enforce-eager",
        shapes=(
            shape(
                "Segmentation fault",
                r"^(?:Fatal Python error: |!+ )?Segmentation fault|: +\d+ Segmentation fault"
                r"|Caught signal 11 \(Segmentation fault",
            ),
            shape("SIGSEGV", r"(?<!due to )SIGSEGV(?! or another)"),
            shape("exit code -11", r"(?:exit ?code|with)[ :=]*-11\b"),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "aborted",
        what="a process of the engine ended itself: an assertion of its native code does not hold",
        cause="{said}",
        fix="most often a kernel that is not for this GPU or this model: another one (-- --attention-backend "
        "TRITON_ATTN, --enforce-eager), or another version: medley env build",
        shapes=(shape("' failed.", r"(?P<said>Assertion `.{1,300}' failed)\."),),
        confidence=MEDIUM,
    ),
    Known(
        "bus-error",
        what="a process of the engine crashed (a bus error)",
        cause="a file or shared memory that it had mapped was not there when it was read: a file cut "
        "short, a "
        "disk or /dev/shm that is full or failed, or no memory left",
        fix="df -h / /dev/shm; free -g; sudo dmesg | tail; then compare the weights: medley pull MODEL "
        "--verify",
        shapes=(
            shape("Bus error", r"^(?:Fatal Python error: |!+ )?Bus error|: +\d+ Bus error"),
            shape("signal 7 (", r"Caught signal 7 \(Bus error"),
            shape("SIGBUS", r"(?:received signal|died (?:of|from|with)|signal:?) SIGBUS"),
        ),
        confidence=MEDIUM,
    ),
)
