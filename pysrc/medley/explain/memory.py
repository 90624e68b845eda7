"""Memory of a GPU, and the KV cache's share of it, that is taken or too small."""

from medley.explain.known import Known, shape

_SIZE = r"[\d.]+ ?[KMGT]?i?B"

KNOWN = (
    Known(
        "gpu-memory-taken",
        what="the GPU has too little free memory to start",
        cause="{free} of {total} GiB are free, and the engine wants {wanted} GiB (a share of {share}): "
        "another"
        " process, or on unified memory the page cache, has the rest",
        fix="end what holds it (nvidia-smi); on Spark, Thor and Orin: sync; echo 3 | sudo tee"
        " /proc/sys/vm/drop_caches\nor take less: medley serve MODEL -- --gpu-memory-utilization 0.80",
        shapes=(
            shape(
                "less than desired GPU memory utilization",
                r"Free memory on device(?: \S+)? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?is less "
                r"than desired"
                r" GPU memory utilization \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
            ),
        ),
    ),
    Known(
        "cpu-memory-taken",
        what="the host has too little free memory to start",
        cause="{free} of {total} GiB are free, and the engine wants {wanted} GiB (a share of {share})",
        fix="say how much the KV cache may take: medley serve MODEL -- --kv-cache-memory-bytes 2G",
        shapes=(
            shape(
                "less than desired CPU memory utilization",
                r"\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?desired CPU memory utilization"
                r" \((?P<share>[\d.]+), (?P<wanted>[\d.]+) GiB\)",
            ),
        ),
    ),
    Known(
        "kv-bytes-too-large",
        what="the KV cache is given more memory than the host has free",
        cause="{wanted} GiB are asked for the KV cache, and {free} of {total} GiB are free[ on node {node}]",
        fix="ask for less: medley serve MODEL -- --kv-cache-memory-bytes 2G (without vLLM's flag: unset "
        "VLLM_CPU_KVCACHE_SPACE)",
        shapes=(
            shape(
                "less than requested memory for kv",
                r"Available memory(?: on node (?P<node>\d+))? \((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\).*?r"
                r"equested memory for "
                r"kv \((?P<wanted>[\d.]+) GiB\)",
            ),
        ),
    ),
    Known(
        "memory-profiling",
        what="another process took or freed GPU memory while the engine measured it",
        cause="free memory was {before} GiB at the start and {after} GiB later",
        fix="start one engine after the other, and end what else uses the GPU: nvidia-smi",
        shapes=(
            shape(
                "Error in memory profiling",
                r"Error in memory profiling.*?Initial free memory (?P<before>[\d.]+)(?: GiB)?,"
                r" current free memory (?P<after>[\d.]+)",
            ),
        ),
    ),
    Known(
        "kv-cache-none",
        what="no memory is left for the KV cache",
        cause="weights and activations take all that the engine may use",
        fix="medley plan MODEL says what it needs; then more hosts or GPUs (--pp 2, --tp 2), a smaller or "
        "quantised"
        " model, or a larger share: -- --gpu-memory-utilization 0.90",
        shapes=(shape("No available memory for the cache blocks"),),
    ),
    Known(
        "kv-cache-small",
        what="the context is too long for the KV cache's memory",
        cause="one request of {length} tokens needs [{needed} GiB of KV cache, and there are {free} GiB]"
        "[more KV cache than there is: room for {room} tokens]",
        fix="shorten it: medley serve MODEL --context [{fits}][{room}], or see what would fit: medley "
        "plan MODEL",
        shapes=(
            shape(
                "KV cache is needed",
                r"max seq len \((?P<length>\d+)\),? \(?(?P<needed>[\d.]+) (?:GiB|GB) KV cache is needed.*?"
                r"\((?P<free>[\d.]+) (?:GiB|GB)\)(?:.*?maximum model length is (?P<fits>\d+))?",
            ),
            shape(
                "stored in KV cache",
                r"max seq len \((?P<length>\d+)\) is larger than the maximum number of tokens that can be "
                r"stored"
                r" in KV cache \((?P<room>\d+)\)",
            ),
        ),
    ),
    Known(
        "cuda-out-of-memory",
        what="the GPU ran out of memory",
        cause="[it asked for {asked}][, of {total}][ only {free} were free]",
        fix="take less: medley serve MODEL --context 8192 --concurrency 1 -- --gpu-memory-utilization 0.80,\n"
        "or spread it: medley plan MODEL shows what fits; end what else holds the GPU (nvidia-smi)",
        shapes=(
            shape("CUDA Error: out of memory"),
            shape(
                "CUDA out of memory",
                rf"CUDA out of memory\. Tried to allocate (?P<asked>{_SIZE})(?:.*?(?:total capacity of"
                rf" (?P<total>{_SIZE})))?(?:.*?(?P<free>{_SIZE})(?: is)? free)?",
            ),
            shape("CUDA error: out of memory"),
            shape("CUDA_ERROR_OUT_OF_MEMORY"),
            shape("cudaErrorMemoryAllocation"),
            shape("CUBLAS_STATUS_ALLOC_FAILED"),
            shape("Cuda failure", r"Cuda failure (?:\d+ )?'out of memory'"),
            shape("CUDA driver error: out of memory"),
        ),
    ),
    Known(
        "sampler-out-of-memory",
        what="the GPU ran out of memory when the sampler was warmed up",
        cause="{count} requests at once are more than its memory bears",
        fix="allow fewer: medley serve MODEL --concurrency 16 (or -- --max-num-seqs 16)",
        shapes=(
            shape("warming up sampler", r"warming up (?:the )?sampler with (?P<count>\d+) dummy requests"),
        ),
        over=("cuda-out-of-memory",),
    ),
    Known(
        "cuda-graph-out-of-memory",
        what="the GPU ran out of memory while CUDA graphs were captured",
        cause="graphs take memory beside weights and KV cache",
        fix="capture none: medley serve MODEL -- --enforce-eager (vLLM), -- --disable-cuda-graph (SGLang),\n"
        "or leave more free: -- --mem-fraction-static 0.75",
        shapes=(
            shape("uda graph failed", r"Capture cuda graph failed:.*out of memory"),
            shape("CUDA graph failed", r"Capture \w* ?CUDA graph failed:.*out of memory"),
        ),
        over=("cuda-out-of-memory", "cuda-graph"),
    ),
    Known(
        "sglang-static-memory",
        what="the weights leave no memory for the KV cache",
        cause="SGLang's share of memory for weights and KV cache[ ({share})] is too small for this model",
        fix="give it more: medley serve MODEL --engine sglang -- --mem-fraction-static 0.90; medley plan "
        "MODEL says"
        " what it needs",
        shapes=(
            shape(
                "Not enough memory",
                r"Not enough memory\. Please try to (?:increase|decrease) --mem-fraction-static"
                r"(?:.*?mem_fraction_static=(?P<share>[\d.]+))?",
            ),
        ),
    ),
    Known(
        "sglang-memory-unbalanced",
        what="the GPUs of one model have unlike amounts of free memory",
        cause="before loading [{before} GiB are free on one, {here} GiB here]: another process has some "
        "of it",
        fix="end what holds it (nvidia-smi on each host), or allow it: "
        "SGLANG_ENABLE_TP_MEMORY_INBALANCE_CHECK=0",
        shapes=(
            shape(
                "memory capacity is unbalanced",
                r"memory capacity is unbalanced(?:.*?(?:pre_model_load_memory|min_per_gpu_memory)=(?P<befo"
                r"re>[\d.]+),"
                r" local_gpu_memory=(?P<here>[\d.]+))?",
            ),
        ),
    ),
    Known(
        "sglang-pool-out-of-memory",
        what="the KV cache is too small for the requests",
        cause="SGLang could not place a batch in it, even after it put others aside",
        fix="fewer at once: medley serve MODEL --concurrency 4, or more memory: -- "
        "--mem-fraction-static 0.90",
        shapes=(
            shape("alloc_req_slots runs out of memory"),
            shape("Out of request slots"),
            shape("out of memory. Try to lower your batch size", r"(?:Decode|Prefill|Extend) out of memory"),
        ),
    ),
)
