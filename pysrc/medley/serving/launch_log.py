"""Print a launch and its reasons, write its files, and begin its log."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from medley import storage
from medley.engine.launch import Launch


def write_files(launch: Launch) -> None:
    """Write the files that the command reads; one that exists is the same, or the script itself."""
    for name, text in launch.files.items():
        if not storage.exists(Path(name)):
            storage.write_text(Path(name), text)


def print_launch(
    launch: Launch, print_line: Callable[[str], None], print_detail: Callable[[str], None]
) -> None:
    """Print the plan's first reason and the extra files with `print_line`, the rest with `print_detail`."""
    reasons = launch.plan.why
    for line in reasons[:1]:
        print_line(line)
    for line in reasons[1:]:
        print_detail(line)
    for line in launch.model_extras.list_reasons():
        print_line(line)
    print_detail(f"$ {launch.command}")


@contextmanager
def log_launch(log: Path, launch: Launch) -> Iterator[Callable[[str], object]]:
    """Yield a writer of lines to a new log, which begins with the command and its reasons."""
    with storage.open_log(log) as write_line:
        for line in (*(f"medley: {reason}" for reason in launch.plan.why), f"$ {launch.command}"):
            write_line(line)
        yield write_line
