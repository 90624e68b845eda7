"""What is too large says by how much, in the nearest layout, and what would have to change."""

from collections.abc import Sequence
from dataclasses import replace

from medley.layout.candidates import Asked, Ruled, Sizes
from medley.layout.fit import Fit, gib
from medley.layout.forced import words
from medley.layout.remedies import NoLayout, remedies
from medley.layout.shapes import Layout
from medley.layout.words import named
from medley.tables import Shape


def too_large(
    shape: Shape, tight: Sequence[tuple[Layout, Fit]], ruled: Sequence[Ruled], asked: Asked
) -> NoLayout:
    what = f"the model does not fit with {asked.concurrency} at once of {asked.context} tokens"
    reasons = [f"{each.what}: {each.because}" for each in ruled]
    if not tight:
        return NoLayout(
            "no layout is as asked for", cause="\n".join(reasons) or "there is no device", fix="ask for less"
        )
    least, fitted = min(tight, key=lambda one: (one[1].short_bytes, named(one[0])))
    found = replace(
        remedies(shape, least, asked.context, asked.concurrency),
        context=max(each.context for _, each in tight),
        concurrency=max(each.concurrency for _, each in tight),
    )
    forced_by = f"; as {words(asked.sizes)} says" if asked.sizes != Sizes() else ""
    return NoLayout(
        what,
        cause="\n".join(
            (
                f"{gib(fitted.short_bytes)} GiB short in the nearest of {len(tight)} layouts{forced_by}",
                f"{named(least)}: {fitted.worst}",
                *reasons,
            )
        ),
        fix="\n".join(found) or "a smaller model",
        remedies=found,
    )
