"""A bench as it is printed: for people, or as the whole record."""

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from medley.bench.record import Record


def tell(record: "Record", *, as_json: bool) -> None:
    from medley.bench.printed import lines

    if as_json:
        print(json.dumps(record.table))
        return
    for line in lines(record):
        print(line)
