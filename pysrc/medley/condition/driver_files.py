"""The driver's files are all that has the name of one of its libraries, in the folders that kinds name."""

from collections.abc import Mapping
from dataclasses import dataclass

from medley.facts.answers import lines
from medley.inside.preload import BEGIN_BYTES, DRIVER, OPENED, Seen
from medley.transcript import Transcript

# All that stand in a table of hosts/: a question is the same on every host.
FOLDERS = (
    *("/usr/lib/wsl/lib", "/opt/nvidia/l4t-gpu-libs/nvgpu", "/opt/nvidia/l4t-gpu-libs/openrm"),
    *("/usr/lib/aarch64-linux-gnu/nvidia", "/usr/lib/aarch64-linux-gnu", "/usr/lib/x86_64-linux-gnu"),
    *("/usr/lib64", "/usr/lib", "/run/opengl-driver/lib"),
)
_NAMES = (*DRIVER, "libcuda.so.1.1", *OPENED)
FILES = (
    f"for d in {' '.join(FOLDERS)}; do for n in {' '.join(_NAMES)}; do"
    ' p=$d/$n; [ -e "$p" ] || [ -L "$p" ] || continue;'
    f' echo "$p $(readlink -m "$p") $(od -An -v -tx1 -N{BEGIN_BYTES} "$p" 2>/dev/null | tr -d " \\n")";'
    " done; done; :"
)

QUESTIONS = (FILES,)


@dataclass(frozen=True)
class DriverFiles:
    seen: Mapping[str, Seen]
    """By path, what it leads to and how that begins."""

    def look(self, path: str) -> Seen | None:
        return self.seen.get(path)


def driver_files(answers: Transcript) -> DriverFiles | None:
    if FILES not in answers:
        return None
    said = (line.split(" ") for line in lines(answers, FILES))
    whole = (words for words in said if len(words) > 1 and words[0].startswith("/"))
    return DriverFiles({path: (real, _bytes(rest)) for path, real, *rest in whole})


def _bytes(rest: list[str]) -> bytes:
    try:
        return bytes.fromhex("".join(rest))
    except ValueError:
        return b""
