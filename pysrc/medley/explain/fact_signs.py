"""Wordings of the lines that show a figure, a version or a release; their groups name the figures."""

from medley.explain.patterns import sign

_MANAGER = (
    r"(?:^\$ |^# |^|sudo )(?P<manager>xbps|pacman|dnf|yum|zypper|apk|emerge)(?:-(?:install|query))?(?:$| )"
)
_HF_XET = r"\bhf[-_]xet(?:==| *: *| +|-)(?P<version_hfxet>\d[\d.]*)"
_THOR_IMAGE = r"\bnvidia-ai-iot/[\w./-]*:\S*jetson-(?P<image_thor>thor)"
_JETSON_IMAGE = r"\b(?:dustynv|nvidia-ai-iot|l4t)[\w./-]*:(?:\w[\w.]*-)*r(?P<image_l4t>3\d(?:\.\d+)*)"

FACT_SIGNS = (
    # vLLM's and SGLang's figures of memory, in GiB
    sign("Model loading took", r"Model loading took (?P<weights>[\d.]+) Gi?B"),
    sign("Checkpoint size", r"Checkpoint size: (?P<checkpoint>[\d.]+) GiB"),
    sign("Load weight end", r"Load weight end\b.* mem usage=(?P<weights>[\d.]+) GB"),
    sign("Load weight begin", r"Load weight begin\. avail mem=(?P<gpu>[\d.]+) GB"),
    sign("total capacity of", r"total capacity of (?P<gpu>[\d.]+) GiB"),
    sign("ree memory on device", r"Free memory on device.{0,20} \([\d.]+/(?P<gpu>[\d.]+) GiB\)"),
    sign("KV cache memory", r"Available KV cache memory: (?P<kv_gib>[\d.]+) GiB"),
    sign("KV cache size", r"GPU KV cache size: (?P<kv_tokens>[\d,]+) tokens"),
    sign("max_num_batched_tokens=", r"max_num_batched_tokens=(?P<batched_tokens>\d+)"),
    # Releases of Jetson Linux: of the host, and in the tag of an image
    sign("(release), REVISION", r"# R(?P<host_l4t>\d\d) \(release\), REVISION: (?P<revision>[\d.]+)"),
    sign("JETPACK_VERSION ", r"L4T_VERSION +(?P<host_l4t>[\d.]+) .*JETPACK_VERSION "),
    sign("JETPACK_VERSION=", r"L4T_VERSION=(?P<host_l4t>[\d.]+) +JETPACK_VERSION="),
    sign("L4T BSP Version", r"L4T BSP Version: +L4T R(?P<host_l4t>[\d.]+)"),
    sign("-tegra", r"\b(?P<tegra_kernel>\d+\.\d+)\.\d+-(?:\w+-)?tegra\b"),
    sign("NVIDIA Thor", r"(?P<thor>NVIDIA Thor)\b"),
    sign("jetson-thor", _THOR_IMAGE),
    *(sign(needle, _JETSON_IMAGE) for needle in ("dustynv/", "nvidia-ai-iot/", "/l4t-")),
    # The package manager of the host, where it is not apt
    *(sign(needle, _MANAGER) for needle in ("xbps-", "pacman ", "zypper ", "emerge ", " install ")),
    sign("nixos-rebuild", r"(?P<manager>nixos)-rebuild"),
    # A GPU that the host's nvidia-smi lists, and an image that was pulled
    sign("NVIDIA ", r"^GPU \d+: (?P<host_gpu>NVIDIA [^(]{2,60}?) \(UUID"),
    sign("NVIDIA ", r"^\|\s+\d+\s+(?P<host_gpu>NVIDIA \S[^|]{1,40}?)\s+(?:On|Off|N/A)\s+\|"),
    sign("Status: ", r"^Status: (?:Image is up to date|Downloaded newer image) for (?P<pulled_image>\S+)"),
    # The loader of weights that is not the engine's default
    sign("Tensor loader", r"using (?P<loader>InstantTensor) loader"),
    sign("unai", r"(?i)using (?P<loader>Run ?ai(?: Model)? Streamer)"),
    sign("astsafetensor", r"(?i)using (?P<loader>fastsafetensors?) loader"),
    # The compute capability of the GPU: of nvidia-smi, of PyTorch, and of a build for one GPU
    sign("NVIDIA ", r"^(?:\d+, )?NVIDIA [^,]{2,60}, (?P<gpu_capability>\d{1,2}\.\d)(?:,|$)"),
    sign("cuda capability", r"which is of cuda capability (?P<gpu_capability>\d{1,2}\.\d)\b"),
    sign(
        "TORCH_CUDA_ARCH_LIST",
        r"CUDA_ARCH_LIST[=:] ?[\"']?(?P<gpu_capability>\d+\.\d)[af]?[\"']?(?: |$)",
    ),
    # The address of Ray's cluster: of the engine, of ray start, and of scripts that start it
    sign("Ray cluster at address", r"existing Ray cluster at address: (?P<ray_address>[\d.]+\d)"),
    sign("--node-ip-address", r"--node-ip-address[= ](?P<ray_address>\d+\.[\d.]+\d)"),
    sign("Local node IP", r"Local node IP: (?P<ray_address>[\d.]+\d)"),
    sign("Head Node", r"^Head [Nn]ode: (?P<ray_address>[\d.]+\d)"),
    # One host or several: of vLLM, of NCCL, and of both engines
    sign(
        "distributed_init_method=",
        r"world_size=(?P<world>\d+) .*distributed_init_method=tcp://(?P<loopback>127\.|localhost)",
    ),
    sign("distributed_init_method=", r"world_size=(?P<world>\d+) "),
    sign("GID_INDEX", r"NCCL_IB_GID_INDEX(?: set by environment to |=)(?P<gid_index>\d+)"),
    sign("Init START", r" nranks (?P<ranks>\d+)"),
    sign("Init COMPLETE", r" nranks (?P<ranks>\d+)"),
    sign("localRanks", r"\bnNodes (?P<nccl_nodes>\d+)\b"),
    sign("Bootstrap", r"^Bootstrap ?: "),
    sign("NET/IB", r"Using \[0\](?P<rdma_first>\w+):\d+/\w+ \[1\](?P<rdma_second>\w+):\d+/"),
    # The kernels that vLLM chose
    sign("Selected ", r"\bSelected (?P<linear_kernel>\w+Kernel) for (?P<linear_layer>\w+)"),
    sign("MoE backend", r"Using '?(?P<moe_kernel>[\w.]+)'? (?:\w+ )?MoE backend"),
    sign("spans across nodes", r"(?P<across_hosts>spans across nodes)"),
    # Versions of packages: of the engines themselves, tags of images, and lists of packages
    sign("API server version", r"vLLM API server version (?P<version_vllm>\d[\w.+]*)"),
    sign("LLM engine (v", r"LLM engine \(v(?P<version_vllm>\d[\w.+]*)\)"),
    sign("version", r"^(?:\S{0,20} +)?version (?P<version_vllm>0\.\d+\.\d[\w.+]*)$"),
    sign("vLLM Version", r"vLLM Version *: (?P<version_vllm>\d[\w.+]*)"),
    sign("vllm-openai:v", r"/vllm-openai:v(?P<version_vllm>\d[\d.]*\d)"),
    sign("vllm==", r"\bvllm==(?P<version_vllm>\d[\w.+]*)"),
    sign("sglang:v", r"/sglang:v(?P<version_sglang>\d[\d.]*\d)"),
    sign("sglang==", r"\bsglang==(?P<version_sglang>\d[\w.+]*)"),
    sign("sglang: ", r"^sglang: (?P<version_sglang>\d[\w.+]*)"),
    sign("ray==", r"\bray==(?P<version_ray>\d[\w.+]*)"),
    sign("NCCL version", r"NCCL version (?P<version_nccl>\d[\w.]*)"),
    sign("nccl==", r"using nccl==(?P<version_nccl>\d[\w.]*)"),
    sign("NCCL 2", r"^(?:# )?.{0,80}\bNCCL (?P<version_nccl>2\.\d+\.\d+)\b"),
    sign("nccl-cu", r"nvidia-nccl-cu1\d==(?P<version_nccl>\d[\w.]*)"),
    sign("flashinfer-python==", r"flashinfer-python==(?P<version_flashinfer>\d[\w.+]*)"),
    sign("flashinfer_python: ", r"^flashinfer_python: (?P<version_flashinfer>\d[\w.+]*)"),
    sign("transformers==", r"\btransformers==(?P<version_transformers>\d[\w.]*)"),
    # A list of pip
    sign("transformers ", r"^transformers +(?P<version_transformers>\d[\w.+]*)$"),
    sign("vllm ", r"^vllm +(?P<version_vllm>\d[\w.+]*)$"),
    sign("sglang ", r"^sglang +(?P<version_sglang>\d[\w.+]*)$"),
    sign("mistral", r"^mistral[_-]common +(?P<version_mistralcommon>\d[\w.+]*)$"),
    sign("tokenizers ", r"^tokenizers +(?P<version_tokenizers>\d[\w.+]*)$"),
    sign("flashinfer", r"^flashinfer[_-]python +(?P<version_flashinfer>\d[\w.+]*)$"),
    sign("hf-xet", _HF_XET),
    sign("hf_xet", _HF_XET),
    sign("triton==", r"\btriton==(?P<version_triton>\d[\w.+]*)"),
)
