"""Compare Medley with published guides, setting by setting; see docs/explanation/published-guides.md.

python -m tools.guides                    write the page again; then review: git diff docs/explanation
python -m tools.guides extract FILE...    read guides again into facts.csv; then review: git diff tools/guides
"""

import os
import sys
from pathlib import Path

from tools.guides import extract, page
from tools.plan_outputs import HOME


def main(words: list[str]) -> None:
    if words[:1] == ["extract"] and len(words) > 1:
        extract.write(fact for file in words[1:] for fact in extract.facts_of(Path(file)))
    elif words:
        raise SystemExit(__doc__)
    else:
        os.environ |= HOME
        facts = extract.read()
        page.PAGE.write_text(page.page(page.compared(facts), facts), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
