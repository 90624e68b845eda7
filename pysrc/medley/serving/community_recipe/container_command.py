"""Read `docker run … IMAGE COMMAND` as a guide prints it: image, variables, ports and the command inside."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

_PROGRAMS = {"docker", "podman", "nerdctl"}
# Options without a value (docs.docker.com/reference/cli/docker/container/run); every other one has one.
_ALONE = {
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
_SHORT_ALONE = re.compile(r"-[ditqP]+")
# The entrypoint of such an image is the server: its words are those after `vllm serve`.
_SERVES = re.compile(r"vllm-openai|/vllm-?(?:cpu|server)|^vllm(?:[:@-]|$)")
_PUBLISHED = re.compile(r"(?:[\d.]+:)?(\d+):(\d+)(?:/tcp)?")


@dataclass(frozen=True)
class ContainerRun:
    image: str
    words: list[str]
    """The command inside, from its entrypoint on."""
    variables: Mapping[str, str] = field(default_factory=dict)
    inherited: tuple[str, ...] = ()
    """Names of variables whose values the host's shell has."""
    ports: tuple[tuple[str, str], ...] = ()
    """Published ports: of the host, and inside."""
    mounts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Files of variables."""

    def repository(self, folder: str) -> str | None:
        """Return the repository of a folder inside, where the hub's cache of that repository is mounted."""
        for mount in self.mounts:
            outer, _, inner = mount.removesuffix(":ro").rpartition(":")
            match = re.search(r"/models--([\w.-]+?)--([\w.-]+?)(?:/|$)", outer)
            if match and inner and (folder == inner or folder.startswith(inner.rstrip("/") + "/")):
                return f"{match[1]}/{match[2]}"
        return None

    def port_of_host(self, inside: str) -> str | None:
        return next((outer for outer, inner in self.ports if inner == inside), None)


def container_run(words: Sequence[str]) -> ContainerRun | None:
    """Return what `docker run` or `podman run` in these words starts, if they do."""
    at = next((at for at, word in enumerate(words) if word.rpartition("/")[2] in _PROGRAMS), None)
    if at is None or "run" not in words[at + 1 : at + 3]:
        return None
    options: list[tuple[str, str]] = []
    rest = list(words[words.index("run", at) + 1 :])
    while rest and rest[0].startswith("-"):
        name, equals, value = rest.pop(0).partition("=")
        if name.startswith("-e") and not name.startswith("--") and len(name) > 2:  # noqa: PLR2004 - -eNAME=value
            options.append(("-e", f"{name[2:]}{equals}{value}"))
        elif equals or name in _ALONE or _SHORT_ALONE.fullmatch(name):
            options.append((name, value))
        elif rest:
            options.append((name, rest.pop(0)))
    if not rest:
        return None
    image, *command = rest
    return _run(image, command, options)


def _run(image: str, command: list[str], options: Sequence[tuple[str, str]]) -> ContainerRun:
    def values(*names: str) -> list[str]:
        return [value for name, value in options if name in names]

    entry = values("--entrypoint")
    if entry:
        command = [*entry[-1:], *command] if entry[-1] else command
    elif _serves(image, command):
        command = ["vllm", "serve", *command]
    given = [each.partition("=") for each in values("-e", "--env")]
    return ContainerRun(
        image,
        command,
        {name: value for name, equals, value in given if equals},
        tuple(name for name, equals, _ in given if not equals),
        tuple(match.groups() for each in values("-p", "--publish") if (match := _PUBLISHED.fullmatch(each))),  # type: ignore[misc] # two groups
        tuple(values("-v", "--volume", "--mount")),
        tuple(values("--env-file")),
    )


def _serves(image: str, command: Sequence[str]) -> bool:
    """Whether the words are a server's flags, which the image's entrypoint takes."""
    first = command[0] if command else ""
    takes = first.startswith(("-", "$", "<")) or re.fullmatch(r"[\w.-]+/[\w.-]+|/\S+", first) is not None
    starts = first.rpartition("/")[2] in {"vllm", "sglang", "bash", "sh", "python", "python3"}
    return takes and not starts and _SERVES.search(image.rpartition("@")[0] or image) is not None
