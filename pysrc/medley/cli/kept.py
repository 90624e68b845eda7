"""`medley kept UNIT`: what keeps a unit running where no systemd does; medley itself starts it."""

import os

from medley import kept


def main(name: str) -> int:
    return kept.keep(name, os.getpid())
