"""`medley agent` on a host that was recorded: python replayed_agent.py TRANSCRIPT STATE.

The agent, its errands, units and sockets are real; what it asks of its host is answered by the transcript.
"""

import os
import sys
from pathlib import Path

from medley import process
from medley.cli.agent import requests
from medley.transcript import parse_transcript


def main(recording: str, state: str) -> int:
    os.environ["MEDLEY_STATE"] = state
    said = parse_transcript(Path(recording).read_text())
    vars(process)["ask_host"] = lambda *_, **__: said
    return requests.main()


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:3]))
