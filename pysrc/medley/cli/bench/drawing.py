"""The switches that write a picture or a page of benches."""

from typing import TYPE_CHECKING, Any

from plumbum import cli

from medley.cli.verb import Verb

if TYPE_CHECKING:
    from medley.bench.record import Record


class Drawing(Verb):
    svg = cli.SwitchAttr("--svg", str, argname="FILE", help="write plots to this file, as a picture")
    html = cli.SwitchAttr(
        "--html", str, argname="FILE", help="write a page to this file, which needs no network"
    )

    def draw(self, *records: "Record") -> None:
        """Of one, or of two compared."""
        from medley.cli import picture

        svg: Any = self.svg
        html: Any = self.html
        if svg is not None:
            from medley.bench.plots import document

            picture.save(svg, document(records))
        if html is not None:
            from medley.bench.page import comparison, page

            picture.save(html, page(*records) if len(records) == 1 else comparison(*records))
