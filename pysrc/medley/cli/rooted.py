"""What root alone can do is a Problem for others, with the line that has root do it."""

import os
import shlex
import sys

from medley.problem import Problem


def require_root(what: str) -> None:
    if os.geteuid() != 0:
        # sudo has a PATH of its own.
        line = shlex.join(["sudo", os.path.abspath(sys.argv[0]), *sys.argv[1:]])  # noqa: PTH100 - keeps links
        raise Problem(f"only root can {what}", cause=f"you are user {os.geteuid()}", fix=line)
