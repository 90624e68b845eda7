"""Record again what `medley plan` prints on the pages, or show what every command of a tutorial prints.

python -m tools.tutorials              write the plans of all pages again; then review git diff
python -m tools.tutorials two-sparks   type that page on two simulated hosts, as root, and show all output
"""

import sys

from tools.tutorials import plans, two_sparks
from tools.tutorials.pages import difference, steps


def main() -> None:
    if sys.argv[1:] != ["two-sparks"]:
        plans.record()
        return
    with two_sparks.sparks("tutorial") as rack:
        for step in steps(two_sparks.PAGE.read_text()):
            printed = two_sparks.typed(rack, step)
            same = difference(step.shown, printed) is None
            sys.stdout.write(
                f"{step.host}$ {step.command}   # {'as shown' if same else 'DIFFERS'}\n{printed}\n"
            )
            sys.stdout.flush()


if __name__ == "__main__":
    main()
