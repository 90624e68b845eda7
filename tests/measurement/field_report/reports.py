"""A field report of two recorded Sparks that serve gpt-oss-120b."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from medley import config
from medley.host.facts import facts
from medley.host.kind import answers, kind_of
from medley.measurement.field_report import Backend, PlanRequest, Wishes
from medley.measurement.field_report.draft import Draft
from medley.measurement.field_report.replay import planned
from medley.measurement.link import LinkMeasurement, Rdma
from medley.measurement.link.tools import Ping, Throughput
from medley.network.fabric import fabric
from medley.network.fabric import report as fabric_report
from medley.network.fabric.types import NetworkOptions
from medley.progress import SILENT
from tests.measurement.bench.benches import bench

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
NAMES = ("ann-spark", "bob-spark")
FILES = ("spark-pair-a.txt", "spark-pair-b.txt")
MODEL = "gpt-oss-120b"


def draft(written: list[str] | None = None) -> Draft:
    """With both hosts described, and their network."""
    made = Draft((written if written is not None else []).append, SILENT)
    told = {name: answers(str(HOSTS / file)) for name, file in zip(NAMES, FILES, strict=True)}
    known = {name: facts(each) for name, each in told.items()}
    kinds = {name: (told[name], kind_of(each).name) for name, each in known.items()}
    made.describe(kinds, {NAMES[1]: (NAMES[1], "bob.lan")}, ["bob"], NetworkOptions())
    made.parts["fabric"] = made.clean(fabric_report.table(fabric(known, NetworkOptions()), known))
    return made


def report() -> dict[str, Any]:
    """The table of the file."""
    made = draft()
    model = config.models()[MODEL]
    assert model.shape
    plan = planned(MODEL, model.shape, made.answers, Wishes(), PlanRequest(hosts=2, spread=True))
    way = Throughput(104_000.0, 0, 40.0)
    ping = Ping(10, 10, 0.05, 0.09)
    link = LinkMeasurement(
        "192.168.177.12",
        "enp1s0f0np0",
        "192.168.177.11",
        9000,
        200_000,
        126_000,
        ping,
        ping,
        way,
        way,
        Rdma("rocep1s0f0", 98_000.0, 2.1),
    )
    found = bench(model=MODEL)
    about = {**found.about, "hosts": []}
    line = Backend(what="NCCL transport", found="IB", line=7, text="NCCL INFO Using network IB")
    made.parts["models"].append(
        {
            "name": MODEL,
            "by_report": True,
            "plan": plan.model_dump(),
            "ran": plan.made.model_dump(),
            "bench": asdict(replace(found, about=about)),
            "backends": [line.model_dump()],
        }
    )
    made.parts["links"].append({"host": "host-2", "measured": asdict(link), "problems": []})
    made.parts["doctor"] = {"checks": [], "counts": {"ok": 40, "better": 2}}
    made.skip("collective-test", "the cluster is not up")
    made.parts["whole"] = True
    return dict(json.loads(json.dumps(made.parts)))


def save(folder: Path, table: object) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return path
