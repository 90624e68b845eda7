"""Containers: images that do not come, GPUs that are not passed, and a runtime that does not answer."""

import re

from medley.explain.known import MEDIUM, Known, shape

KNOWN = (
    Known(
        "container-gpu",
        what="the container runtime cannot pass the GPU (NVIDIA container toolkit)",
        cause="{said}",
        fix="install NVIDIA's container toolkit, then: sudo nvidia-ctk runtime configure --runtime=docker "
        "&& sudo systemctl restart docker; on Jetson: --runtime nvidia",
        shapes=(
            shape(
                "could not select device driver",
                r"(?P<said>could not select device driver \S* ?with capabilities: \[\[gpu\]\])",
            ),
            shape("unknown or invalid runtime name", r"(?P<said>unknown or invalid runtime name: nvidia)"),
            shape("nvidia-container-cli", r"(?P<said>nvidia-container-cli: [^\n]{0,140})"),
            shape(
                "CDI device",
                r"(?P<said>(?:unresolvable|failed to inject|setting up) CDI devices?[^\n]{0,100})",
            ),
            shape("nvidia.com/gpu", r"(?P<said>stat nvidia\.com/gpu=\S+ no such file or directory)"),
            shape(
                "failed to discover GPU vendor",
                r"(?P<said>failed to discover GPU vendor from CDI[^\n]{0,60})",
            ),
        ),
        unless=re.compile(r"unsatisfied condition: cuda"),
        over=("driver-library",),
    ),
    Known(
        "container-driver",
        what="a container gets no GPU: the host's own NVIDIA driver does not answer",
        cause="nvidia-container-cli: {said}",
        fix="on the host itself nvidia-smi must work first: sudo modprobe nvidia; after an update reboot; on "
        "Jetson install the nvidia-container package of its JetPack",
        shapes=(
            shape(
                "driver not loaded",
                r"nvidia-container-cli: (?:\w+ error: )?(?P<said>nvml error: driver not loaded)",
            ),
            shape(
                "load library failed",
                r"nvidia-container-cli: (?:\w+ error: )?(?P<said>load library failed: "
                r"lib(?:nvidia-ml|cuda)\S*:"
                r" [^\n]{0,60})",
            ),
            shape(
                "driver error: failed to process request",
                r"nvidia-container-cli\S*: (?:\w+ error: )?(?P<said>driver error: failed to process request)",
            ),
        ),
        over=("container-gpu", "driver-library"),
    ),
    Known(
        "container-mount",
        what="the image has files that the NVIDIA runtime puts there itself: it is not one for this host",
        cause="{file} exists in it already",
        fix="on a Jetson take an image for its JetPack (l4t, jetson-containers: autotag), on other "
        "hosts one for "
        "servers; an image that was committed while it ran: build it anew",
        shapes=(
            shape(
                "file exists",
                r"nvidia-container-cli: mount error: file creation failed: \S*?/merged(?P<file>/\S+): "
                r"file exists",
            ),
        ),
        over=("container-gpu",),
    ),
    Known(
        "container-rdma",
        what="the container cannot have the RDMA devices",
        cause="{said}: the host has no such devices, so its RDMA driver is not loaded",
        fix="medley facts says whether the host has any; without RDMA leave --device /dev/infiniband out",
        shapes=(
            shape(
                "/dev/infiniband",
                r"(?P<said>[^\n]{0,60}/dev/infiniband\S{0,60} ?:? ?[^\n]{0,40}no such file or directory)",
            ),
        ),
    ),
    Known(
        "rdma-permission",
        what="RDMA devices: permission denied for this process (/dev/infiniband)",
        cause="{said}",
        fix="give the container its devices: docker run --device /dev/infiniband --cap-add IPC_LOCK "
        "--ulimit memlock=-1 …;"
        " outside one: ls -l /dev/infiniband, sudo usermod -aG rdma $USER",
        shapes=(
            shape(
                "/dev/infiniband",
                r"(?P<said>/dev/infiniband/\S+:? ?[^\n]{0,30}(?:[Pp]ermission denied|Operation no"
                r"t permitted))",
            ),
            shape(
                "ibv_open_device",
                r"(?P<said>ibv_open_device[^\n]{0,60}(?:Permission denied|EACCES|error 13))",
            ),
        ),
        quiet=True,
    ),
    Known(
        "image-none",
        what="the image is not found, or not for you",
        cause="{said}",
        fix="see how it is written, and log in where it is private: docker login nvcr.io",
        shapes=(
            shape("manifest unknown", r"(?P<said>[^\n]{0,80}manifest unknown)"),
            shape("pull access denied", r"(?P<said>pull access denied for \S+)"),
            shape("unauthorized: ", r"(?P<said>unauthorized: (?:authentication required|access)[^\n]{0,60})"),
            shape("not found: manifest", r"(?P<said>[^\n]{0,80}not found: manifest unknown)"),
        ),
    ),
    Known(
        "image-architecture",
        what="the image is for another processor",
        cause="{said}",
        fix="Spark, Thor and Orin are arm64: take a tag that has it (docker manifest inspect IMAGE)",
        shapes=(
            shape("no matching manifest for", r"(?P<said>no matching manifest for \S+)"),
            shape("xec format error", r"(?P<said>[^\n]{0,60}exec format error)"),
            shape("no image found in", r"(?P<said>no image found in image index for architecture \S+)"),
        ),
    ),
    Known(
        "image-limit",
        what="the registry's pull rate limit is reached",
        cause="too many images were pulled from this address",
        fix="docker login, which has a higher limit; or save it on one host and load it here: docker save "
        "IMAGE | ssh HOST docker load",
        shapes=(
            shape("reached your", r"reached your (?:unauthenticated )?pull rate limit"),
            shape("toomanyrequests"),
        ),
    ),
    Known(
        "container-runtime",
        what="the Docker daemon does not answer",
        cause="{said}",
        fix="sudo systemctl enable --now docker; or without it: --container podman",
        shapes=(
            shape(
                "annot connect to the Docker daemon", r"(?P<said>Cannot connect to the Docker daemon at \S+)"
            ),
            shape(
                "failed to connect to the docker API", r"(?P<said>failed to connect to the docker API at \S+)"
            ),
        ),
    ),
    Known(
        "container-permission",
        what="Docker's socket: permission denied for this user",
        cause="{said}: the user is not in the group docker",
        fix="sudo usermod -aG docker $USER\nthen log in anew (newgrp docker); or --container podman",
        shapes=(
            shape(
                "ermission denied",
                r"(?P<said>(?:permission denied while trying to connect to the [Dd]ocker (?:daemon socket|AP"
                r"I)|"
                r"dial unix \S*docker\S*sock: connect: permission denied|PermissionError.*docker\.sock))",
            ),
        ),
        over=("container-runtime", "not-allowed"),
    ),
    Known(
        "image-unreachable",
        what="the container registry is not reached",
        cause="{said}",
        fix="see the way out: curl -I https://registry-1.docker.io/v2/; or bring the image from a host "
        "that has it: docker "
        "save IMAGE | ssh HOST docker load",
        shapes=(
            shape("pinging container registry", r"(?P<said>pinging container registry .+)"),
            shape(
                "dial tcp",
                r"(?P<said>(?:Get|Head) \"https://[^\"]*/v2/[^\"]*\": (?:dial tcp|net/http|context).+)",
            ),
            shape(
                "failed to resolve reference",
                r"(?P<said>failed to resolve reference .+?(?:dial tcp|no such host|i/o timeout).*)",
            ),
            shape(
                "request canceled while waiting", r"(?P<said>request canceled while waiting for connection.*)"
            ),
        ),
        confidence=MEDIUM,
    ),
    Known(
        "container-name",
        what="a container of that name is there already",
        cause="{name} was not removed when it last ended",
        fix="docker rm -f {name}",
        shapes=(
            shape(
                "is already in use by container", r"container name \"/?(?P<name>[\w.-]+)\" is already in use"
            ),
            shape("is already in use", r"container name \"(?P<name>[\w.-]+)\" is already in use by"),
        ),
    ),
)
