"""A field report of two recorded Sparks that serve gpt-oss-120b."""

import json
from pathlib import Path
from typing import Any

from medley import config
from medley.host.facts import read_facts
from medley.host.kind import find_kind, load_answers
from medley.measurement.field_report.draft import Draft
from medley.measurement.field_report.replay import plan_model
from medley.measurement.field_report.report import Backend, PlanRequest, Wishes
from medley.measurement.link.result import LinkMeasurement, RdmaSpeed
from medley.measurement.link.tools import Ping, Throughput
from medley.network.fabric import report as fabric_report
from medley.network.fabric.choice import NetworkOptions
from medley.network.fabric.choose import choose_fabric
from medley.progress import SILENT
from tests.measurement.bench.benches import bench

HOSTS = Path(__file__).parents[2] / "host" / "recorded"
NAMES = ("ann-spark", "bob-spark")
FILES = ("spark-pair-a.txt", "spark-pair-b.txt")
MODEL = "gpt-oss-120b"


def draft(written: list[str] | None = None) -> Draft:
    """Return a draft with both hosts and their network."""
    draft = Draft((written if written is not None else []).append, SILENT)
    transcripts = {name: load_answers(str(HOSTS / file)) for name, file in zip(NAMES, FILES, strict=True)}
    facts_by_host = {name: read_facts(each) for name, each in transcripts.items()}
    kinds = {name: (transcripts[name], find_kind(each).name) for name, each in facts_by_host.items()}
    draft.describe(kinds, {NAMES[1]: (NAMES[1], "bob.lan")}, ["bob"], NetworkOptions())
    draft.parts["fabric"] = draft.redact(
        fabric_report.build_fabric_table(choose_fabric(facts_by_host, NetworkOptions()), facts_by_host)
    )
    return draft


def report() -> dict[str, Any]:
    """Return the table of the file."""
    draft_report = draft()
    model = config.load_models()[MODEL]
    assert model.shape
    plan = plan_model(MODEL, model.shape, draft_report.answers, Wishes(), PlanRequest(hosts=2, spread=True))
    direction = Throughput(104_000.0, 0, 40.0)
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
        direction,
        direction,
        RdmaSpeed("rocep1s0f0", 98_000.0, 2.1),
    )
    record = bench(model=MODEL)
    about = {**record.about, "hosts": []}
    line = Backend(what="NCCL transport", found="IB", line=7, text="NCCL INFO Using network IB")
    draft_report.parts["models"].append(
        {
            "name": MODEL,
            "by_report": True,
            "plan": plan.to_table(),
            "ran": plan.made.to_table(),
            "bench": record.replace(about=about).to_table(),
            "backends": [line.to_table()],
        }
    )
    draft_report.parts["links"].append({"host": "host-2", "measured": link.to_table(), "problems": []})
    draft_report.parts["doctor"] = {"checks": [], "counts": {"ok": 40, "better": 2}}
    draft_report.skip("collective-test", "the cluster is not up")
    draft_report.parts["whole"] = True
    return dict(json.loads(json.dumps(draft_report.parts)))


def save(folder: Path, table: object) -> Path:
    path = folder / "report.json"
    path.write_text(json.dumps(table), encoding="utf-8")
    return path
