"""List the programs of guides: those that set something, and those that are passed over."""

from collections.abc import Mapping

ENGINES: Mapping[tuple[str, ...], str] = {
    ("vllm", "serve"): "vllm serve",
    ("python", "-m", "vllm.entrypoints.openai.api_server"): "vllm serve",
    ("python", "-m", "sglang.launch_server"): "sglang serve",
    ("python3", "-m", "sglang.launch_server"): "sglang serve",
}
PROGRAMS: Mapping[tuple[str, ...], str] = {
    **ENGINES,
    ("ray", "start"): "ray start",
    ("vllm", "bench"): "vllm bench",
    ("torchrun",): "torchrun",
    ("mpirun",): "mpirun",
    ("make",): "make",
    ("jetson-containers", "build"): "jetson-containers build",
    ("bash", "run_cluster.sh"): "run_cluster.sh",
    ("bash", "run_cluster_bare.sh"): "run_cluster_bare.sh",
    ("bash", "distributed-inference.sh"): "distributed-inference.sh",
    ("bash", "spark_cluster_setup.sh"): "spark_cluster_setup.sh",
    ("./multi-node-serving.sh",): "multi-node-serving.sh",
}
"""Programs whose settings are compared, by the words that start them."""
PASSED_OVER: Mapping[str, str] = {
    "curl": "asks the server: `medley chat`, or any client",
    "wget git": "fetches scripts that Medley does not need",
    "uv pip pip3": "installs engines: `medley env build` installs hashed locks",
    "apt apt-get": "installs system packages: `medley doctor` names those that are missing",
    "ssh ssh-keygen ssh-copy-id discover-sparks": "makes hosts reach each other: `medley init` does it",
    "hf huggingface-cli": "fetches a model: `medley pull` does it, once over each link",
    "docker": "lists, pulls, enters or removes containers: `--image` and `medley stop` do it",
    "source cd ls cat echo tee chmod mkdir rm sed df": "looks, or prepares files",
    "nvidia-smi hostname whoami su date nvcc": "looks: `medley facts` does it",
    "python python3": "proves an installation: `medley env check` does it",
    "ray": "asks Ray: `medley status` does it",
    "ip ibdev2netdev ethtool netplan": "looks at links: `medley facts` and `medley link show` do it",
    "useradd usermod passwd groupadd newgrp systemctl": "administers the host",
    "watch": "shows RDMA counters: `medley link watch` and `medley top` do it",
    "timeout sync": "waits for the server, or drops the page cache: `serve` waits, `pull` frees what it read",
    "shift exit set trap cleanup [ [[ return local detect_interface": "is the shell's own",
    "awk grep tail xargs bash sh": "is the shell's own too",
}
"""Programs that set nothing of an engine, Ray, NCCL or a link, and what Medley has for them."""
ALONE: Mapping[str, frozenset[str]] = {
    "docker run": frozenset({"-it", "-d", "--rm", "--privileged", "-i", "-t"}),
    "ray start": frozenset({"-v", "--block", "--head"}),
    "make": frozenset({"-j", "-j8"}),
    "distributed-inference.sh": frozenset({"--head", "--worker"}),
    "run_cluster_bare.sh": frozenset({"--head", "--worker"}),
    "run_cluster.sh": frozenset({"--head", "--worker"}),
}
"""Their flags that take no value."""
ENTRYPOINTS = ("vllm/vllm-openai",)
"""Images that run `vllm serve` by themselves."""
_OTHERS = ("docker run", "export", "text", "link", "python")
_KNOWN = (*sorted(PROGRAMS.values(), key=len, reverse=True), *_OTHERS)


def program_of(command: str) -> str:
    """Return the program of a fact's command, without the model that it is given."""
    return next((each for each in _KNOWN if command.startswith(each)), command)
