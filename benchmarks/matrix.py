"""Both engines by every launcher over two hosts: whether the tokens are one host's, and how long until ready.

    sudo .venv/bin/python -m benchmarks.matrix [WORDS]        # 18 servers, about half an hour

Two hosts made of namespaces share this machine's processors. Float32, 8 prompts, 32 greedy tokens, beside
those of the same engine alone on one host; `nats` is how clear its choices are. A cell called spoiled has
another model on the second host, and must differ. WORDS choose cells by name. Ready is from the first word
typed to the first answered completion; Ray's cluster is up before. The machine is loaded: compare no times.
"""

import sys
from contextlib import ExitStack

from tests.rack.matrix import CELLS, Matrix, rows
from tests.rack.rack import up
from tests.rack.spec import Spec


def main() -> int:
    cells = [cell for cell in CELLS if all(word in cell.name for word in sys.argv[1:])]
    failed = 0
    print(f"{'cell':<28}{'tokens':<10}{'nats':>8}{'ready':>8}")
    with ExitStack() as stack:
        for row in rows(Matrix(stack.enter_context(up(Spec(2, name="matrix")))), cells):
            said = "equal" if row.equal else "differ"
            if row.answer is None:
                print(f"{row.cell.name:<28}not run: {row.why_not}", flush=True)
            else:
                nats, ready = f"{row.answer.margin:.4f}", f"{row.ready_s:.0f} s"
                print(f"{row.cell.name:<28}{said:<10}{nats:>8}{ready:>8}", flush=True)
            failed += row.equal == row.cell.spoiled
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
