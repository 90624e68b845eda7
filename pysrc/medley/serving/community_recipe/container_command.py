"""Read `docker run … IMAGE COMMAND` as a guide prints it: image, variables, ports and the command inside."""

import re
from collections.abc import Mapping, Sequence

from msgspec import field

from medley.values import Value

_PROGRAMS = {"docker", "podman", "nerdctl"}
# Options without a value (docs.docker.com/reference/cli/docker/container/run); every other one has one.
_FLAGS_WITHOUT_VALUE = {
    *(
        "--detach",
        "--rm",
        "--interactive",
        "--tty",
        "--privileged",
        "--init",
        "--read-only",
        "--no-healthcheck",
    ),
    *(
        "--publish-all",
        "--sig-proxy",
        "--oom-kill-disable",
        "--disable-content-trust",
        "--quiet",
        "--replace",
    ),
}
_SHORT_FLAGS_WITHOUT_VALUE_PATTERN = re.compile(r"-[ditqP]+")
# The entrypoint of such an image is the server: its words are those after `vllm serve`.
_SERVER_IMAGE_PATTERN = re.compile(r"vllm-openai|/vllm-?(?:cpu|server)|^vllm(?:[:@-]|$)")
_PUBLISHED_PORTS_PATTERN = re.compile(r"(?:[\d.]+:)?(\d+):(\d+)(?:/tcp)?")


class ContainerRun(Value):
    """A `docker run` command: its image, the command inside, and its options."""

    image: str
    words: list[str]
    """The command inside, from its entrypoint on."""
    variables: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    """Names of variables whose values the host's shell has."""
    ports: tuple[tuple[str, str], ...] = ()
    """Published ports: of the host, and inside the container."""
    mounts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """The files of --env-file, which hold variables."""

    def find_repository(self, folder: str) -> str | None:
        """Return the repository of a folder inside, if the hub's cache of that repository is mounted."""
        for mount in self.mounts:
            outer, _, inner = mount.removesuffix(":ro").rpartition(":")
            match = re.search(r"/models--([\w.-]+?)--([\w.-]+?)(?:/|$)", outer)
            if match and inner and (folder == inner or folder.startswith(inner.rstrip("/") + "/")):
                return f"{match[1]}/{match[2]}"
        return None

    def find_host_port(self, inner_port: str) -> str | None:
        return next((outer for outer, inner in self.ports if inner == inner_port), None)


def parse_container_run(words: Sequence[str]) -> ContainerRun | None:
    """Return the container that `docker run` or `podman run` in these words starts; None without one."""
    index = next((index for index, word in enumerate(words) if word.rpartition("/")[2] in _PROGRAMS), None)
    if index is None or "run" not in words[index + 1 : index + 3]:
        return None
    options: list[tuple[str, str]] = []
    rest = list(words[words.index("run", index) + 1 :])
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name.startswith("-e") and not name.startswith("--") and len(name) > 2:  # noqa: PLR2004 - -eNAME=value
            options.append(("-e", f"{name[2:]}{equals}{value}"))
        elif equals or name in _FLAGS_WITHOUT_VALUE or _SHORT_FLAGS_WITHOUT_VALUE_PATTERN.fullmatch(name):
            options.append((name, value))
        elif rest:
            options.append((name, rest.pop(0)))
    if not rest:
        return None
    image, *command = rest
    return _build_run(image, command, options)


def _build_run(image: str, command: list[str], options: Sequence[tuple[str, str]]) -> ContainerRun:
    def list_values(*names: str) -> list[str]:
        return [value for name, value in options if name in names]

    entrypoints = list_values("--entrypoint")
    if entrypoints:
        command = [*entrypoints[-1:], *command] if entrypoints[-1] else command
    elif _is_server_image(image, command):
        command = ["vllm", "serve", *command]
    assignments = [value.partition("=") for value in list_values("-e", "--env")]
    published = list_values("-p", "--publish")
    return ContainerRun(
        image,
        command,
        {name: value for name, equals, value in assignments if equals},
        tuple(name for name, equals, _ in assignments if not equals),
        tuple((match[1], match[2]) for match in map(_PUBLISHED_PORTS_PATTERN.fullmatch, published) if match),
        tuple(list_values("-v", "--volume", "--mount")),
        tuple(list_values("--env-file")),
    )


def _is_server_image(image: str, command: Sequence[str]) -> bool:
    """Return whether the words are a server's flags, which the image's entrypoint takes."""
    first_word = command[0] if command else ""
    is_argument = (
        first_word.startswith(("-", "$", "<"))
        or re.fullmatch(r"[\w.-]+/[\w.-]+|/\S+", first_word) is not None
    )
    is_program = first_word.rpartition("/")[2] in {"vllm", "sglang", "bash", "sh", "python", "python3"}
    return (
        is_argument
        and not is_program
        and _SERVER_IMAGE_PATTERN.search(image.rpartition("@")[0] or image) is not None
    )
