"""Describe the parser of each lock's engine in locks/parsers, which import, serve and dry runs ask.

.venv/bin/medley env build vllm-cuda               # and each other lock whose release changed; needs no GPU
.venv/bin/python -m tools.engine_parsers           # writes what is missing, removes what no lock has
.venv/bin/python -m tools.engine_parsers --again   # writes every file again
"""

import argparse
import sys
from pathlib import Path

from medley import config
from medley.engine.accepted_flags import PARSERS_FOLDER
from medley.environment import engine_source, virtualenv
from medley.progress import SILENT
from medley.schema import EngineName
from medley.serving.engine_release import format_parser, run_parser

ROOT = Path(__file__).parent.parent


def releases() -> dict[tuple[EngineName, str], list[str]]:
    """Return the locks of each release, those for GPUs first."""
    found: dict[tuple[EngineName, str], list[str]] = {}
    recipes = config.load_recipes()
    for name, versions in sorted(
        engine_source.read_locked_versions().items(), key=lambda each: recipes[each[0]].device == "cpu"
    ):
        engine = recipes[name].engine
        found.setdefault((engine, versions[engine]), []).append(name)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="describe every release again")
    options = parser.parse_args()
    folder, missing, current = ROOT / PARSERS_FOLDER, [], releases()
    for path in folder.glob("*.json"):
        if path.stem not in {f"{engine}-{version}" for engine, version in current}:
            path.unlink()
    for (engine, version), locks in current.items():
        path = folder / f"{engine}-{version}.json"
        if path.exists() and not options.again:
            continue
        built = next(filter(None, map(virtualenv.find_environment, locks)), None)
        if built is None:
            missing.append(f"medley env build {locks[0]}")
            continue
        path.parent.mkdir(exist_ok=True)
        path.write_text(
            format_parser(run_parser(built, config.load_recipes()[built.name], (), progress=SILENT)),
            encoding="utf-8",
        )
        print(f"{path.name}: of {built.name}")
    print("\n".join(missing), end="\n" if missing else "", file=sys.stderr)
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
