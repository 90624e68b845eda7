"""A dialect is the flags that an installed engine knows, asked of itself once and kept for its version."""

import hashlib
from collections.abc import Sequence
from pathlib import Path

from medley import machine, store
from medley.command import Command
from medley.engine import Engine
from medley.engine.flags import known, unknown
from medley.problem import Problem
from medley.variables import UNSET
from medley.watch import SILENT, Watch

_LIMIT_S = 180
# Fewer are no engine's: then its help has another form, and nothing can be said by it.
_LEAST = 50


def require_known(
    engine: Engine, binary: Path, words: Sequence[str], *, ask: bool = True, watch: Watch = SILENT
) -> None:
    """A Problem with the nearest real one for each flag that the engine in this folder does not know.

    The engine takes some ten seconds to say; unless it is to be asked, only what is kept counts.
    """
    if not any(word.startswith("-") for word in words):
        return
    kept = store.cache() / "flags" / f"{engine.PROGRAM}-{_identity(engine, binary)}.txt"
    if ask and not kept.exists():
        with watch.stage(f"ask {engine.TITLE} which flags it knows"):
            store.write(kept, "\n".join(_asked(engine, binary)))
    names = kept.read_text(encoding="utf-8").split() if kept.exists() else []
    wrong = list(unknown(words, names)) if len(names) >= _LEAST else []
    if wrong:
        said = ", ".join(each.word for each in wrong)
        raise Problem(
            f"{engine.TITLE} does not know {said}",
            cause=f"of {len(names)} names in {binary / engine.PROGRAM} {' '.join(engine.HELP)} it is none",
            fix="\n".join(f"{each.word}: {each.advice}" for each in wrong),
        )


def _asked(engine: Engine, binary: Path) -> tuple[str, ...]:
    # Wide, so that no line of names is broken.
    command = Command((str(binary / engine.PROGRAM), *engine.HELP), {"COLUMNS": "4000"}, UNSET)
    lines: list[str] = []  # all of them: what is finished has kept the last ones alone
    finished = machine.run(command, limit_s=_LIMIT_S, on_line=lines.append)
    return known("\n".join(lines)) if finished.status == 0 else ()


def _identity(engine: Engine, binary: Path) -> str:
    """Of what is installed beside it: another version knows other flags."""
    packages = sorted(
        path.name for path in binary.parent.glob(f"lib/python*/site-packages/{engine.PROGRAM}*.dist-info")
    )
    return hashlib.sha256("\n".join((str(binary), *packages)).encode()).hexdigest()[:16]
